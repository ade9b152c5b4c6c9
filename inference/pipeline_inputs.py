"""Parts that babelens' pipelines share: images from the web, rows that travel through a batch, and the registration.

A pipeline names in `hub_task` the task that it runs and the Auto class that loads its models. By it, the task is
registered where babelens is imported, and written into `custom_pipelines` of the models that are saved, so that
transformers runs the copy of the pipeline in their folder where babelens is not installed (`utils.hub_code`).
"""

from collections.abc import Mapping
from typing import Any

import torch
import transformers
from transformers.image_utils import load_image
from transformers.pipelines import PIPELINE_REGISTRY

from ..utils.errors import ImageError

_ADDRESSES = ("http://", "https://")

# Prepared by `preprocess`: one row, or the rows of a batch as lists.
Rows = dict[str, Any]


def fetched(image: Any, timeout: float | None = None) -> Any:
    """An image of the web, loaded; a tensor as an array, since tensors of a batch would be joined; anything else as it
    is, since the processor opens it.
    """
    if isinstance(image, torch.Tensor):
        return image.cpu().numpy()
    if not (isinstance(image, str) and image.startswith(_ADDRESSES)):
        return image
    try:
        return load_image(image, timeout=timeout)
    except Exception as error:  # the libraries for the network and for images raise many types
        raise ImageError(f"{image}: {error}") from error


def as_rows(inputs: Rows) -> Rows:
    """Returns the rows of a batch as lists, even for a single row, which is not collated."""
    return inputs if all(isinstance(value, list) for value in inputs.values()) else {k: [v] for k, v in inputs.items()}


def stated(item: Mapping[str, Any], name: str, default: Any) -> Any:
    """Returns a value of an item, such as its language; the default if it has none, or None as in a data set."""
    return default if item.get(name) is None else item[name]


def register_pipelines(*pipelines: type) -> None:
    """Makes `transformers.pipeline` run each task with one of these pipelines; has no effect when repeated."""
    for pipeline in pipelines:
        task, auto_class = pipeline.hub_task  # type: ignore[attr-defined]
        known = PIPELINE_REGISTRY.supported_tasks.get(task, {})
        if known.get("impl") is not pipeline:
            models = known.get("pt", (getattr(transformers, auto_class),))
            PIPELINE_REGISTRY.supported_tasks[task] = {"type": "multimodal"} | known | {"impl": pipeline, "pt": models}
        # Version 5 refuses the names of tasks that it removed, also where they are registered.
        transformers.pipelines.REMOVED_TASKS.pop(task, None)
