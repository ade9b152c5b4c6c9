"""Small versions of RC3's tasks: coloured shapes with true statements, a tiny RC3, and both as files."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import ClassLabel, Dataset, Features, Image, Value

from babelens import Rc3Config, Rc3Model, Rc3Processor
from babelens.processing.processing_rc3 import square_image_processor
from babelens.processing.tokenizer_training import train_bpe
from tests.support.tiny_layers import encoder_decoder
from tests.support.tiny_training import COLORS, QUIET, SHAPES, shapes_corpus, shapes_texts

LANGUAGES = ["en", "de", "fr"]
REGION_SIZE = 6
PATCHES = {"image_size": 32, "patch_size": 16, "patch_width": 32}
SIZES = encoder_decoder(32, ffn=64, max_position_embeddings=64, init_std=0.1, **PATCHES)
SETTINGS = QUIET | {
    "per_device_train_batch_size": 16,
    "learning_rate": 3e-3,
    "lr_scheduler_type": "constant",
    "logging_steps": 10,
}


def tiny_processor() -> Rc3Processor:
    options = {"region_size": REGION_SIZE, "max_regions": 4, "max_text_length": 32}
    return Rc3Processor.new(
        train_bpe(shapes_texts(), 360, min_frequency=1), LANGUAGES, square_image_processor(32), **options
    )


def tiny_config(processor: Rc3Processor, **changes: Any) -> Rc3Config:
    return Rc3Config(**SIZES | processor.config_fields() | changes)


def save_pretrained_rc3(folder: Path, **changes: Any) -> Path:
    processor = tiny_processor()
    torch.manual_seed(0)
    Rc3Model(tiny_config(processor, **changes)).save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def regions_of(corpus: Dataset) -> dict[str, np.ndarray]:
    described = {}
    for image_id in corpus["image_id"]:
        color, shape = image_id.split("-")
        red, green, blue = (channel / 255 for channel in COLORS[color][2])
        place = list(SHAPES).index(shape)
        region = 4 * np.array([red, green, blue, place % 2, place // 2, 1], dtype=np.float32)
        described[image_id] = np.stack([region, region / 2, -region])
    return described


def colour_rows(languages: list[str] = LANGUAGES, answers: list[str] | None = None) -> Dataset:
    corpus, names = shapes_corpus(), list(COLORS)
    rows = []
    for row in corpus:
        captions = {caption["language"]: caption["text"] for caption in row["captions"]}
        color, shape = row["image_id"].split("-")
        other = names[(names.index(color) + 1) % len(names)]
        wrong = next(r for r in corpus.remove_columns("image") if r["image_id"] == f"{other}-{shape}")
        wrong_captions = {caption["language"]: caption["text"] for caption in wrong["captions"]}
        for language in languages:
            about = {"image": row["image"], "image_id": row["image_id"], "language": language}
            if answers is not None:
                rows.append(about | {"text": captions[language].split()[-1], "label": color})
                continue
            rows.append(about | {"text": captions[language], "label": "true"})
            rows.append(about | {"text": wrong_captions[language], "label": "false"})
    return _labelled(rows, answers or ["false", "true"])


def pair_rows(languages: list[str] = LANGUAGES) -> Dataset:
    corpus = list(shapes_corpus())
    rows = []
    for left, right, neither in zip(corpus, corpus[4:] + corpus[:4], corpus[8:] + corpus[:8], strict=True):
        sides = {f"{side}_{name}": row[name] for side, row in (("left", left), ("right", right)) for name in _IMAGE}
        for label, row in (("true", left), ("false", neither)):
            captions = {caption["language"]: caption["text"] for caption in row["captions"]}
            rows += [sides | {"text": captions[tag], "language": tag, "label": label} for tag in languages]
    return _labelled(rows, ["false", "true"])


_IMAGE = ("image", "image_id")


def _labelled(rows: list[dict[str, Any]], answers: list[str]) -> Dataset:
    types = {"text": Value("string"), "language": Value("string"), "label": ClassLabel(names=answers)}
    images = {name: Image() if name.endswith("image") else Value("string") for name in rows[0] if "image" in name}
    return Dataset.from_list(rows, features=Features(images | types))
