"""Tiny architectures of open_clip, one of each kind that is converted, with weights that any machine draws alike."""

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import M2M100Config, XLMRobertaConfig

from babelens.configuration.open_clip import OpenClipSettings, open_clip_settings

OUTPUTS = Path(__file__).parents[1] / "fixtures" / "open_clip.json"
WORDS, SPACE = 120, 24
_TEXT = {"layers": 1, "width": 32, "heads": 2, "vocab_size": WORDS}
_VIT = {"layers": 2, "width": 128, "head_width": 64, "patch_size": 16, "image_size": 32}
_SIGLIP = {"embed_dim": 48, "depth": 1, "img_size": 32}  # of timm
# By the name of an architecture: changes of the settings of its towers, and of timm's model.
KINDS: dict[str, tuple[dict, dict, dict]] = {
    "ViT-B-32": (_VIT, _TEXT, {}),
    "ViT-M-16-alt": (_VIT, _TEXT, {}),
    "ViT-H-14-worldwide-quickgelu": (_VIT, _TEXT, {}),
    "RN50-quickgelu": ({"layers": [1, 1, 1, 1], "width": 8, "image_size": 32}, _TEXT, {}),
    "ViT-B-16-SigLIP": ({"image_size": 32}, _TEXT, _SIGLIP),
    "ViT-SO400M-16-SigLIP-i18n-256": ({"image_size": 32}, _TEXT | {"width": 48}, _SIGLIP),
    "ViT-B-32-SigLIP2-256": ({"image_size": 64}, _TEXT, _SIGLIP | {"img_size": 64}),
    "xlm-roberta-base-ViT-B-32": (_VIT, {}, {}),
    "nllb-clip-base-siglip": ({"image_size": 32}, {}, _SIGLIP),
    "convnext_tiny": ({"image_size": 32}, _TEXT, {"depths": (1, 1, 1, 1), "dims": (8, 12, 16, 24)}),
}
_ENCODERS = {
    "xlm": XLMRobertaConfig(
        vocab_size=WORDS, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=40
    ),
    "nllb": M2M100Config(
        vocab_size=WORDS,
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=40,
        decoder_ffn_dim=40,
        max_position_embeddings=40,
    ),
}


def tiny_settings(name: str, folder: Path) -> OpenClipSettings:
    """The settings of an architecture with small towers; a text encoder's configuration is written to the folder."""
    image, text, timm = KINDS[name]
    model = copy.deepcopy(open_clip_settings(name).model)
    model["embed_dim"] = 48 if "embed_dim" in timm else SPACE
    model["vision_cfg"].update(image)
    model["text_cfg"].update(text)
    if (encoder := _ENCODERS.get(name.split("-")[0])) is not None:
        encoder.save_pretrained(folder)
        model["text_cfg"].update(hf_model_name=str(folder), hf_model_pretrained=False)
    return OpenClipSettings(name, model)


def drawn_weights(shapes: dict[str, list[int]]) -> dict[str, torch.Tensor]:
    """Weights of these shapes, by NumPy's generator, whose numbers do not change between versions."""
    random = np.random.RandomState(0)
    drawn = {}
    for name, shape in sorted(shapes.items()):
        scale = 2 * np.prod(shape[1:]) ** -0.5 if len(shape) == 4 else 1 / 6  # convolutions keep what they are given
        values = torch.tensor(random.standard_normal(shape) * scale, dtype=torch.float32)
        is_scale = len(shape) == 1 and name.endswith(("weight", "running_var", "gamma"))
        drawn[name] = values.abs() + 0.5 if is_scale else values
        if name == "logit_scale":
            drawn[name] = torch.tensor(3.0)
    return drawn


def drawn_inputs(settings: OpenClipSettings) -> dict[str, torch.Tensor]:
    """Two images and two texts, the first of which ends early."""
    random = np.random.RandomState(1)
    side, text = settings.image["image_size"], settings.text
    pixels = torch.tensor(random.standard_normal((2, 3, side, side)), dtype=torch.float32)
    length = text.get("context_length", 20 if "hf_model_name" in text else 77)
    ids = torch.tensor(random.randint(4, WORDS - 1, (2, length)))
    mask = torch.ones_like(ids)
    if text.get("pool_type") != "last":
        ends_eos = "hf_model_name" in text or text.get("pool_type") == "eos"
        end, pad = (2, 1) if ends_eos else (WORDS - 1, 0)
        ids[0, 6], ids[1, -1] = end, end
        ids[0, 7:], mask[0, 7:] = pad, 0
    return {"pixel_values": pixels, "input_ids": ids, "attention_mask": mask}


@cache
def recorded() -> dict[str, dict[str, Any]]:
    """What open_clip 3.3.0 gave: the shapes of weights, and the embeddings of the inputs, by architecture."""
    return json.loads(OUTPUTS.read_text("utf-8"))


def open_clip_outputs(settings: OpenClipSettings) -> dict[str, Any]:
    """What the installed open_clip gives, in the form of `recorded`."""
    import timm
    from open_clip.model import CLIP, CustomTextCLIP

    given, make = settings.model, timm.create_model
    kept = {name: value for name, value in given.items() if name != "custom_text"}
    whole = CustomTextCLIP if given.get("custom_text") or "hf_model_name" in settings.text else CLIP
    changed = KINDS[settings.name][2]
    timm.create_model = lambda name, **options: make(name, **options, **changed)
    try:
        model = whole(**copy.deepcopy(kept)).eval()
    finally:
        timm.create_model = make
    shapes = {name: list(value.shape) for name, value in model.state_dict().items() if value.is_floating_point()}
    model.load_state_dict(drawn_weights(shapes), strict=False)
    inputs = drawn_inputs(settings)
    with torch.no_grad():
        found = {
            "image": model.encode_image(inputs["pixel_values"], normalize=True),
            "text": model.encode_text(inputs["input_ids"], normalize=True),
        }
    return {"shapes": shapes} | {name: value.tolist() for name, value in found.items()}


if __name__ == "__main__":  # writes the fixture, where open_clip 3.3.0 is installed
    import sys

    made = {}
    for number, name in enumerate(KINDS):
        made[name] = open_clip_outputs(tiny_settings(name, Path(sys.argv[1]) / str(number)))
    OUTPUTS.write_text("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in made.items()) + "\n}\n")
