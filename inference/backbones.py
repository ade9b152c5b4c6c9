"""Image encoders whose features other models learn from: any vision model, also that of a dual encoder."""

from pathlib import Path
from typing import Any

from transformers import AutoModel, PreTrainedModel

from ..configuration.errors import ModelKindError
from ..configuration.pretrained import load_model


def load_backbone(folder_or_repo: str | Path, **loading: Any) -> PreTrainedModel:
    """A vision model: one by itself, that of a dual encoder, or that of an MLA model's native one.

    Args:
        folder_or_repo, loading: what `load_model` takes.

    Raises:
        ModelFolderError: as `load_model`.
        ModelKindError: when the model sees no images.
    """
    model: Any = load_model(AutoModel, folder_or_repo, **loading)
    for part in ("native_model", "vision_model"):
        model = getattr(model, part, model)
    if getattr(model, "main_input_name", None) != "pixel_values":
        raise ModelKindError(f"{folder_or_repo} has no vision model")
    return model
