"""Training and serving for a long time with memory that stays flat, on tiny models.

    python benchmarks/soak.py --minutes 60

Each of the two runs in a process of its own, one after the other: steps of MURAL with evaluation and checkpoints, and
a server that clients ask at the same time for texts, uploads, thumbnails and similar images. The resident memory of
the process is sampled; what it grows by, fitted over all samples after a warm-up of a fifth of the time, must stay
below `--bound` megabytes an hour. The status is 1 if it does not, or if a request was not answered with status 200.
"""

import argparse
import asyncio
import io
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import httpx2
import numpy as np
import psutil
from PIL import Image

TESTS = Path(__file__).resolve().parent.parent / "tests" / "support"
WARM_UP = 0.2  # share of the time
EVERY = 1.0  # seconds between samples
WORDS = ["a red square", "ein blauer Punkt", "un cercle", "a small green bar", "kleiner Kreis"]


@dataclass
class Soaked:
    """The memory of one process.

    Args:
        seconds: the times of the samples, since the start.
        megabytes: the resident memory at these times.
        done: what the process did meanwhile, as a sentence.
        failed: requests that failed.
    """

    seconds: list[float]
    megabytes: list[float]
    done: str = ""
    failed: int = 0

    def slope(self) -> float:
        """The growth after the warm-up in megabytes an hour, by least squares."""
        warm = [at >= WARM_UP * self.seconds[-1] for at in self.seconds]
        times, memory = np.array(self.seconds)[warm], np.array(self.megabytes)[warm]
        return float(np.polyfit(times / 3600, memory, 1)[0])


def train(folder: Path) -> None:
    """Trains until the process is ended, with evaluation and checkpoints every 50 steps."""
    sys.path.insert(0, str(TESTS))
    import torch
    from tiny_training import shapes_trainer

    torch.set_num_threads(1)
    settings = {"max_steps": 10**7, "save_strategy": "steps", "save_steps": 50, "save_total_limit": 2}
    settings |= {"eval_strategy": "steps", "eval_steps": 50, "logging_steps": 10**6}
    shapes_trainer(folder, **settings).train()


def make_served(folder: Path) -> tuple[Path, Path]:
    """A tiny model and 200 images."""
    sys.path.insert(0, str(TESTS))
    from image_sources import write_images
    from tiny_native import saved, tiny_clip

    return saved(tiny_clip(), folder / "clip"), write_images(folder / "images", range(200))


async def ask(port: int, seconds: float, clients: int, result: Soaked) -> None:
    """Asks with some clients at the same time."""
    until = time.monotonic() + seconds
    counts = [0, 0]

    async def client(seed: int) -> None:
        choices = random.Random(seed)
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as session:
            found = []
            while time.monotonic() < until:
                kind = choices.random()
                if kind < 0.7 or not found:
                    text = f"{choices.choice(WORDS)} {choices.randrange(10**6)}"
                    answer = await session.get("/api/search", params={"q": text, "language": "en", "top": "10"})
                    found = answer.json()["results"] if answer.status_code == 200 else []
                elif kind < 0.8:
                    file = io.BytesIO()
                    Image.new("RGB", (40, 30), tuple(choices.choices(range(256), k=3))).save(file, "PNG")
                    answer = await session.post("/api/search-by-image", files={"file": ("a.png", file.getvalue())})
                else:
                    room = choices.choice(["thumbnails", "images", "api/similar"])
                    answer = await session.get(f"/{room}/{choices.choice(found)['id']}")
                counts[0] += 1
                counts[1] += answer.status_code != 200

    await asyncio.gather(*(client(seed) for seed in range(clients)))
    result.done, result.failed = f"{counts[0]:,} requests", counts[1]


def soak(process: subprocess.Popen[bytes], seconds: float) -> Soaked:
    """Samples the memory of a process, which must live as long."""
    watched, began = psutil.Process(process.pid), time.monotonic()
    result = Soaked([], [])
    while (at := time.monotonic() - began) < seconds:
        if process.poll() is not None:
            sys.exit(f"the process has ended with status {process.returncode}")
        result.seconds.append(at)
        result.megabytes.append(watched.memory_info().rss / 2**20)
        time.sleep(EVERY)
    return result


def soaked_training(folder: Path, seconds: float) -> Soaked:
    """The memory of training."""
    process = subprocess.Popen([sys.executable, __file__, "--train", str(folder / "run")], stdout=subprocess.DEVNULL)
    try:
        result = soak(process, seconds)
    finally:
        process.terminate()
        process.wait()
    newest = max((int(path.name.partition("-")[2]) for path in (folder / "run").glob("checkpoint-*")), default=0)
    result.done = f"{newest:,} steps"
    return result


def soaked_serving(folder: Path, seconds: float, clients: int, port: int) -> Soaked:
    """The memory of a server that is asked."""
    model, images = make_served(folder)
    command = ["serve", str(model), "--images", str(images), "--port", str(port)]
    process = subprocess.Popen([sys.executable, "-m", "babelens", *command], stdout=subprocess.DEVNULL)
    try:
        _wait_for(port, process)

        async def both() -> Soaked:
            sampling = asyncio.create_task(asyncio.to_thread(soak, process, seconds))
            asked = Soaked([], [])
            await ask(port, seconds, clients, asked)
            result = await sampling
            result.done, result.failed = asked.done, asked.failed
            return result

        return asyncio.run(both())
    finally:
        process.terminate()
        process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 180
    while time.monotonic() < until and process.poll() is None:
        try:
            if httpx2.get(f"http://127.0.0.1:{port}/health").status_code == 200:
                return
        except httpx2.TransportError:
            time.sleep(0.2)
    sys.exit("the server does not answer")


def main() -> None:
    """Soaks both, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="for each of the two")
    parser.add_argument("--bound", type=float, default=30, help="growth in megabytes an hour that is allowed")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--port", type=int, default=7893)
    parser.add_argument("--only", choices=["training", "serving"])
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.train is not None:
        train(asked.train)
        return
    wrong = False
    print("| | minutes | done | failed | first MB | last MB | growth in MB an hour |\n|---|---|---|---|---|---|---|")
    for name in [asked.only] if asked.only else ["training", "serving"]:
        with tempfile.TemporaryDirectory() as scratch:
            if name == "training":
                result = soaked_training(Path(scratch), 60 * asked.minutes)
            else:
                result = soaked_serving(Path(scratch), 60 * asked.minutes, asked.clients, asked.port)
        warm = next(i for i, at in enumerate(result.seconds) if at >= WARM_UP * result.seconds[-1])
        wrong |= result.slope() > asked.bound or result.failed > 0
        print(
            f"| {name} | {asked.minutes:g} | {result.done} | {result.failed} | {result.megabytes[warm]:.1f} | "
            f"{result.megabytes[-1]:.1f} | {result.slope():.1f} |",
            flush=True,
        )
    sys.exit(wrong)


if __name__ == "__main__":
    main()
