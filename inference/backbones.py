"""Backbones: image encoders that compute features for other models. Any vision model serves."""

from pathlib import Path
from typing import Any

from transformers import AutoModel, PreTrainedModel

from ..configuration.errors import ModelKindError
from ..configuration.pretrained import load_model


def load_backbone(folder_or_repo: str | Path, **loading: Any) -> PreTrainedModel:
    """Loads a vision model: a model of images alone, or the vision tower of a dual encoder or of an MLA model.

    Args:
        folder_or_repo: a folder, or a repository on the Hub.
        loading: what `load_model` takes.

    Raises:
        ModelFolderError: as `load_model`.
        ModelKindError: when the model has no vision tower.
    """
    model: Any = load_model(AutoModel, folder_or_repo, **loading)
    for part in ("native_model", "vision_model"):
        model = getattr(model, part, model)
    if getattr(model, "main_input_name", None) != "pixel_values":
        raise ModelKindError(f"{folder_or_repo} has no vision model")
    return model
