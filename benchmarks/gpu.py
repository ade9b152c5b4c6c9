"""What one machine with CUDA devices reaches, in one run and one table.

    python benchmarks/gpu.py --output gpu.json
    python benchmarks/gpu.py --device cpu --tiny      # the same code in small, as the tests run it

The parts are, each by its name in `--parts`:

- `steps`: training steps of MURAL-base, of ALIGN-base and of towers with CLIP ViT-B/32's shapes, in bfloat16, without
  and with `torch.compile`, as `Trainer.train()` makes them. Their operations are counted by torch's `FlopCounterMode`,
  once, on the model as it is; the share of the device's rate is that number by the time of a step and by the rate of a
  large matrix product in the same number format, which is measured in the same run.
- `batch`: the largest batch of CLIP's shapes that fits, doubled until it does not, without and with gradient caching.
- `caching`: a step with gradient caching and one of sentence-transformers' cached trainer, by turns.
- `loss`: the contrastive loss and open_clip's `ClipLoss`, by turns.
- `encode`: images, with and without decoding JPEGs, and texts that an `Embedder` encodes in a second.
- `mla`: MLA's steps on cached features, and the time of the steps that the paper gives a language.
- `acquire`: a language in closed form from the embeddings of a base with CLIP ViT-L/14's shapes, without and with a
  text encoder.
- `devices`: the same training step on every device by `torchrun` (NCCL, or gloo on CPUs), compared with one device.

A part that fails is reported with its error; the others run all the same.
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
from gradient_caching import IMAGE_TEXT, TEXT_TEXT, cached_step, make_batch, make_trainer, our_step, versions
from loss import OPEN_CLIP, OURS, embeddings, make_side
from PIL import Image
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig, BertModel, CLIPImageProcessorPil, TrainerCallback
from turns import by_turns

from babelens import Embedder, MlaConfig, MlaModel, MuralConfig, MuralModel, MuralProcessor, load_preset
from babelens.acquire import Acquisition
from babelens.processing.tokenizer_training import train_wordpiece

# How long the paper trains a language (Zhang et al. 2022, section 4.1): 117,150 steps of 128 translations, then 11,715
# of 128 captioned images.
PAPER_STEPS = {"transfer": 117_150, "exposure": 11_715}
_WORDS = (
    "cat",
    "dog",
    "tree",
    "house",
    "river",
    "red",
    "blue",
    "old",
    "small",
    "runs",
    "sleeps",
    "under",
    "near",
    "a",
)

WARM_UP_STEPS = 3  # with compilation and the optimizer's state; not counted

app = typer.Typer(pretty_exceptions_enable=False)


@dataclass(frozen=True)
class Sizes:
    """How large the parts are.

    Args:
        image: width and height of images, in pixels.
        vision, text: sizes of the towers that differ from CLIP ViT-B/32.
        presets: the models that are trained on their tasks' batches.
        batch: examples of a step.
        chunk: examples embedded at a time with gradient caching.
        cached: examples of a step with gradient caching, compared with sentence-transformers.
        largest: the batch at which the search for the largest one ends.
        steps: timed steps.
        product: rows and columns of the matrices whose product is timed.
        pairs: pairs of embeddings in the loss.
        images, texts: how many are encoded.
        sentences: how many teach a language.
    """

    image: int = 224
    vision: tuple[tuple[str, int], ...] = ()
    text: tuple[tuple[str, int], ...] = ()
    presets: tuple[str, ...] = ("mural-base", "align-base")
    batch: int = 512
    chunk: int = 256
    cached: int = 4096
    largest: int = 1 << 15
    steps: int = 20
    product: int = 8192
    pairs: int = 32_768
    images: int = 4096
    texts: int = 16_384
    sentences: int = 1000


_SMALL = (("hidden_size", 64), ("intermediate_size", 128), ("num_hidden_layers", 2), ("num_attention_heads", 2))
TINY = Sizes(32, _SMALL, _SMALL, ("mural-tiny", "align-tiny"), 8, 4, 8, 32, 2, 256, 128, 12, 24, 40)


@dataclass(frozen=True)
class Row:
    """A line of the table: what was measured, in which setting, and its value with the unit."""

    part: str
    setting: str
    value: float
    unit: str


class Machine:
    """The device, and how time and memory are measured on it.

    Args:
        device: `cuda`, or another type of device that torch knows.
        sizes: how large the parts are.
    """

    def __init__(self, device: str, sizes: Sizes) -> None:
        self.device = torch.device(device)
        self.sizes = sizes
        self.on_gpu = self.device.type == "cuda"

    def name(self) -> str:
        if not self.on_gpu:
            return f"{self.device.type}, {torch.get_num_threads()} threads"
        return f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}, CUDA {torch.version.cuda}"

    def seconds(self, step: Callable[[], object], rounds: int) -> float:
        """The median time of a call, after one that is not counted."""
        step()
        times = []
        for _ in range(rounds):
            self.synchronize()
            start = time.perf_counter()
            step()
            self.synchronize()
            times.append(time.perf_counter() - start)
        return float(np.median(times))

    def free(self) -> None:
        """Frees the memory of deleted models."""
        gc.collect()
        if self.on_gpu:
            torch.cuda.empty_cache()

    def synchronize(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()

    def on_device(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: value.to(self.device) for name, value in batch.items()}

    def settings(self, **others: Any) -> dict[str, Any]:
        """The arguments of a trainer in bfloat16 on this device."""
        return {"use_cpu": not self.on_gpu, "precision": "bfloat16", "disable_tqdm": True, **others}

    def product_rate(self) -> float:
        """Operations in a second of a large product of bfloat16 matrices."""
        size = self.sizes.product
        one, other = torch.randn(2, size, size, dtype=torch.bfloat16, device=self.device)
        return 2 * size**3 / self.seconds(lambda: one @ other, 10)


@dataclass
class Stopwatch(TrainerCallback):
    """Seconds of each step, the device's work included."""

    machine: Machine
    seconds: list[float] = field(default_factory=list)

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.machine.synchronize()
        self.start = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.machine.synchronize()
        self.seconds.append(time.perf_counter() - self.start)


# ---- Models ----


# Of the base in `acquire`.
LARGE_VISION = {
    "patch_size": 14,
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
}
LARGE_TEXT = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_attention_heads": 12,
    "projection_dim": 768,
}


def clip_shapes(sizes: Sizes, large: bool = False) -> MuralModel:
    """A dual encoder of two towers with the shapes of CLIP ViT-B/32, or of ViT-L/14, with random weights."""
    torch.manual_seed(0)
    vision = {"model_type": "clip_vision_model", "patch_size": 32, "image_size": sizes.image}
    vision |= (LARGE_VISION if large else {}) | dict(sizes.vision)
    text = {"model_type": "clip_text_model"} | (LARGE_TEXT if large else {}) | dict(sizes.text)
    return MuralModel(MuralConfig(vision_config=vision, text_config=text, text_pooling="eos", tasks=[IMAGE_TEXT]))


def _preset(name: str, sizes: Sizes) -> MuralModel:
    torch.manual_seed(0)
    return MuralModel(load_preset(name))


def step_seconds(machine: Machine, model: MuralModel, batch: int, steps: int | None = None, **settings: Any) -> float:
    """The median time of a step of `Trainer.train()` on one batch of each task, which is on the device."""
    image = getattr(model.config.vision_config, "image_size", machine.sizes.image)
    inputs = {task: machine.on_device(make_batch(model, task, batch, image)) for task in model.config.tasks}
    stopwatch = Stopwatch(machine)
    with tempfile.TemporaryDirectory() as folder:
        options = machine.settings(max_steps=WARM_UP_STEPS + (steps or machine.sizes.steps), **settings)
        trainer = make_trainer(model, folder, inputs, **options)
        trainer.add_callback(stopwatch)
        trainer.train()
    return float(np.median(stopwatch.seconds[WARM_UP_STEPS:]))


def fitting_step(machine: Machine, model: MuralModel, batch: int, **settings: Any) -> tuple[int, float]:
    """The first of `batch`, its half and so on that fits, and the time of its step."""
    while True:
        try:
            return batch, step_seconds(machine, model, batch, **settings)
        except torch.OutOfMemoryError:
            pass
        batch //= 2
        machine.free()


# ---- Parts ----


def steps(machine: Machine) -> Iterator[Row]:
    sizes = machine.sizes
    rate = machine.product_rate()
    yield Row("steps", f"product of {sizes.product} x {sizes.product} matrices, bfloat16", rate / 1e12, "TFLOP/s")
    models = {"CLIP ViT-B/32's shapes": clip_shapes, **{name: partial(_preset, name) for name in sizes.presets}}
    for name, make in models.items():
        model = make(sizes).train().to(machine.device)
        image = getattr(model.config.vision_config, "image_size", sizes.image)
        with FlopCounterMode(display=False) as counter:
            for task in model.config.tasks:
                inputs = machine.on_device(make_batch(model, task, 8, image))
                texts = model.get_text_features(inputs["input_ids"], inputs["attention_mask"]).pooler_output
                if task == TEXT_TEXT:
                    ids, mask = inputs["paired_input_ids"], inputs["paired_attention_mask"]
                    others = model.get_text_features(ids, mask).pooler_output
                else:
                    others = model.get_image_features(inputs["pixel_values"]).pooler_output
                (others @ texts.T).sum().backward()
        operations = counter.get_total_flops() / 8  # of an example of each task
        model.zero_grad()
        batch = sizes.batch
        for compiled in (False, True):
            batch, seconds = fitting_step(machine, model, batch, torch_compile=compiled)
            tasks = " and ".join(model.config.tasks)
            setting = f"{name}, {batch} of {tasks}, bfloat16{', compiled' if compiled else ''}"
            yield Row("steps", setting, batch / seconds, "examples/s")
            yield Row("steps", setting, 100 * batch * operations / seconds / rate, "% of the product's rate")
        del model
        machine.free()


def batch(machine: Machine) -> Iterator[Row]:
    sizes = machine.sizes
    for chunk in (None, sizes.chunk):
        size, largest, seconds = sizes.batch, 0, 0.0
        while size <= sizes.largest:
            try:
                seconds = step_seconds(machine, clip_shapes(sizes), size, steps=3, embed_chunk_size=chunk)
            except torch.OutOfMemoryError:
                break
            largest, size = size, 2 * size
            machine.free()
        setting = f"in chunks of {chunk}" if chunk else "in one piece"
        yield Row("batch", f"{setting}, the largest tried was {size}", largest, "examples")
        if largest:
            yield Row("batch", f"{setting}, batch {largest}", largest / seconds, "examples/s")


def caching(machine: Machine) -> Iterator[Row]:
    if not find_spec("sentence_transformers"):
        print("sentence-transformers is not installed here", file=sys.stderr)
        return
    sizes, models = machine.sizes, [clip_shapes(machine.sizes).train().to(machine.device) for _ in range(2)]
    batch = make_batch(models[0], IMAGE_TEXT, sizes.cached, sizes.image)
    batch = machine.on_device(batch)
    with tempfile.TemporaryDirectory() as folder:
        ours = our_step(models[0], batch, folder, **machine.settings(embed_chunk_size=sizes.chunk))
        options = {"use_cpu": not machine.on_gpu, "bf16": True}
        steps = {
            "babelens": ours,
            "sentence-transformers": cached_step(models[1], batch, sizes.chunk, folder, **options),
        }

        def complete(name: str, model: MuralModel) -> None:
            steps[name]()
            model.zero_grad()
            machine.synchronize()

        turns = {name: partial(complete, name, model) for name, model in zip(steps, models, strict=True)}
        times = by_turns(turns, max(sizes.steps // 4, 2))
    setting = f"CLIP ViT-B/32's shapes, batch {sizes.cached} in chunks of {sizes.chunk}, bfloat16"
    for name, seconds in times.items():
        yield Row("caching", f"{name}, {setting}", sizes.cached / float(np.median(seconds)), "examples/s")
    ratio = float(np.median(times["babelens"] / times["sentence-transformers"]))
    yield Row("caching", "time of babelens by that of sentence-transformers", ratio, "")


def loss(machine: Machine) -> Iterator[Row]:
    pairs = machine.sizes.pairs
    inputs = [given.detach().to(machine.device).requires_grad_() for given in embeddings(pairs, 512)]
    seconds = {}
    for name in (OURS, OPEN_CLIP):
        if name == OPEN_CLIP and not find_spec("open_clip"):
            print(
                "open_clip is not installed here; pip install --no-deps -r benchmarks/requirements.txt",
                file=sys.stderr,
            )
            return
        side = make_side(name)
        if machine.on_gpu:
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
        seconds[name] = machine.seconds(lambda side=side: side(*inputs), 5)
        yield Row("loss", f"{name}, {pairs} pairs, float32", 1000 * seconds[name], "ms")
        if machine.on_gpu:
            peak = (torch.cuda.max_memory_allocated() - before) / 2**20
            yield Row("loss", f"{name}, {pairs} pairs, float32", peak, "MiB")
    yield Row("loss", "time of babelens by that of open_clip", seconds[OURS] / seconds[OPEN_CLIP], "")


def encode(machine: Machine) -> Iterator[Row]:
    sizes = machine.sizes
    rng = np.random.default_rng(0)
    captions = [" ".join(rng.choice(_WORDS, rng.integers(4, 16))) for _ in range(sizes.texts)]
    tokenizer = train_wordpiece(captions, 200)
    model = clip_shapes(sizes).eval()
    size = {"height": sizes.image, "width": sizes.image}
    processor = MuralProcessor(CLIPImageProcessorPil(size=size, crop_size=size), tokenizer)
    dtype = torch.bfloat16
    embedder = Embedder(model, processor, batch_size=min(256, sizes.images), device=machine.device, dtype=dtype)
    pixels = [Image.fromarray(rng.integers(0, 256, (375, 500, 3), dtype=np.uint8)) for _ in range(8)]
    files = []
    for image in pixels:
        file = io.BytesIO()
        image.save(file, "JPEG")
        files.append(file.getvalue())
    for setting, given in (("decoded", pixels), ("JPEG", files)):
        images = [given[index % len(given)] for index in range(sizes.images)]
        seconds = machine.seconds(lambda images=images: embedder.encode_image(images), 3)
        yield Row("encode", f"images of 500 x 375 pixels, {setting}, ViT-B/32, bfloat16", len(images) / seconds, "1/s")
    seconds = machine.seconds(lambda: embedder.encode_text(captions, language="en"), 3)
    yield Row("encode", "captions of 4 to 15 words, bfloat16", len(captions) / seconds, "1/s")


def mla(machine: Machine) -> Iterator[Row]:
    sizes = machine.sizes
    base = {
        "vision_config": {"model_type": "clip_vision_model", "patch_size": 32, "image_size": sizes.image}
        | dict(sizes.vision),
        "text_config": {"model_type": "clip_text_model"} | dict(sizes.text),
    }
    given = {"base_config": {"model_type": "clip", **base}} if sizes.vision else {}
    model = MlaModel(MlaConfig(languages=["de"], **given)).train().to(machine.device)
    model.set_trainable("acquirers", ["de"])
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], fused=True)
    count = min(128, sizes.batch)
    texts = torch.randint(1000, 40_000, (count, 16), device=machine.device)
    texts[:, -1] = model.config.sep_token_id
    languages = torch.ones(count, dtype=torch.long, device=machine.device)
    width = model.config.base_config.projection_dim
    features = torch.randn(count, width, device=machine.device)
    total = 0.0
    for stage, target in (("transfer", "paired_text_features"), ("exposure", "image_features")):

        def step(target: str = target) -> None:
            with torch.autocast(machine.device.type, torch.bfloat16):
                output = model(texts, language_ids=languages, return_loss=True, **{target: features})
            output.loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        seconds = machine.seconds(step, sizes.steps)
        total += PAPER_STEPS[stage] * seconds
        yield Row("mla", f"{stage}, batch {count}, everything cached", 1 / seconds, "steps/s")
    yield Row("mla", "all steps that the paper trains a language", total / 60, "minutes")


def acquire(machine: Machine) -> Iterator[Row]:
    if machine.on_gpu != torch.accelerator.is_available():
        print("`acquire` uses the accelerator of a machine; hide it to measure the processor", file=sys.stderr)
        return
    sizes, rng = machine.sizes, np.random.default_rng()  # new texts in each run: features are kept on disk

    def sentences() -> list[str]:
        return [" ".join(rng.choice(_WORDS, rng.integers(8, 16))) for _ in range(sizes.sentences)]

    tokenizer = train_wordpiece(sentences(), 200)
    with tempfile.TemporaryDirectory() as name:
        folder, encoder = Path(name) / "base", Path(name) / "encoder"
        clip_shapes(sizes, large=True).save_pretrained(folder)
        size = {"height": sizes.image, "width": sizes.image}
        MuralProcessor(CLIPImageProcessorPil(size=size, crop_size=size), tokenizer).save_pretrained(folder)
        BertModel(BertConfig(**dict(sizes.text))).save_pretrained(encoder)
        tokenizer.save_pretrained(encoder)
        for setting, given in (("without a text encoder", None), ("with one of BERT-base's size", str(encoder))):
            pairs = [(text[::-1], text) for text in sentences()]
            acquisition = Acquisition(str(folder), {"mi": pairs}, given, names=False)
            acquisition.load()
            machine.synchronize()
            start = time.perf_counter()
            acquisition.learn()
            seconds = time.perf_counter() - start
            yield Row("acquire", f"{len(pairs)} sentences, base of ViT-L/14's shapes, {setting}", seconds, "s")


def devices(machine: Machine) -> Iterator[Row]:
    most = torch.cuda.device_count() if machine.on_gpu else 2
    alone = None
    for count in sorted({1, *(1 << power for power in range(most.bit_length()) if 1 << power <= most), most}):
        command = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            f"--nproc-per-node={count}",
            __file__,
        ]
        command += ["--device", machine.device.type, "--parts", "one-step"]
        command += ["--tiny"] if machine.sizes is TINY else []
        run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        rate = json.loads(run.stdout.splitlines()[-1])["examples_per_second"]
        alone = alone or rate
        backend = "NCCL" if machine.on_gpu else "gloo"
        yield Row("devices", f"{count} by {backend}, CLIP's shapes", rate, "examples/s")
        yield Row("devices", f"{count} by {backend}: share of {count} times one", 100 * rate / alone / count, "%")


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
            for row in PARTS[name](machine):
                rows.append(vars(row))
                print(f"| {row.part} | {row.setting} | {row.value:.4g} | {row.unit} |", flush=True)
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
