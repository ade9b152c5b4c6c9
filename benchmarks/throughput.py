"""Examples in a second and peak memory of training steps against the batch size, on the device at hand.

    python benchmarks/throughput.py --batch-sizes 64,256,1024 --bf16 --tf32 --compile --fused

Steps are those of `Trainer.train()` on one synthetic batch, with the switches of transformers' own arguments: the rate
at which a model trains when data is never waited for. The first steps, with compilation and the optimiser's
state, are not counted. Peak memory is `torch.cuda.max_memory_allocated` on CUDA and the growth of the resident set
(Linux's `VmHWM`) on a CPU, the batch and the weights not counted there.
"""

import tempfile
import time
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import torch
import typer
from gradient_caching import make_batch, make_model, make_trainer, versions
from loss import MEBIBYTE, resident_peak
from transformers import TrainerCallback

WARM_UP_STEPS = 3


@dataclass
class Stopwatch(TrainerCallback):
    """Seconds of each step, the device's work included."""

    seconds: list[float] = field(default_factory=list)

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        _synchronize()
        self.start = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        _synchronize()
        self.seconds.append(time.perf_counter() - self.start)


def main(
    preset: Annotated[str, typer.Option(help="The model, with a small ViT for images.")] = "mural-tiny",
    task: Annotated[str, typer.Option(help="Task of the trainer.")] = "image_text",
    batch_sizes: Annotated[str, typer.Option(help="Comma-separated list.")] = "32,128,512",
    chunk: Annotated[int | None, typer.Option(help="`embed_chunk_size`; default: no gradient caching.")] = None,
    image_size: Annotated[int, typer.Option(help="Width and height of images in pixels.")] = 64,
    steps: Annotated[int, typer.Option(help="Number of timed steps.")] = 10,
    threads: Annotated[int, typer.Option(help="Number of processor threads.")] = 1,
    bf16: Annotated[bool, typer.Option("--bf16", help="Encode in bfloat16.")] = False,
    tf32: Annotated[bool, typer.Option("--tf32", help="TF32 matrix products (Ampere and later).")] = False,
    compiled: Annotated[bool, typer.Option("--compile", help="torch.compile.")] = False,
    fused: Annotated[bool, typer.Option("--fused", help="AdamW in one kernel instead of a loop.")] = False,
) -> None:
    """Print a table of throughput and memory."""
    torch.set_num_threads(threads)
    on_gpu = torch.cuda.is_available()
    settings: dict[str, Any] = {
        "optim": "adamw_torch_fused" if fused else "adamw_torch",
        "embed_chunk_size": chunk,
        "bf16": bf16,
        "tf32": tf32 or None,
        "torch_compile": compiled,
        "max_steps": WARM_UP_STEPS + steps,
        "use_cpu": not on_gpu,
        "disable_tqdm": True,
    }
    switches = [name for name, on in {"bf16": bf16, "tf32": tf32, "compile": compiled, "fused": fused}.items() if on]
    device = torch.cuda.get_device_name() if on_gpu else f"CPU, {threads} thread{'s' if threads > 1 else ''}"
    print(f"{device}; {versions()}\n{preset} with a small ViT, {task}, {image_size} pixels, ", end="")
    print(f"chunk {chunk}, {' '.join(switches) or 'float32'}\n")
    print("| batch | examples/s (quartiles) | peak MiB |\n|---|---|---|")
    for size in (int(each) for each in batch_sizes.split(",")):
        seconds, mebibytes = measure(preset, task, size, image_size, settings)
        low, middle, high = size / np.quantile(seconds, [0.75, 0.5, 0.25])
        print(f"| {size} | {middle:.0f} ({low:.0f}–{high:.0f}) | {mebibytes:.0f} |", flush=True)


def measure(preset: str, task: str, size: int, image_size: int, settings: dict[str, Any]) -> tuple[list[float], float]:
    """Seconds of each counted step, and MiB of peak memory."""
    model = make_model(preset, image_size)
    batch = make_batch(model, task, size, image_size)
    stopwatch = Stopwatch()
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(model, folder, {task: batch}, **settings)
        trainer.add_callback(stopwatch)
        on_gpu = torch.cuda.is_available()
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()
        before = 0 if on_gpu else resident_peak(reset=True)
        trainer.train()
        peak = torch.cuda.max_memory_allocated() if on_gpu else resident_peak()
    return stopwatch.seconds[WARM_UP_STEPS:], (peak - before) / MEBIBYTE


def _synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


if __name__ == "__main__":
    typer.run(main)
