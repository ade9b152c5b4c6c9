"""Gradient caching: a step compared with sentence-transformers' cached trainer, and one step with a huge batch.

    pip install --no-deps -r benchmarks/requirements.txt
    python benchmarks/gradient_caching.py compare
    python benchmarks/gradient_caching.py large

`compare` runs, by turns, steps of two copies of the same towers on the same batch: babelens' trainer with
`embed_chunk_size`, and sentence-transformers' with `CachedMultipleNegativesRankingLoss`. `large` makes one step with
LAMB. The image tower is a small ViT: a batch-norm tower would normalise each chunk by itself, so gradients would
differ.
"""

import tempfile
import time
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from importlib import import_module
from typing import Annotated, Any

import numpy as np
import torch
import typer
from loss import resident_peak
from torch import Tensor, nn
from transformers import PreTrainedModel, PrinterCallback
from turns import by_turns, quartiles, versions

from babelens import load_preset
from babelens.registry import METHODS
from babelens.trainers.contrastive import ContrastiveTrainer

TEXT_TEXT, IMAGE_TEXT = "text_text", "image_text"
SMALL_VIT = {"model_type": "clip_vision_model", "hidden_size": 128, "intermediate_size": 256, "patch_size": 8}
SMALL_VIT |= {"num_hidden_layers": 2, "num_attention_heads": 4}

Batch = dict[str, Tensor]
Step = Callable[[], object]

app = typer.Typer(pretty_exceptions_enable=False)


# ---- Towers and batches ----


def make_model(preset: str, image_size: int) -> PreTrainedModel:
    torch.manual_seed(0)
    config = load_preset(preset, vision_config={**SMALL_VIT, "image_size": image_size})
    return METHODS[config.model_type].model(config).train()


def make_batch(model: PreTrainedModel, task: str, size: int, image_size: int) -> Batch:
    """What a collator makes of `size` examples: noise, and texts with as many tokens as captions on the web:
    log-normal, of median 12, between 4 and 40. Only image-text has no translations; only text-text has no images."""
    generator = torch.Generator().manual_seed(1)

    def texts() -> tuple[Tensor, Tensor]:
        lengths = (12 * (0.4 * torch.randn(size, 1, generator=generator)).exp()).long().clamp(4, 40)
        longest = int(lengths.max())
        ids = torch.randint(5, model.config.text_config.vocab_size, (size, longest), generator=generator)
        mask = torch.arange(longest) < lengths
        return ids.masked_fill(~mask, 0), mask.long()

    batch = {"positives": torch.arange(size)[None]}
    batch["input_ids"], batch["attention_mask"] = texts()
    if task != IMAGE_TEXT:
        batch["paired_input_ids"], batch["paired_attention_mask"] = texts()
    if task != TEXT_TEXT:
        batch["pixel_values"] = torch.randn(size, 3, image_size, image_size, generator=generator)
    return batch


def make_trainer(model: PreTrainedModel, folder: str, batch: dict[str, Batch], **settings: Any) -> ContrastiveTrainer:
    module, name = METHODS[model.config.model_type].trainer.split(":")
    made: type[ContrastiveTrainer] = getattr(import_module(module), name)

    class OneBatch(made):  # type: ignore[misc, valid-type]
        def get_train_dataloader(self) -> Any:
            return [{task: dict(inputs) for task, inputs in batch.items()}]

    options = {"use_cpu": True, "precision": "float32", "report_to": "none", "save_strategy": "no", **settings}
    arguments = made.arguments_class(output_dir=folder, **options)
    # Nothing is read or saved: the batch is in memory.
    trainer = OneBatch(model, arguments, processing_class=object())
    trainer.remove_callback(PrinterCallback)
    return trainer


# ---- The comparison ----


def our_step(model: PreTrainedModel, batch: Batch, folder: str, **settings: Any) -> Step:
    trainer = make_trainer(model, folder, {}, **settings)
    trainer.current_gradient_accumulation_steps = 1  # `train` would set it
    # The layout of its collator's images, and of its weights.
    batch = batch | {"pixel_values": batch["pixel_values"].contiguous(memory_format=torch.channels_last)}
    return lambda: trainer.training_step(model, {IMAGE_TEXT: dict(batch)})


def cached_step(model: PreTrainedModel, batch: Batch, chunk: int, folder: str, **settings: Any) -> Step:
    """The same step in sentence-transformers, on the CPU unless `settings` of its arguments say otherwise."""
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss

    wrapped = SentenceTransformer(modules=[Towers(model)], device=str(model.device))
    loss = CachedMultipleNegativesRankingLoss(
        wrapped,
        scale=1 / model.config.temperature_init_value,
        mini_batch_size=chunk,
        directions=("query_to_doc", "doc_to_query"),
        partition_mode="per_direction",
    )
    options = {"use_cpu": True, "report_to": "none", "save_strategy": "no", **settings}
    arguments = SentenceTransformerTrainingArguments(folder, **options)
    trainer = SentenceTransformerTrainer(wrapped, arguments, loss=loss)
    trainer.current_gradient_accumulation_steps = 1
    columns = {"image_pixel_values": batch["pixel_values"], "text_input_ids": batch["input_ids"]}
    columns |= {"text_attention_mask": batch["attention_mask"]}
    return lambda: trainer.training_step(wrapped, dict(columns))


class Towers(nn.Module):
    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, features: Batch) -> Batch:
        if "pixel_values" in features:
            output = self.model.get_image_features(features["pixel_values"])
        else:
            output = self.model.get_text_features(features["input_ids"], features["attention_mask"])
        return {**features, "sentence_embedding": output.pooler_output}


@app.command()
def compare(
    preset: Annotated[str, typer.Option(help="Preset of the text tower, heads and objective.")] = "mural-tiny",
    batch_size: Annotated[int, typer.Option(help="Number of image-text pairs in a batch.")] = 512,
    chunk: Annotated[int, typer.Option(help="Number of examples that both sides embed at a time.")] = 32,
    image_size: Annotated[int, typer.Option(help="Width and height of images in pixels.")] = 64,
    rounds: Annotated[int, typer.Option(help="Number of rounds; each times both sides once.")] = 15,
    threads: Annotated[int, typer.Option(help="Number of processor threads.")] = 1,
) -> None:
    """Time of babelens' step by sentence-transformers', and how far gradients in chunks are from the whole batch's."""
    torch.set_num_threads(threads)
    print(f"{versions('sentence-transformers')}, {threads} threads")
    print(f"{preset} with a small ViT, batch {batch_size} in chunks of {chunk}, images of {image_size} pixels")
    models = {name: make_model(preset, image_size) for name in ("whole batch", "babelens", "sentence-transformers")}
    batch = make_batch(models["babelens"], IMAGE_TEXT, batch_size, image_size)
    with tempfile.TemporaryDirectory() as folder:
        steps = {
            "whole batch": our_step(models["whole batch"], batch, folder),
            "babelens": our_step(models["babelens"], batch, folder, embed_chunk_size=chunk),
            "sentence-transformers": cached_step(models["sentence-transformers"], batch, chunk, folder),
        }
    for step in steps.values():
        step()
    whole = _gradients(models["whole batch"])
    for name, factor in (("babelens", 1), ("sentence-transformers", 2)):  # a sum and a mean of both directions
        found = _gradients(models[name])
        apart = [(factor * found[key] - value).norm() / value.norm() for key, value in whole.items() if key in found]
        print(f"gradients of {name} differ from the whole batch's by {max(apart):.1e} (largest, relative)")
    del models["whole batch"]
    optimizers = {name: torch.optim.AdamW(model.parameters(), lr=1e-4) for name, model in models.items()}

    def whole_step(name: str) -> None:
        steps[name]()
        optimizers[name].step()
        optimizers[name].zero_grad()

    times = by_turns({name: partial(whole_step, name) for name in models}, rounds)
    ours, theirs = times["babelens"], times["sentence-transformers"]
    seconds = f"{np.median(ours):.2f} s and {np.median(theirs):.2f} s"
    print(f"a step: {seconds}, ratio (quartiles) {quartiles(ours / theirs, 3)}")


def _gradients(model: nn.Module) -> dict[str, Tensor]:
    """The gradients of weights that matter: a key's bias, for example, has a gradient of zero except for rounding."""
    found = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    largest = max(gradient.norm() for gradient in found.values())
    return {name: gradient for name, gradient in found.items() if gradient.norm() > 1e-4 * largest}


# ---- One large step ----


@app.command()
def large(
    preset: Annotated[str, typer.Option(help="Preset of the text tower, heads and objective.")] = "mural-tiny",
    task: Annotated[
        str, typer.Option(help="Of the method's trainer; its batches hold what the name says.")
    ] = IMAGE_TEXT,
    batch_size: Annotated[int, typer.Option(help="Number of examples in a batch.")] = 32_768,
    chunk: Annotated[int, typer.Option(help="Number of examples that are embedded at a time.")] = 256,
    image_size: Annotated[int, typer.Option(help="Width and height of images in pixels.")] = 32,
    threads: Annotated[int, typer.Option(help="Number of processor threads.")] = 1,
) -> None:
    """One optimisation step of the trainer; prints its time and the peak memory of the whole process."""
    torch.set_num_threads(threads)
    print(f"{versions()}, {threads} threads")
    model = make_model(preset, image_size)
    before = deepcopy(model.state_dict())
    batch = make_batch(model, task, batch_size, image_size)
    sizes = f"{batch_size} examples in chunks of {chunk}, images of {image_size} pixels"
    print(f"{preset} with a small ViT, {task}: {sizes}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        settings = {"embed_chunk_size": chunk, "optim": "lamb", "max_steps": 1, "warmup_steps": 0}
        trainer = make_trainer(model, folder, {task: batch}, **settings, disable_tqdm=True)
        start = time.perf_counter()
        loss = trainer.train().training_loss
    moved = sum(not torch.equal(value, before[name]) for name, value in model.state_dict().items())
    print(f"loss {loss:.4f}, {moved} of {len(before)} tensors moved by {type(trainer.optimizer.optimizer).__name__}")
    print(f"{time.perf_counter() - start:.0f} s, peak resident memory {resident_peak() / 2**30:.2f} GiB")


if __name__ == "__main__":
    app()
