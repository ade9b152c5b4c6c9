"""The base class of the configurations, and what models share with trainers: the names of tasks, checks of numbers.

Fields have types that are checked. Other keys of a `config.json` are kept and ignored, as transformers does.
"""

import copy
import inspect
import os
from typing import Any

from transformers import PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from ..utils.errors import ModelKindError

# Keys that describe the files of a folder, and do not apply to a tower that was taken from it.
_OF_A_FOLDER = ("quantization_config", "transformers.js_config", "transformers_weights")

# How the names of modules begin that transformers reads from a folder, where the package is not installed.
_MODULES_OF_FOLDERS = "transformers_modules."


class StrictConfig(PreTrainedConfig):
    """Base class of the configurations, whose towers have configurations of their own."""

    def __post_init__(self, **kwargs: object) -> None:
        if not type(self).__module__.startswith(_MODULES_OF_FOLDERS):
            # The package has registered its pipelines itself; for those of a folder, transformers would ask for
            # `trust_remote_code`.
            kwargs.pop("custom_pipelines", None)
        for name, spec in self.sub_configs_defaults.items():
            given = getattr(self, name)
            if isinstance(given, PreTrainedConfig):
                setattr(self, name, _without_folder(given))
            elif isinstance(given, dict):
                model_type = given.get("model_type", spec.model_type)
                if model_type not in CONFIG_MAPPING:
                    raise ValueError(f"{name}: transformers has no model type {model_type!r}")
        super().__post_init__(**kwargs)


def _without_folder(tower: PreTrainedConfig) -> PreTrainedConfig:
    """Returns a copy of a tower's configuration without the keys about its own folder: a model that is built from the
    configuration of a quantized tower is not quantized itself. Of a folder of this machine, its name alone is kept."""
    tower = copy.deepcopy(tower)
    if tower.name_or_path and os.path.exists(tower.name_or_path):
        tower.name_or_path = os.path.basename(os.path.realpath(tower.name_or_path))
    for key in _OF_A_FOLDER:
        vars(tower).pop(key, None)
    return tower


# ---- Tasks ----
# The names of the training tasks, which configurations, views and trainers share, and the heads that models have
# for them.

IMAGE_TEXT = "image_text"
TEXT_TEXT = "text_text"
TRIPLET = "triplet"


def head_of_task(model: Any, task: str | None) -> dict[str, str]:
    """Returns the argument of a model's `get_text_features` that chooses the head of a task; none without a task.

    Raises:
        ModelKindError: if the model has one head for all tasks, or none for this one.
    """
    if task is None:
        return {}
    name = type(model).__name__
    get_text_features = getattr(model, "get_text_features", None)
    if get_text_features is None or "task" not in inspect.signature(get_text_features).parameters:
        raise ModelKindError(f"{name} has no head for each task: leave out task={task!r}")
    if task not in (tasks := list(model.config.tasks)):
        raise ModelKindError(f"this {name} has no head for {task!r}; its tasks are {', '.join(tasks)}")
    return {"task": task}


def check_probabilities(**values: float) -> None:
    """Checks that all values are probabilities.

    Args:
        values: the values by their names.

    Raises:
        ValueError: for the first one that is not between 0 and 1; the message names it.
    """
    for name, value in values.items():
        if not 0 <= value <= 1:
            raise ValueError(f"{name}={value} must be a probability, between 0 and 1")
