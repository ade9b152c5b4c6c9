"""Measures what one machine with CUDA devices reaches, in one run and one table.

    python benchmarks/gpu.py --output gpu.json
    python benchmarks/gpu.py --device cpu --tiny      # the same code in small

The parts, by their names in `--parts`:

- `steps`: training steps of MURAL-base, ALIGN-base and towers of CLIP ViT-B/32's shapes in bfloat16, without and with
`torch.compile`. The share of the device's rate is their operations (torch's `FlopCounterMode`), divided by the time of
a step and by the rate of a large matrix product in the same run.
- `batch`: the largest batch of CLIP's shapes that fits, by doubling, without and with gradient caching.
- `caching`, `loss`: compared with sentence-transformers' cached trainer and open_clip's loss, by turns.
- `encode`: images, with and without decoding JPEGs, and texts that an `Embedder` encodes in a second.
- `mla`: MLA's steps on cached features; `acquire`: a language in closed form for CLIP ViT-L/14's shapes.
- `devices`: the same training step on every device by `torchrun` (NCCL, or gloo on CPUs), compared with one device.
"""

import gc
import io
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from gradient_caching import IMAGE_TEXT, TEXT_TEXT, cached_step, make_batch, make_trainer, our_step
from loss import OPEN_CLIP, OURS, embeddings, make_side
from PIL import Image
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig, BertModel, CLIPImageProcessorPil, TrainerCallback
from turns import by_turns, versions

from babelens import Embedder, MlaConfig, MlaModel, MuralConfig, MuralModel, MuralProcessor, load_preset
from babelens.acquire import Acquisition
from babelens.processing.tokenizer_training import train_wordpiece

# How long the paper trains a language (Zhang et al. 2022, section 4.1): 117,150 steps of 128 translations, then 11,715
# of 128 captioned images.
PAPER_STEPS = {"paired_text_features": 117_150, "image_features": 11_715}
WARM_UP_STEPS = 3  # with compilation and the optimizer's state; not counted
WORDS = ["cat", "dog", "tree", "house", "river", "red", "blue", "old", "small", "runs", "sleeps", "under", "near", "a"]
LARGE_VISION = {"patch_size": 14, "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24}
LARGE_VISION |= {"num_attention_heads": 16}
LARGE_TEXT = {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12, "projection_dim": 768}
SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}

Row = tuple[str, float, str]  # the setting, the value and its unit

app = typer.Typer(pretty_exceptions_enable=False)


@dataclass(frozen=True)
class Sizes:
    """How large the parts are; `tower` changes CLIP ViT-B/32's towers, and `product` is the width of matrices."""

    image: int = 224
    tower: dict[str, int] = field(default_factory=dict)
    presets: tuple[str, ...] = ("mural-base", "align-base")
    batch: int = 512
    chunk: int = 256
    cached_batch: int = 4096
    largest_batch: int = 1 << 15
    steps: int = 20
    product: int = 8192
    pairs: int = 32_768
    images: int = 4096
    texts: int = 16_384
    sentences: int = 1000


TINY = Sizes(32, SMALL, ("mural-tiny", "align-tiny"), 8, 4, 8, 32, 2, 256, 128, 12, 24, 40)


class Machine:
    def __init__(self, device: str, sizes: Sizes) -> None:
        self.device, self.sizes = torch.device(device), sizes
        self.on_gpu = self.device.type == "cuda"

    def name(self) -> str:
        if not self.on_gpu:
            return f"{self.device.type}, {torch.get_num_threads()} threads"
        return f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}, CUDA {torch.version.cuda}"

    def seconds(self, step: Callable[[], object], rounds: int) -> float:
        """The median time of a call, after one that is not counted."""

        def complete() -> None:
            step()
            self.synchronize()

        return float(np.median(by_turns({"": complete}, rounds)[""]))

    def free(self) -> None:
        gc.collect()
        if self.on_gpu:
            torch.cuda.empty_cache()

    def synchronize(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()

    def on_device(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: value.to(self.device) for name, value in batch.items()}

    def settings(self, **others: Any) -> dict[str, Any]:
        return {"use_cpu": not self.on_gpu, "precision": "bfloat16", "disable_tqdm": True, **others}


@dataclass
class Stopwatch(TrainerCallback):
    machine: Machine
    seconds: list[float] = field(default_factory=list)

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.machine.synchronize()
        self.start = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.machine.synchronize()
        self.seconds.append(time.perf_counter() - self.start)


# ---- Models ----


def clip_shapes(sizes: Sizes, large: bool = False) -> Any:
    torch.manual_seed(0)
    vision = {"model_type": "clip_vision_model", "patch_size": 32, "image_size": sizes.image}
    vision |= (LARGE_VISION if large else {}) | sizes.tower
    text = {"model_type": "clip_text_model"} | (LARGE_TEXT if large else {}) | sizes.tower
    return MuralModel(MuralConfig(vision_config=vision, text_config=text, text_pooling="eos", tasks=[IMAGE_TEXT]))


def preset(name: str, sizes: Sizes) -> Any:
    torch.manual_seed(0)
    return MuralModel(load_preset(name))


def processor_of(sizes: Sizes, tokenizer: Any) -> Any:
    size = {"height": sizes.image, "width": sizes.image}
    return MuralProcessor(CLIPImageProcessorPil(size=size, crop_size=size), tokenizer)


def sentences(rng: np.random.Generator, count: int, shortest: int = 4) -> list[str]:
    return [" ".join(rng.choice(WORDS, rng.integers(shortest, 16))) for _ in range(count)]


def batches(machine: Machine, model: Any, size: int) -> dict[str, dict[str, torch.Tensor]]:
    image = getattr(model.config.vision_config, "image_size", machine.sizes.image)
    return {task: machine.on_device(make_batch(model, task, size, image)) for task in model.config.tasks}


def step_seconds(machine: Machine, model: Any, batch: int, steps: int | None = None, **settings: Any) -> float:
    """The median time of a step of `Trainer.train()` on one batch of each task, which is on the device."""
    stopwatch = Stopwatch(machine)
    with tempfile.TemporaryDirectory() as folder:
        options = machine.settings(max_steps=WARM_UP_STEPS + (steps or machine.sizes.steps), **settings)
        trainer = make_trainer(model, folder, batches(machine, model, batch), **options)
        trainer.add_callback(stopwatch)
        trainer.train()
    return float(np.median(stopwatch.seconds[WARM_UP_STEPS:]))


# ---- Parts ----


def steps(machine: Machine) -> Iterator[Row]:
    sizes, size = machine.sizes, machine.sizes.product
    one, other = torch.randn(2, size, size, dtype=torch.bfloat16, device=machine.device)
    rate = 2 * size**3 / machine.seconds(lambda: one @ other, 10)
    yield f"product of {size} x {size} matrices, bfloat16", rate / 1e12, "TFLOP/s"
    models: dict[str, Callable[[Sizes], Any]] = {"CLIP ViT-B/32's shapes": clip_shapes}
    models |= {name: partial(preset, name) for name in sizes.presets}
    for name, make in models.items():
        model = make(sizes).train().to(machine.device)
        with FlopCounterMode(display=False) as counter:
            for task, inputs in batches(machine, model, 8).items():
                texts = model.get_text_features(inputs["input_ids"], inputs["attention_mask"]).pooler_output
                if task == TEXT_TEXT:
                    paired = model.get_text_features(inputs["paired_input_ids"], inputs["paired_attention_mask"])
                else:
                    paired = model.get_image_features(inputs["pixel_values"])
                (paired.pooler_output @ texts.T).sum().backward()
        operations = counter.get_total_flops() / 8  # of an example of each task
        model.zero_grad()
        batch = sizes.batch
        for compiled in (False, True):
            while True:  # the first of `batch`, its half and so on that fits
                try:
                    seconds = step_seconds(machine, model, batch, torch_compile=compiled)
                    break
                except torch.OutOfMemoryError:
                    batch //= 2
                machine.free()
            setting = f"{name}, {batch} of {' and '.join(model.config.tasks)}, bfloat16{', compiled' * compiled}"
            yield setting, batch / seconds, "examples/s"
            yield setting, 100 * batch * operations / seconds / rate, "% of the product's rate"
        del model
        machine.free()


def batch(machine: Machine) -> Iterator[Row]:
    sizes = machine.sizes
    for chunk in (None, sizes.chunk):
        size, largest, seconds = sizes.batch, 0, 0.0
        while size <= sizes.largest_batch:
            try:
                seconds = step_seconds(machine, clip_shapes(sizes), size, steps=3, embed_chunk_size=chunk)
            except torch.OutOfMemoryError:
                break
            largest, size = size, 2 * size
            machine.free()
        setting = f"in chunks of {chunk}" if chunk else "in one piece"
        yield f"{setting}, the largest tried was {size}", largest, "examples"
        if largest:
            yield f"{setting}, batch {largest}", largest / seconds, "examples/s"


def caching(machine: Machine) -> Iterator[Row]:
    if not _has("sentence_transformers"):
        return
    sizes, models = machine.sizes, [clip_shapes(machine.sizes).train().to(machine.device) for _ in range(2)]
    batch = machine.on_device(make_batch(models[0], IMAGE_TEXT, sizes.cached_batch, sizes.image))
    with tempfile.TemporaryDirectory() as folder:
        ours = our_step(models[0], batch, folder, **machine.settings(embed_chunk_size=sizes.chunk))
        theirs = cached_step(models[1], batch, sizes.chunk, folder, use_cpu=not machine.on_gpu, bf16=True)

        def complete(step: Callable[[], object], model: Any) -> None:
            step()
            model.zero_grad()
            machine.synchronize()

        sides = zip((OURS, "sentence-transformers"), (ours, theirs), models, strict=True)
        turns = {name: partial(complete, step, model) for name, step, model in sides}
        times = by_turns(turns, max(sizes.steps // 4, 2))
    setting = f"CLIP ViT-B/32's shapes, batch {sizes.cached_batch} in chunks of {sizes.chunk}, bfloat16"
    for name, seconds in times.items():
        yield f"{name}, {setting}", sizes.cached_batch / float(np.median(seconds)), "examples/s"
    ratio = float(np.median(times[OURS] / times["sentence-transformers"]))
    yield "time of babelens divided by that of sentence-transformers", ratio, ""


def loss(machine: Machine) -> Iterator[Row]:
    pairs, seconds = machine.sizes.pairs, {}
    inputs = [given.detach().to(machine.device).requires_grad_() for given in embeddings(pairs, 512)]
    for name in (OURS, OPEN_CLIP):
        if name == OPEN_CLIP and not _has("open_clip"):
            return
        step = partial(make_side(name), *inputs)
        before = 0
        if machine.on_gpu:
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
        seconds[name] = machine.seconds(step, 5)
        yield f"{name}, {pairs} pairs, float32", 1000 * seconds[name], "ms"
        if machine.on_gpu:
            yield f"{name}, {pairs} pairs, float32", (torch.cuda.max_memory_allocated() - before) / 2**20, "MiB"
    yield "time of babelens divided by that of open_clip", seconds[OURS] / seconds[OPEN_CLIP], ""


def _has(package: str) -> bool:
    if not find_spec(package):
        print(f"{package} is not installed: pip install --no-deps -r benchmarks/requirements.txt", file=sys.stderr)
        return False
    return True


def encode(machine: Machine) -> Iterator[Row]:
    sizes, rng = machine.sizes, np.random.default_rng(0)
    captions = sentences(rng, sizes.texts)
    processor = processor_of(sizes, train_wordpiece(captions, 200))
    options: dict[str, Any] = {"batch_size": min(256, sizes.images), "device": machine.device, "dtype": torch.bfloat16}
    embedder = Embedder(clip_shapes(sizes).eval(), processor, **options)
    decoded = [Image.fromarray(rng.integers(0, 256, (375, 500, 3), dtype=np.uint8)) for _ in range(8)]
    files = []
    for image in decoded:
        file = io.BytesIO()
        image.save(file, "JPEG")
        files.append(file.getvalue())
    given: dict[str, list[Any]] = {"decoded": [*decoded], "JPEG": [*files]}
    for setting, kinds in given.items():
        images = [kinds[index % len(kinds)] for index in range(sizes.images)]
        seconds = machine.seconds(partial(embedder.encode_image, images), 3)
        yield f"images of 500 x 375 pixels, {setting}, ViT-B/32, bfloat16", len(images) / seconds, "1/s"
    seconds = machine.seconds(lambda: embedder.encode_text(captions, language="en"), 3)
    yield "captions of 4 to 15 words, bfloat16", len(captions) / seconds, "1/s"


def mla(machine: Machine) -> Iterator[Row]:
    sizes = machine.sizes
    vision = {"model_type": "clip_vision_model", "patch_size": 32, "image_size": sizes.image, **sizes.tower}
    text = {"model_type": "clip_text_model", **sizes.tower}
    base = {"base_config": {"model_type": "clip", "vision_config": vision, "text_config": text}} if sizes.tower else {}
    model: Any = MlaModel(MlaConfig(languages=["de"], **base)).train().to(machine.device)
    model.set_trainable("acquirers", ["de"])
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], fused=True)
    count = min(128, sizes.batch)
    texts = torch.randint(1000, 40_000, (count, 16), device=machine.device)
    texts[:, -1] = model.config.sep_token_id
    languages = torch.ones(count, dtype=torch.long, device=machine.device)
    features = torch.randn(count, model.config.base_config.projection_dim, device=machine.device)

    def step(target: str) -> None:
        with torch.autocast(machine.device.type, torch.bfloat16):
            output = model(texts, language_ids=languages, return_loss=True, **{target: features})
        output.loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    total = 0.0
    for stage, (target, count_of_paper) in zip(("transfer", "exposure"), PAPER_STEPS.items(), strict=True):
        seconds = machine.seconds(partial(step, target), sizes.steps)
        total += count_of_paper * seconds
        yield f"{stage}, batch {count}, everything cached", 1 / seconds, "steps/s"
    yield "all steps that the paper trains a language", total / 60, "minutes"


def acquire(machine: Machine) -> Iterator[Row]:
    if machine.on_gpu != torch.accelerator.is_available():
        print("`acquire` uses the accelerator of a machine; hide it to measure the processor", file=sys.stderr)
        return
    sizes, rng = machine.sizes, np.random.default_rng()  # new texts in each run: features are kept on disk
    tokenizer = train_wordpiece(sentences(rng, sizes.sentences, 8), 200)
    with tempfile.TemporaryDirectory() as name:
        folder, encoder = Path(name) / "base", Path(name) / "encoder"
        clip_shapes(sizes, large=True).save_pretrained(folder)
        processor_of(sizes, tokenizer).save_pretrained(folder)
        BertModel(BertConfig(**sizes.tower)).save_pretrained(encoder)
        tokenizer.save_pretrained(encoder)
        for setting, given in (("without a text encoder", None), ("with one of BERT-base's size", str(encoder))):
            pairs = [(text[::-1], text) for text in sentences(rng, sizes.sentences, 8)]
            acquisition = Acquisition(str(folder), {"mi": pairs}, given, names=False)
            acquisition.load()
            machine.synchronize()
            start = time.perf_counter()
            acquisition.learn()
            seconds = time.perf_counter() - start
            yield f"{len(pairs)} sentences, base of ViT-L/14's shapes, {setting}", seconds, "s"


def devices(machine: Machine) -> Iterator[Row]:
    most, rates = torch.cuda.device_count() if machine.on_gpu else 2, []
    backend = "NCCL" if machine.on_gpu else "gloo"
    for count in sorted({*(1 << power for power in range(most.bit_length())), most}):
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
        command += [__file__, "--device", machine.device.type, "--parts", "one-step"]
        command += ["--tiny"] if machine.sizes is TINY else []
        run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        rates.append(json.loads(run.stdout.splitlines()[-1])["examples_per_second"])
        yield f"{count} by {backend}, CLIP's shapes", rates[-1], "examples/s"
        yield f"{count} by {backend}: share of {count} times one", 100 * rates[-1] / rates[0] / count, "%"


def one_step(machine: Machine) -> None:
    """A process of `devices`: the first one prints how many examples all of them trained on in a second."""
    size = machine.sizes.batch
    seconds = step_seconds(machine, clip_shapes(machine.sizes), size)
    if not int(os.environ.get("RANK", "0")):
        print(json.dumps({"examples_per_second": size * int(os.environ.get("WORLD_SIZE", "1")) / seconds}))


PARTS: dict[str, Callable[[Machine], Iterator[Row]]] = {
    each.__name__: each for each in (steps, batch, caching, loss, encode, mla, acquire, devices)
}


@app.command()
def main(
    device: Annotated[str, typer.Option(help="`cuda` or `cpu`; default: CUDA where there is any.")] = "",
    tiny: Annotated[bool, typer.Option("--tiny", help="Tiny models and few steps, to try the code.")] = False,
    parts: Annotated[str, typer.Option(help="Comma-separated list.")] = ",".join(PARTS),
    output: Annotated[Path | None, typer.Option(help="Write the rows as JSON as well.")] = None,
) -> None:
    """Measure all parts, and print them as a table."""
    machine = Machine(device or ("cuda" if torch.cuda.is_available() else "cpu"), TINY if tiny else Sizes())
    if parts == "one-step":
        one_step(machine)
        return
    print(f"{machine.name()}; {versions()}\n\n| part | setting | value | unit |\n|---|---|--:|---|")
    rows, failed = [], []
    for name in parts.split(","):
        try:
            for setting, value, unit in PARTS[name](machine):
                rows.append({"part": name, "setting": setting, "value": value, "unit": unit})
                print(f"| {name} | {setting} | {value:.4g} | {unit} |", flush=True)
        except Exception as error:  # the time on such a machine is short: the other parts are measured
            traceback.print_exc()
            failed.append(name)
            print(f"| {name} | failed: {type(error).__name__} | | |", flush=True)
    if output:
        output.write_text(json.dumps({"machine": machine.name(), "versions": versions(), "rows": rows}, indent=2))
    if failed:
        raise typer.Exit(1)


if __name__ == "__main__":
    app()
