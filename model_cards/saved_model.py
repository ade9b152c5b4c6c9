"""What a card says of a model's parts, from the files in its folder: which towers it has, how they are pooled and
projected, how texts and images are read. What the files do not say, a card does not say either."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

_IMAGE_TOWERS = {"align_vision_model": "An EfficientNet", "efficientnet": "An EfficientNet"}
_TEXT_TOWERS = {"bert": "a BERT"}
_TEXT_POOLINGS = {
    "cls": "the state at its first token",
    "mean": "the mean of the states of its tokens",
    "eos": "the state at its last token",
    "pooler": "the encoder's own pooled state",
}
_IMAGE_POOLINGS = {
    "cls": "the state at its first position",
    "mean": "the mean over all positions",
    "pooler": "the backbone's own pooled state, or the mean over all positions if it has none",
}
# The settings of the losses in the papers, and what they are called (MURAL: section 3.1; ETCL: sections 3.2 and 3.3).
_PUBLISHED: dict[str, dict[str, Any]] = {
    "mural": {"text_text_temperature": 0.01, "text_text_margin": 0.3, "label_smoothing": 0.0},
    "etcl": {"text_text_temperature": None, "text_text_margin": 0.3, "label_smoothing": 0.1},
}
_SETTINGS = {
    "text_text_temperature": "the cosines of translations are divided by {}",
    "text_text_margin": "the margin of translations is {}",
    "label_smoothing": "label smoothing is {}",
}
_LEARNED = "the learned temperature"
# EfficientNet's pooling.
_MEAN_OF_MAP = "the mean over its last feature map"


@dataclass(frozen=True)
class SavedModel:
    """The settings of a model that was saved.

    Args:
        config: `config.json`.
        processor: `processor_config.json`, which has the settings of the image processor too.
        tokenizer: `tokenizer.json`'s kind of vocabulary and its size; empty for a method of words.
    """

    config: Mapping[str, Any]
    processor: Mapping[str, Any]
    tokenizer: Mapping[str, Any]

    @classmethod
    def from_folder(cls, folder: str | Path) -> Self | None:
        """Reads the settings of the model in a folder; None if there is no model."""
        config = _read(Path(folder, "config.json"))
        if not config:
            return None
        vocabulary = _read(Path(folder, "tokenizer.json")).get("model") or {}
        words = vocabulary.get("vocab") or ()
        tokenizer = {"kind": vocabulary.get("type"), "size": len(words)} if words else {}
        return cls(config, _read(Path(folder, "processor_config.json")), tokenizer)

    @property
    def towers(self) -> str:
        """The sentences about the two towers of MURAL and ETCL."""
        config = self.config
        of_images, of_texts = config["vision_config"]["model_type"], config["text_config"]["model_type"]
        image = _IMAGE_TOWERS.get(of_images, f"A vision backbone of the type `{of_images}`")
        text = _TEXT_TOWERS.get(of_texts, f"a text encoder of the type `{of_texts}`")
        pooled = _IMAGE_POOLINGS[config.get("image_pooling", "pooler")]
        if of_images in _IMAGE_TOWERS and config.get("image_pooling", "pooler") == "pooler":
            pooled = _MEAN_OF_MAP
        width = f"{config['projection_dim']} dimensions"
        images = f"Images are projected to {width} by a linear layer." if config.get("image_head") else _NOT_PROJECTED
        hidden = config.get("text_hidden_size")
        layers = f"a hidden layer of {hidden} and a linear layer" if hidden else "a linear layer"
        normalized = "normalized and then " if config.get("text_layer_norm") else ""
        sentences = [
            f"Two towers. {image} embeds an image as {pooled}; {text}{self._vocabulary} embeds a text as "
            f"{_TEXT_POOLINGS[config['text_pooling']]}, {normalized}projected to {width} by {layers}.",
            images,
        ]
        if config.get("text_prompt"):
            sentences.append(f"Every text is read after `{config['text_prompt']}`.")
        if frozen := [f"the {tower} tower" for tower in config.get("freeze") or ()]:
            sentences.append(f"Frozen in training: {' and '.join(frozen)}.")
        return " ".join(sentences)

    @property
    def departures(self) -> str:
        """What of the losses and heads of MURAL or ETCL is not as their papers have it, as a sentence; empty where all
        is, and without translations."""
        config = self.config
        published = _PUBLISHED.get(config.get("model_type", ""), {})
        if "text_text" not in config.get("tasks", ["text_text"]):
            return ""
        found = []
        for name, paper in published.items():
            if (here := config.get(name, paper)) != paper:
                values = (_LEARNED if value is None else f"{value:g}" for value in (here, paper))
                found.append(f"{_SETTINGS[name].format(next(values))}, there {next(values)}")
        if config.get("shared_text_head"):
            found.append("both tasks have one text head, there one each")
        if config.get("text_hidden_size") or config.get("text_layer_norm"):
            found.append("the text head is more than a linear layer")
        if config.get("image_head"):
            found.append("images are projected, too")
        if config.get("freeze"):
            found.append("towers are pretrained and frozen, there both are trained")
        return f"Made after the paper, not as in it: {'; '.join(found)}." if found else ""

    @property
    def _vocabulary(self) -> str:
        if not self.tokenizer:
            return ""
        kind = {"WordPiece": "WordPiece pieces", "BPE": "BPE pieces", "Unigram": "Unigram pieces"}
        return f" with a vocabulary of {self.tokenizer['size']:,} {kind.get(self.tokenizer['kind'], 'entries')}"

    @property
    def reading(self) -> str:
        """How texts are cut and images resized, as a sentence; empty where the files do not say."""
        said = []
        if length := self.processor.get("max_text_length"):
            said.append(f"Texts are cut at {length} tokens")
        images = self.processor.get("image_processor") or {}
        size = images.get("size") or {}
        if images.get("do_resize") and "height" in size:
            kept = "without keeping their proportions"
            said.append(f"images are resized to {size['height']} × {size['width']} pixels {kept}")
        elif images.get("do_resize") and "shortest_edge" in size:
            said.append(f"the shorter side of an image is resized to {size['shortest_edge']} pixels")
        if images.get("do_center_crop") and images.get("crop_size"):
            crop = images["crop_size"]
            said.append(f"the centre of {crop.get('height')} × {crop.get('width')} pixels is read")
        return f"{'; '.join(said)}." if said else ""


_NOT_PROJECTED = "Images are not projected."


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
