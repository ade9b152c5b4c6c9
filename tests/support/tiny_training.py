import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from PIL import Image
from transformers import TrainerCallback, set_seed

from babelens import ContrastiveTrainingArguments, MuralConfig, MuralModel, MuralProcessor, MuralTrainer
from babelens.data.batching.views import image_text_pairs, translation_pairs
from babelens.data.corpus.loading import load_captions
from babelens.processing.image_processing_mural import MuralImageProcessor
from babelens.processing.tokenizer_training import train_wordpiece

COLORS = {
    "red": ("rot", "rouge", (220, 30, 30)),
    "green": ("grün", "vert", (30, 180, 30)),
    "blue": ("blau", "bleu", (40, 40, 220)),
    "yellow": ("gelb", "jaune", (230, 220, 40)),
}
SHAPES = {
    "square": ("Quadrat", "carré"),
    "bar": ("Balken", "barre"),
    "column": ("Säule", "colonne"),
    "dot": ("Punkt", "point"),
}
BOXES = {"square": (4, 4, 28, 28), "bar": (2, 12, 30, 20), "column": (12, 2, 20, 30), "dot": (12, 12, 20, 20)}

# Settings of every run.
QUIET: dict[str, Any] = {
    "save_strategy": "no",
    "logging_steps": 1,
    "report_to": "none",
    "disable_tqdm": True,
    "use_cpu": True,
    "precision": "float32",  # the same on every machine
    "seed": 3,
}
# No batch norm: its statistics would depend on how a batch is divided.
VISION = {
    "model_type": "clip_vision_model",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 8,
    "attention_dropout": 0.1,
}
TEXT = {
    "model_type": "bert",
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}


def shapes_corpus() -> Dataset:
    rows = []
    for color, (german, french, rgb) in COLORS.items():
        for shape, (form, forme) in SHAPES.items():
            image = Image.new("RGB", (36, 36), "white")
            image.paste(rgb, BOXES[shape])
            captions = {"en": f"a {color} {shape}", "de": f"{form} in {german}", "fr": f"{forme} {french}"}
            tagged = [{"language": tag, "text": text} for tag, text in captions.items()]
            rows.append({"image": image, "image_id": f"{color}-{shape}", "captions": tagged})
    return load_captions(Dataset.from_list(rows), check_images=False)


def write_shapes(folder: Path, captioned: tuple[str, ...] = ("en", "de", "fr")) -> Path:
    """The shapes as people bring them: a folder of images with metadata, and translations in `pairs.tsv`."""
    rows, table = [], ["en\tde\tfr"]
    for row in shapes_corpus():
        row["image"].save(folder / f"{row['image_id']}.png")
        captions = {caption["language"]: caption["text"] for caption in row["captions"]}
        rows.append({"file_name": f"{row['image_id']}.png", "captions": {tag: captions[tag] for tag in captioned}})
        table.append("\t".join(captions.values()))
    (folder / "metadata.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "pairs.tsv").write_text("\n".join(table))
    return folder


def shapes_captions() -> dict[str, list[str]]:
    texts: dict[str, list[str]] = {}
    for captions in shapes_corpus()["captions"]:
        for caption in captions:
            texts.setdefault(caption["language"], []).append(caption["text"])
    return texts


def shapes_texts() -> list[str]:
    return [caption["text"] for captions in shapes_corpus()["captions"] for caption in captions]


def shapes_processor() -> MuralProcessor:
    sizes = {"size": {"height": 36, "width": 36}, "crop_size": {"height": 32, "width": 32}}
    return MuralProcessor(MuralImageProcessor(**sizes), train_wordpiece(shapes_texts(), 200, min_frequency=1))


def shapes_trainer(
    output: str | Path,
    *,
    vision: dict | None = None,
    text: dict | None = None,
    freeze: tuple[str, ...] = (),
    tasks: tuple[str, ...] = ("image_text", "text_text"),
    dropout: float = 0.1,
    shards: dict[str, int] | None = None,
    cache_dir: str | None = None,
    keys: dict | None = None,
    **changes,
):
    """A trainer on the shapes: English and German have images, French has translations only. `text` and `keys` add to
    the configurations of the text tower and the model; `shards` are the numbers of shards of streams, by task."""
    corpus = shapes_corpus()
    processor = shapes_processor()
    settings = QUIET | {"per_device_train_batch_size": 8, "max_steps": 12, "learning_rate": 1e-3, "optim": "lamb"}
    arguments = ContrastiveTrainingArguments(output_dir=str(output), **settings | changes)
    set_seed(arguments.seed)
    text_config = {
        **TEXT,
        "vocab_size": len(processor.tokenizer),
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
        **(text or {}),
    }
    towers = {"text_config": text_config, "vision_config": vision or VISION, "freeze": freeze}
    model = MuralModel(MuralConfig(**towers, temperature_init_value=0.1, **keys or {}))
    data = {
        task: load_captions(corpus.to_iterable_dataset(num_shards=shards[task]), check_images=False)
        if task in (shards or {})
        else corpus
        for task in tasks
    }
    views = {
        "image_text": lambda corpus: image_text_pairs(corpus, ["en", "de"]),
        "text_text": lambda corpus: translation_pairs(corpus, [("en", "fr"), ("de", "fr")]),
    }
    return MuralTrainer(
        model=model,
        args=arguments,
        processing_class=processor,
        train_dataset={task: views[task](data[task]) for task in tasks},
        eval_dataset=corpus,
        cache_dir=cache_dir,
    )


def prepared(trainer: Any) -> Any:
    if trainer.train_dataset is not None:
        assert trainer.mixture is not None
    return trainer


class DieAt(TrainerCallback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args, state, control, **kwargs) -> None:
        if state.global_step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


class PoisonGradient(TrainerCallback):
    """Makes a number of a gradient NaN, or another value, from one step on; the loss does not change."""

    def __init__(self, step: int, value: float = float("nan"), name: str = "") -> None:
        self.step, self.value, self.name = step, value, name
        self.before: dict[str, np.ndarray] = {}

    def on_step_begin(self, args, state, control, model=None, **kwargs) -> None:
        if state.global_step == self.step - 1 and not self.before:
            self.before = weights(model)
            trained = [
                weight for name, weight in model.named_parameters() if weight.requires_grad and self.name in name
            ]
            trained[0].register_hook(self._poisoned)

    def _poisoned(self, gradient: torch.Tensor) -> torch.Tensor:
        if gradient.is_sparse:
            return gradient * self.value
        gradient = gradient.clone()
        gradient[(0,) * gradient.dim()] = self.value
        return gradient


def weights(model: torch.nn.Module) -> dict[str, np.ndarray]:
    return {name: value.detach().numpy().copy() for name, value in model.state_dict().items()}


def changed(before: Mapping[str, np.ndarray], after: Mapping[str, np.ndarray]) -> set[str]:
    assert before.keys() == after.keys()
    return {name for name in before if not np.array_equal(before[name], after[name])}


def assert_same(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert np.array_equal(found[name], value), name
