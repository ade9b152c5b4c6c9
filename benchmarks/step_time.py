"""Step time of `MuralTrainer` beside a plain PyTorch loop of the same model, batch and optimiser.

    python benchmarks/step_time.py --batch-size 192 --steps 40

Both train a copy of `mural-tiny` on image-text and text-text batches of synthetic images and captions, alternately,
step by step in one process. Printed are medians of the ratio trainer / plain loop over neighboring steps, with
quartiles, in wall-clock and in processor time: once from PNGs and strings, and once with ready-made batches, where
both see the same batches and end at the same loss, but for rounding.
"""

import io
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
import torch
import transformers
import typer
from datasets import Dataset, Features, Image, List, Value
from PIL import Image as Pillow
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerFast, TrainerCallback

from babelens import ContrastiveTrainingArguments, MuralModel, MuralProcessor, MuralTrainer, load_preset
from babelens.data import image_text_pairs, translation_pairs
from babelens.modeling.losses import symmetric_contrastive_loss
from babelens.processing.image_processing_mural import MuralImageProcessor
from babelens.processing.tokenizer_training import train_wordpiece
from babelens.trainers.optimizers import Lamb

CONCEPTS, SIZE, CROP = 512, 72, 64
LANGUAGES = ("en", "de", "fr", "ja")
TEXT_TEXT_WEIGHT = 0.1
LEARNING_RATE = 1e-3
WARM_UP_STEPS = 5

Batch = dict[str, Tensor]


# ---- Data ----


@dataclass
class Material:
    """The same images and captions for both sides, with the tokenizer trained on them."""

    pngs: list[bytes]
    captions: list[dict[str, str]]  # by language

    @classmethod
    def draw(cls, rng: np.random.Generator) -> "Material":
        """Coarse random mosaics and captions of two to six made-up words."""
        words = {language: [f"{language}{number:03}" for number in range(300)] for language in LANGUAGES}
        pngs, captions = [], []
        for _ in range(CONCEPTS):
            mosaic = Pillow.fromarray(rng.integers(0, 256, (6, 6, 3), dtype=np.uint8))
            file = io.BytesIO()
            mosaic.resize((SIZE, SIZE), Pillow.Resampling.NEAREST).save(file, "PNG")
            pngs.append(file.getvalue())
            captions.append({tag: " ".join(rng.choice(words[tag], rng.integers(2, 7))) for tag in LANGUAGES})
        return cls(pngs, captions)

    def corpus(self) -> Dataset:
        """As babelens holds them."""
        features = Features(
            image=Image(),
            image_id=Value("string"),
            captions=List({"language": Value("string"), "text": Value("string")}),
        )
        columns = {
            "image": [{"bytes": png} for png in self.pngs],
            "image_id": [str(number) for number in range(CONCEPTS)],
            "captions": [[{"language": tag, "text": text} for tag, text in each.items()] for each in self.captions],
        }
        return Dataset.from_dict(columns, features=features)

    def tokenizer(self) -> PreTrainedTokenizerFast:
        return train_wordpiece([text for each in self.captions for text in each.values()], 4000)


def plain_batches(
    material: Material, tokenizer: Any, size: int, rng: np.random.Generator
) -> Iterator[dict[str, Batch]]:
    """What one would write by hand: shuffle, decode, crop, mirror, tokenize, number the concepts and texts."""
    numbers: dict[str, int] = {}
    for text in (text for each in material.captions for text in each.values()):
        numbers.setdefault(text, len(numbers))
    captioned = [(row, tag) for row in range(CONCEPTS) for tag in LANGUAGES]
    translated = [(row, a, b) for row in range(CONCEPTS) for a in LANGUAGES for b in LANGUAGES if a < b]

    def image(png: bytes) -> np.ndarray:
        pixels = np.asarray(Pillow.open(io.BytesIO(png)).convert("RGB"))
        top, left = rng.integers(SIZE - CROP + 1, size=2)
        pixels = pixels[top : top + CROP, left : left + CROP]
        return pixels[:, ::-1] if rng.random() < 0.5 else pixels

    def tokens(texts: list[str]) -> Batch:
        return tokenizer(texts, padding=True, truncation=True, max_length=64, return_tensors="pt")

    while True:
        chosen = [captioned[k] for k in rng.choice(len(captioned), size, replace=False)]
        texts = [material.captions[row][tag] for row, tag in chosen]
        pixels = torch.from_numpy(np.stack([image(material.pngs[row]) for row, _ in chosen]))
        image_text = {
            **tokens(texts),
            "pixel_values": pixels.permute(0, 3, 1, 2).float().div_(127.5).sub_(1),
            "positives": torch.tensor([[row for row, _ in chosen], [numbers[text] for text in texts]]),
        }
        pairs = [translated[k] for k in rng.choice(len(translated), size, replace=False)]
        left, right = ([material.captions[pair[0]][pair[side]] for pair in pairs] for side in (1, 2))
        text_text = {
            **tokens(left),
            **{f"paired_{name}": value for name, value in tokens(right).items()},
            "positives": torch.tensor(
                [[row for row, *_ in pairs], *([numbers[t] for t in side] for side in (left, right))]
            ),
        }
        yield {"image_text": image_text, "text_text": text_text}


# ---- The two sides ----


class PlainLoop:
    """The hand-written side: no trainer, no accelerate, no callbacks."""

    def __init__(self, model: MuralModel, batches: Iterator[dict[str, Batch]], optim: str, bf16: bool) -> None:
        self.model, self.batches, self.bf16 = model.train(), batches, bf16
        make = Lamb if optim == "lamb" else torch.optim.AdamW
        self.optimizer = make(model.parameters(), lr=LEARNING_RATE, eps=1e-8, weight_decay=0.0)

    def step(self) -> None:
        batch = next(self.batches)
        images, pairs = batch["image_text"], batch["text_text"]
        texts = self.model.get_text_features
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
            image = self.model.get_image_features(images["pixel_values"]).pooler_output
            text = texts(images["input_ids"], images["attention_mask"]).pooler_output
            left = texts(pairs["input_ids"], pairs["attention_mask"], "text_text").pooler_output
            right = texts(pairs["paired_input_ids"], pairs["paired_attention_mask"], "text_text").pooler_output
        loss = symmetric_contrastive_loss(image, text, self.model.temperature, positives=images["positives"])
        loss = loss + TEXT_TEXT_WEIGHT * symmetric_contrastive_loss(
            left, right, temperature=0.01, margin=0.3, positives=pairs["positives"]
        )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()


@dataclass
class TakeTurns(TrainerCallback):
    """Times the trainer from the end of one step to the end of the next, and a step of the plain loop in between."""

    plain_step: Callable[[], None]
    times: list[np.ndarray] = field(
        default_factory=list
    )  # of each pair of steps: [trainer, plain] x [wall, processor]

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.mark = _now()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        between = _now()
        self.plain_step()
        end = _now()
        self.times.append(np.stack([between - self.mark, end - between]))
        self.mark = _now()


def _now() -> np.ndarray:
    return np.array([time.perf_counter(), time.process_time()])


class ReadyMadeTrainer(MuralTrainer):
    """Trains on batches made beforehand."""

    ready: list[dict[str, Batch]]

    def get_train_dataloader(self) -> DataLoader:
        return DataLoader(self.ready, batch_size=None, collate_fn=_copied)


def _copied(batch: dict[str, Batch]) -> dict[str, Batch]:
    return {task: dict(inputs) for task, inputs in batch.items()}  # a step takes its batch apart


# ---- The comparison ----


def compare(
    batch_size: Annotated[int, typer.Option(help="Examples of each task in a batch.")] = 192,
    steps: Annotated[int, typer.Option(help="Number of timed steps of each side.")] = 40,
    threads: Annotated[int, typer.Option(help="Threads of PyTorch; one is steadiest on a shared machine.")] = 1,
    optim: Annotated[
        Literal["adamw_torch", "lamb"], typer.Option(help="The optimizer of both sides.")
    ] = "adamw_torch",
    bf16: Annotated[bool, typer.Option(help="Encode in bfloat16.")] = False,
) -> None:
    """Print how much slower a step of MuralTrainer is than a hand-written one."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    material = Material.draw(rng)
    tokenizer = material.tokenizer()
    processor = MuralProcessor(
        MuralImageProcessor(size={"height": SIZE, "width": SIZE}, crop_size={"height": CROP, "width": CROP}), tokenizer
    )
    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}  # both sides compute the same
    start = MuralModel(load_preset("mural-tiny", text_config=no_dropout))
    corpus = material.corpus()
    pairs = [(a, b) for a in LANGUAGES for b in LANGUAGES if a < b]
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, Python {platform.python_version()}")
    dtype = "bf16" if bf16 else "float32"
    print(f"mural-tiny, {batch_size} + {batch_size} examples, {optim}, {dtype}, {threads} threads")

    for from_files in (True, False):
        batches = plain_batches(material, tokenizer, batch_size, rng)
        ready = [next(batches) for _ in range(8)]
        ready_made = (ready[k % len(ready)] for k in range(10**9))
        plain = PlainLoop(deepcopy(start), batches if from_files else ready_made, optim, bf16)
        turns = TakeTurns(plain.step)
        with tempfile.TemporaryDirectory() as folder:
            arguments = ContrastiveTrainingArguments(
                output_dir=folder,
                per_device_train_batch_size=batch_size,
                max_steps=steps + WARM_UP_STEPS,
                optim=optim,
                learning_rate=LEARNING_RATE,
                lr_scheduler_type="constant",
                adam_epsilon=1e-8,
                task_weights={"text_text": TEXT_TEXT_WEIGHT},
                bf16=bf16,
                use_cpu=True,
                disable_tqdm=True,
                logging_steps=50,
                report_to="none",
                save_strategy="no",
            )
            trainer = (MuralTrainer if from_files else ReadyMadeTrainer)(
                deepcopy(start),
                arguments,
                processing_class=processor,
                train_dataset={"image_text": image_text_pairs(corpus), "text_text": translation_pairs(corpus, pairs)},
                callbacks=[turns],
            )
            trainer.ready = ready * (steps + WARM_UP_STEPS)
            trainer.train()
        _print_ratios("from PNGs and strings" if from_files else "ready-made batches", turns.times[WARM_UP_STEPS:])
        if not from_files:
            losses = [_loss(model, ready[0]["image_text"]) for model in (start, trainer.model, plain.model)]
            print(
                "loss of a batch: {:.3f} at the start, {:.3f} by the trainer, {:.3f} by the plain loop".format(*losses)
            )


@torch.no_grad()
def _loss(model: MuralModel, batch: Batch) -> float:
    batch = {name: value for name, value in batch.items() if name != "positives"}
    return model(**batch, return_loss=True).loss.item()


def _print_ratios(title: str, times: list[np.ndarray]) -> None:
    for clock, (trainer, plain) in zip(("wall", "processor"), np.stack(times, axis=-1).swapaxes(0, 1), strict=True):
        low, middle, high = np.percentile(trainer / plain, [25, 50, 75])
        milliseconds = f"{1000 * np.median(trainer):.0f} ms / {1000 * np.median(plain):.0f} ms"
        print(f"{title:>22}, {clock:>9} time: {middle:.3f} (quartiles {low:.3f}-{high:.3f}); medians {milliseconds}")


if __name__ == "__main__":
    typer.run(compare)
