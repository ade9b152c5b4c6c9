"""The architectures of open_clip: their names and settings, from its version 3.3 (`open_clip.json`), and which of them
transformers has classes for."""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import ModelFolderError, ModelKindError, did_you_mean

_TABLE = Path(__file__).with_name("open_clip.json")
# Settings of an image tower that change nothing here: sizes, which the weights show, and what only training reads.
_IMAGE_SETTINGS = {
    *("layers", "width", "head_width", "mlp_ratio", "patch_size", "image_size", "ls_init_value", "patch_dropout"),
    *("output_tokens", "timm_model_name", "timm_model_pretrained", "timm_pool", "timm_proj", "timm_proj_bias"),
    *("timm_drop", "timm_drop_path"),
}
_TEXT_SETTINGS = {
    *("context_length", "vocab_size", "hf_tokenizer_name", "tokenizer_kwargs", "width", "heads", "layers"),
    *("mlp_ratio", "ls_init_value", "pad_id", "eos_id", "no_causal_mask", "pool_type", "proj_bias", "proj_type"),
    *("output_tokens", "act_kwargs", "norm_kwargs", "hf_model_name", "hf_model_pretrained", "hf_proj_type"),
    "hf_pooler_type",
}
# timm's image towers that transformers has, too.
SIGLIP_TOWER = re.compile(r"vit_(base|large|so400m|giantopt)_patch\d+_siglip_\d+")
CONVNEXT_TOWER = re.compile(r"convnext_(tiny|small|base|large|xlarge)")
# How open_clip pools the texts of an encoder of transformers, and how `TwoTowerConfig` calls it.
POOLERS = {
    "mean_pooler": "mean",
    "cls_pooler": "pooler",
    "cls_last_hidden_state_pooler": "cls",
}


@dataclass
class OpenClipSettings:
    """An architecture of open_clip.

    Attributes:
        name: how errors call it.
        model: what open_clip's `model_configs/*.json` hold: `embed_dim`, `vision_cfg`, `text_cfg`, ….
        preprocessing: `preprocess_cfg` of an `open_clip_config.json`: `mean`, `std`, `interpolation`, `resize_mode`.
    """

    name: str
    model: dict[str, Any]
    preprocessing: dict[str, Any] = field(default_factory=dict)

    @property
    def image(self) -> dict[str, Any]:
        """The settings of the image tower."""
        return self.model["vision_cfg"]

    @property
    def text(self) -> dict[str, Any]:
        """The settings of the text tower."""
        return self.model["text_cfg"]


def open_clip_settings(architecture: str | Path) -> OpenClipSettings:
    """Returns the settings of an architecture, by its name or from a file.

    Args:
        architecture: a name such as `ViT-B-16-SigLIP2`; or a JSON file, of open_clip's `model_configs`, or the
            `open_clip_config.json` of a repository, which knows how its images are prepared.

    Raises:
        ModelFolderError: for a file that is no such JSON.
        ModelKindError: for a name that open_clip does not have, or an architecture that transformers has no classes
            for, with the reason.

    Examples:
        >>> open_clip_settings("ViT-B-32").model["embed_dim"]
        512
    """
    path = Path(architecture)
    if path.suffix == ".json":
        return _settings_of_file(path)
    table = json.loads(_TABLE.read_text("utf-8"))
    name = str(architecture)
    if name in table["architectures"]:
        return OpenClipSettings(name, table["architectures"][name])
    refused = {each: reason for reason, names in table["refused"].items() for each in names}
    if name in refused:
        raise _refusal(name, refused[name])
    known = [*table["architectures"], *refused]
    raise ModelKindError(
        f"open_clip 3.3 has no architecture {name!r}{did_you_mean(name, known)}: give one of its names, or a JSON "
        "file with the settings of another"
    )


def _settings_of_file(path: Path) -> OpenClipSettings:
    try:
        held = json.loads(path.read_text("utf-8"))
        settings = OpenClipSettings(path.name, held.get("model_cfg", held), held.get("preprocess_cfg", {}))
        given = all(isinstance(each, dict) for each in (settings.image, settings.text, settings.preprocessing))
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise ModelFolderError(f"{path} is no JSON file with vision_cfg and text_cfg: {error}") from error
    if not given:
        raise ModelFolderError(f"{path}: vision_cfg, text_cfg and preprocess_cfg must be dictionaries")
    length = settings.text.get("context_length", 1)
    if not isinstance(length, int) or length < 1:
        raise ModelFolderError(f"{path}: context_length is {length!r}, and no number of tokens")
    for key in ("mean", "std"):
        values = settings.preprocessing.get(key) or 1
        if not all(isinstance(each, int | float) for each in (values if isinstance(values, list) else [values])):
            raise ModelFolderError(f"{path}: {key} of images is {values!r}, and no number or list of them")
    return settings


def check_open_clip(settings: OpenClipSettings) -> None:
    """Checks that an architecture can be converted.

    Raises:
        ModelKindError: if not, with the reason.
    """
    image, text, name = settings.image, settings.text, settings.name
    if "multimodal_cfg" in settings.model:
        raise _refusal(name, "a CoCa has a decoder of captions, for which transformers has no class")
    for part, given, known in (("vision_cfg", image, _IMAGE_SETTINGS), ("text_cfg", text, _TEXT_SETTINGS)):
        defaults = ("learnable", "tok", "default", None, False)
        if others := [key for key, value in given.items() if key not in known and value not in defaults]:
            raise _refusal(name, f"transformers has no tower with {part}.{others[0]}={given[others[0]]!r}")
    timm = image.get("timm_model_name")
    if timm and not SIGLIP_TOWER.fullmatch(timm) and not CONVNEXT_TOWER.fullmatch(timm):
        raise _refusal(name, f"its image tower is timm's {timm}, for which transformers has no class")
    wanted = {"timm_proj": "linear"} if timm and CONVNEXT_TOWER.fullmatch(timm) else {"timm_proj": "none"}
    if timm and (image.get("timm_proj") != wanted["timm_proj"] or image.get("timm_proj_bias")):
        raise _refusal(name, f"its image tower ends in timm_proj={image.get('timm_proj')!r}")
    if text.get("hf_model_name"):
        pooler, projection = text.get("hf_pooler_type") or "mean_pooler", text.get("hf_proj_type", "mlp")
        if pooler not in POOLERS or projection not in ("linear", "mlp"):
            raise _refusal(name, f"it has no text head of {pooler!r} and {projection!r}")
        return
    pooling, is_causal = text.get("pool_type", "argmax"), not text.get("no_causal_mask")
    if is_causal and pooling in ("argmax", "eos") and not text.get("proj_bias"):
        return
    if is_causal or pooling != "last" or not (timm and SIGLIP_TOWER.fullmatch(timm)):
        seen = "sees the text before it" if is_causal else "sees the whole text"
        raise _refusal(name, f"transformers has no text tower where a token {seen} and pool_type is {pooling!r}")


def _refusal(name: str, reason: str) -> ModelKindError:
    return ModelKindError(f"{name} cannot be converted: {reason}")
