"""Time of a training step while other processes keep the cores busy, with a command's threads and with torch's own.

    python benchmarks/busy.py

A step is one of `babelens demo`: images and pairs of texts, a small MURAL, bfloat16 where the processor multiplies it.
Every turn begins a new process for each number of busy loops, since a command chooses its threads when it begins.
Printed are medians, and their ratios to torch's own threads on the machine as it is.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

BATCH, UNTIMED = 192, 3
STEP = """
import sys, time
sys.argv[0] = "babelens"  # so that torch is imported as in a command: after the load was first read
from babelens.cli import starting
if sys.argv[1] == "command":
    starting.start_measuring()
starting.begin_work()  # as a command does, after its arguments
import torch
from babelens import MuralModel, load_preset
torch.manual_seed(0)
batch, untimed, steps = map(int, sys.argv[2:])
vision = {"embedding_size": 16, "hidden_sizes": [48, 96, 192], "depths": [1, 1, 1]}
model = MuralModel(
    load_preset("mural-tiny", text_config={"num_hidden_layers": 1}, vision_config=vision, attn_implementation="eager")
).train()
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
pixels, texts, paired = torch.randn(batch, 3, 64, 64), *torch.randint(5, 1000, (2, batch, 8))
mask = torch.ones_like(texts)
is_fast = "avx512_bf16" in open("/proc/cpuinfo").read() if sys.platform == "linux" else False
def step():
    with torch.autocast("cpu", torch.bfloat16, enabled=is_fast):
        loss = model(input_ids=texts, attention_mask=mask, pixel_values=pixels, return_loss=True).loss
        pairs = [model.get_text_features(each, mask).pooler_output for each in (texts, paired)]
    loss = loss + (pairs[0] - pairs[1]).square().mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
for number in range(untimed + steps):
    if number == untimed:
        began = time.perf_counter()
    step()
print((time.perf_counter() - began) / steps, torch.get_num_threads())
"""


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        time.sleep(0.5 if count else 0)
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def step_time(way: str, steps: int) -> tuple[float, int]:
    """Seconds of a step in a new process, and its threads."""
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    command = [sys.executable, "-c", STEP, way, str(BATCH), str(UNTIMED), str(steps)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    seconds, threads = done.stdout.split()
    return float(seconds), int(threads)


def main(
    loops: Annotated[str, typer.Option(help="Numbers of busy loops.")] = "0,2,4",
    turns: Annotated[int, typer.Option(help="Processes of each kind.")] = 5,
    steps: Annotated[int, typer.Option(help="Steps that each process times.")] = 10,
) -> None:
    """Print how much longer a step takes beside busy loops."""
    counts = [int(count) for count in loops.split(",")]
    ways = ("torch", "command")
    times: dict[tuple[int, str], list[tuple[float, int]]] = {(count, way): [] for count in counts for way in ways}
    for _ in range(turns):
        for count in counts:
            with busy_loops(count):
                for way in ways:
                    times[count, way].append(step_time(way, steps))
    whole = statistics.median(seconds for seconds, _ in times[counts[0], "torch"])
    print(f"{len(os.sched_getaffinity(0))} cores; load average {os.getloadavg()[0]:.1f} at the end")
    for (count, way), measured in times.items():
        seconds = [each for each, _ in measured]
        print(
            f"{count} loops, {way:>7}: {statistics.median(seconds):.3f} s a step "
            f"({min(seconds):.3f}-{max(seconds):.3f}), {statistics.median(seconds) / whole:.2f} times; "
            f"threads {sorted({threads for _, threads in measured})}"
        )


if __name__ == "__main__":
    typer.run(main)
