"""The contrastive loss, compared with open_clip's `ClipLoss` and sentence-transformers' cached loss stage.

    pip install --no-deps -r benchmarks/requirements.txt
    python benchmarks/loss.py compare
    python benchmarks/loss.py curve

All compute the mean of both directions of the same loss on the same float32 embeddings, forward and backward:

- babelens: `symmetric_contrastive_loss / 2`, tiles as by default.
- open_clip: `ClipLoss` on normalised embeddings, as its models give them; normalising counts for every side.
- sentence-transformers: `CachedMultipleNegativesRankingLoss`'s loss stage with one softmax for each direction,
mini-batches of 32 by default, and a temperature without a gradient.

`compare` takes wall-clock times by turns; `curve` takes the processor's time, which other work disturbs less. Peak
memory is Linux's `VmHWM` in a separate process for each size and side, without the embeddings themselves.
"""

import importlib.metadata
import importlib.util
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Annotated

import numpy as np
import torch
import typer
from torch import Tensor
from torch.nn.functional import normalize
from turns import by_turns, quartiles, versions

from babelens.modeling.losses import symmetric_contrastive_loss

TEMPERATURE = 0.05
MEBIBYTE = 2**20
PACKAGES = ("open_clip_torch", "sentence-transformers")
OURS, OPEN_CLIP, CACHED = "babelens", "open_clip", "sentence-transformers"

# (x, y, temperature) -> loss and the gradients of x and y
Side = Callable[[Tensor, Tensor, Tensor], tuple[float, Tensor, Tensor]]

app = typer.Typer(pretty_exceptions_enable=False)


# ---- The sides ----


def babelens() -> Side:
    return _differentiated(lambda x, y, temperature: symmetric_contrastive_loss(x, y, temperature) / 2)


def open_clip() -> Side:
    clip_loss = _open_clip_loss_module().ClipLoss()
    return _differentiated(lambda x, y, temperature: clip_loss(normalize(x), normalize(y), 1 / temperature))


def cached_stage(mini_batch: int = 32) -> Side:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss

    loss = CachedMultipleNegativesRankingLoss(
        SentenceTransformer(modules=[torch.nn.Identity()], device="cpu"),
        scale=1 / TEMPERATURE,
        mini_batch_size=mini_batch,
        directions=("query_to_doc", "doc_to_query"),
        partition_mode="per_direction",
    )

    def run(x: Tensor, y: Tensor, temperature: Tensor) -> tuple[float, Tensor, Tensor]:
        chunks = [[part.detach().requires_grad_() for part in side.split(mini_batch)] for side in (x, y)]
        value = loss.calculate_loss(chunks, with_backward=True)
        grad_x, grad_y = (torch.cat([part.grad for part in side]) for side in chunks)
        return value.item(), grad_x, grad_y

    return run


def _differentiated(loss: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Side:
    def run(x: Tensor, y: Tensor, temperature: Tensor) -> tuple[float, Tensor, Tensor]:
        value = loss(x, y, temperature)
        grad_x, grad_y, _ = torch.autograd.grad(value, (x, y, temperature))
        return value.item(), grad_x, grad_y

    return run


def _open_clip_loss_module() -> ModuleType:
    """The installed `open_clip/loss.py`, without the package around it, which imports torchvision."""
    path = importlib.metadata.distribution("open_clip_torch").locate_file("open_clip/loss.py")
    spec = importlib.util.spec_from_file_location("open_clip_loss", str(path))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_side(name: str, mini_batch: int = 32) -> Side:
    return {OURS: babelens, OPEN_CLIP: open_clip}[name]() if name != CACHED else cached_stage(mini_batch)


def embeddings(count: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count, width, generator=generator)
    y = torch.randn(count, width, generator=generator).add_(x, alpha=0.3)
    return x.requires_grad_(), y.requires_grad_(), torch.tensor(TEMPERATURE, requires_grad=True)


# ---- Measures ----


def measured_alone(name: str, count: int, width: int, threads: int, mini_batch: int = 32) -> dict[str, float]:
    """{"mebibytes", "seconds"} of one side in a separate process, the seconds of all its threads together."""
    options = {"--width": width, "--threads": threads, "--mini-batch": mini_batch}
    arguments = ["alone", name, str(count), *(str(word) for option in options.items() for word in option)]
    run = subprocess.run([sys.executable, __file__, *arguments], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(run.stdout.splitlines()[-1])


@app.command(hidden=True)
def alone(name: str, count: int, width: int = 512, threads: int = 1, mini_batch: int = 32) -> None:
    """Measure one side in this process."""
    torch.set_num_threads(threads)
    side = make_side(name, mini_batch)
    side(*embeddings(64, width))  # what libraries set up at their first use is not counted
    inputs = embeddings(count, width)
    before = resident_peak(reset=True)
    start = time.process_time()
    side(*inputs)
    duration = time.process_time() - start
    print(json.dumps({"mebibytes": (resident_peak() - before) / MEBIBYTE, "seconds": duration}))


def resident_peak(*, reset: bool = False) -> int:
    """Bytes of the resident set at its highest; with `reset`, counted from now on."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


# ---- Commands ----


@app.command()
def compare(
    count: Annotated[int, typer.Option(help="Number of pairs.")] = 8192,
    width: Annotated[int, typer.Option(help="Number of dimensions of an embedding.")] = 512,
    rounds: Annotated[int, typer.Option(help="Number of rounds; each times both sides once.")] = 7,
    mini_batch: Annotated[int, typer.Option(help="Mini-batch size of sentence-transformers.")] = 32,
    threads: Annotated[int, typer.Option(help="Number of processor threads.")] = 1,
) -> None:
    """Ratios of time and peak memory, babelens by each of the others, median with quartiles over the rounds."""
    torch.set_num_threads(threads)
    print(f"{versions(*PACKAGES)}, {threads} threads")
    print(f"N={count}, d={width}, {rounds} rounds, mini-batch {mini_batch}, float32", flush=True)
    inputs = embeddings(count, width)
    sides = {name: make_side(name, mini_batch) for name in (OURS, OPEN_CLIP, CACHED)}
    expected = sides[OPEN_CLIP](*inputs)
    for name, side in sides.items():
        pairs = [map(torch.as_tensor, pair) for pair in zip(side(*inputs), expected, strict=True)]
        differences = [((one - other).norm() / other.norm()).item() for one, other in pairs]
        print(f"{name} differs from open_clip by {max(differences):.1e} (loss and gradients, relative)", flush=True)
    times = by_turns({name: partial(side, *inputs) for name, side in sides.items()}, rounds)
    memory = {name: measured_alone(name, count, width, threads, mini_batch)["mebibytes"] for name in sides}
    print("\n| | seconds | peak MiB | babelens: time (quartiles) | babelens: memory |\n|---|---|---|---|---|")
    for name in sides:
        ratios = f"{quartiles(times[OURS] / times[name], 3)} | {memory[OURS] / memory[name]:.3f}"
        print(f"| {name} | {np.median(times[name]):.2f} | {memory[name]:.0f} | {ratios} |")


@app.command()
def curve(
    width: Annotated[int, typer.Option(help="Number of dimensions of an embedding.")] = 512,
    largest: Annotated[int, typer.Option(help="Pairs, at most; from 1024 on, doubled.")] = 65536,
    largest_dense: Annotated[int, typer.Option(help="The same for open_clip, whose memory grows with N^2.")] = 16384,
    threads: Annotated[int, typer.Option(help="Number of processor threads.")] = 1,
) -> None:
    """Time and peak memory against the number of pairs, one run each."""
    print(f"{versions(*PACKAGES)}, {threads} threads\nd={width}, one run for each size, float32", flush=True)
    print(
        "\n| N | side | peak MiB | KiB for each pair | processor seconds | ns for each logit |"
        "\n|---|---|---|---|---|---|"
    )
    for count in (2**power for power in range(10, largest.bit_length())):
        for name in (OURS, OPEN_CLIP) if count <= largest_dense else (OURS,):
            found = measured_alone(name, count, width, threads)
            mebibytes, duration = found["mebibytes"], found["seconds"]
            figures = (
                f"{mebibytes:.0f} | {1024 * mebibytes / count:.1f} | {duration:.2f} | {1e9 * duration / count**2:.1f}"
            )
            print(f"| {count} | {name} | {figures} |", flush=True)


if __name__ == "__main__":
    app()
