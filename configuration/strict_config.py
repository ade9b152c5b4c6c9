"""Strict configurations: a key that nothing reads is refused with an error that names it.

transformers' configurations accept unknown keyword arguments silently, so that `hiden_size=512` would train another
model than was meant.
"""

import copy
import dataclasses
import inspect
import os
from typing import Any

from transformers import PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from .errors import ModelKindError, did_you_mean

# Keys that transformers itself writes into or reads from a configuration, beside the fields of its dataclass. In
# version 5.23, the code is in `__post_init__` and `to_diff_dict` of configuration_utils, `from_pretrained` and
# `__init__` of modeling_utils, `get_hf_quantizer` of quantizers, and `convert` of integrations/torchao. Folders that
# were converted for transformers.js have a key with that name.
_COMMON_KEYS = frozenset(
    [
        "attn_implementation",
        "auto_map",
        "bos_token_id",
        "custom_pipelines",
        "eos_token_id",
        "experts_implementation",
        "fusion_config",
        "gradient_checkpointing",
        "model_type",
        "name_or_path",
        "num_labels",
        "output_attentions",
        "pad_token_id",
        "per_layer_config",
        "quantization_config",
        "tie_word_embeddings",
        "torch_dtype",
        "transformers.js_config",
        "transformers_weights",
        "use_cache",
    ]
)
# Keys that describe the files of a folder, and do not apply to a tower that was taken from it.
_OF_A_FOLDER = frozenset(["quantization_config", "transformers.js_config", "transformers_weights"])

# How the names of modules begin that transformers reads from a folder, where the package is not installed.
_MODULES_OF_FOLDERS = "transformers_modules."


class StrictConfig(PreTrainedConfig):
    """Base class of the configurations, in which an unknown key raises a `ValueError`, also inside of a tower's
    configuration."""

    def __post_init__(self, **kwargs: object) -> None:
        _refuse_unknown_keys(type(self), kwargs)
        if not type(self).__module__.startswith(_MODULES_OF_FOLDERS):
            # The package has registered its pipelines itself; for those of a folder, transformers would ask for
            # `trust_remote_code`.
            kwargs.pop("custom_pipelines", None)
        for name, spec in self.sub_configs_defaults.items():
            given = getattr(self, name)
            if isinstance(given, PreTrainedConfig):
                setattr(self, name, _without_unread_keys(given))
            elif isinstance(given, dict):
                model_type = given.get("model_type", spec.model_type)
                if model_type not in CONFIG_MAPPING:
                    raise ValueError(f"{name}: transformers has no model type {model_type!r}")
                _refuse_unknown_keys(CONFIG_MAPPING[model_type], given, where=f"{name}.")
        super().__post_init__(**kwargs)


def _refuse_unknown_keys(config_class: type[PreTrainedConfig], given: dict[str, object], where: str = "") -> None:
    known = _known_keys(config_class, with_defaults=bool(where))
    for key in given:
        if key not in known and not key.startswith("_"):
            hint = did_you_mean(key, known, prefix=where)
            raise ValueError(f"{config_class.__name__} has no key {where + key!r}{hint}")


def _without_unread_keys(tower: PreTrainedConfig) -> PreTrainedConfig:
    """Returns a copy of a tower's configuration with only the keys that its class knows.

    Published checkpoints carry keys that nothing reads any more. Saved inside of our configuration, they would be
    refused when it is loaded again. They also carry keys about their own folder: a model that is built from the
    configuration of a quantized tower is not quantized itself. Of a folder of this machine, its name alone is kept.
    """
    tower = copy.deepcopy(tower)
    if tower.name_or_path and os.path.exists(tower.name_or_path):
        tower.name_or_path = os.path.basename(os.path.realpath(tower.name_or_path))
    for key in set(vars(tower)) - (_known_keys(type(tower), with_defaults=True) - _OF_A_FOLDER):
        if not key.startswith("_"):
            delattr(tower, key)
    return tower


def _known_keys(config_class: type[PreTrainedConfig], with_defaults: bool) -> set[str]:
    known = {field.name for field in dataclasses.fields(config_class)} | set(config_class.attribute_map) | _COMMON_KEYS
    if not with_defaults:
        return known
    # It follows from the towers of a dual encoder, but its file may state it too.
    return (
        known
        | set(config_class().to_dict())
        | ({"projection_dim"} if hasattr(config_class, "projection_dim") else set())
    )


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
