"""`babelens serve` under load: latency, errors, and the memory of the server before and after.

    python benchmarks/serve_load.py runs/demo-mural runs/emoji --clients 50 --seconds 60

Clients of one process ask one after the other, without a pause: nine of ten requests are searches by a text, each with
a text of its own, and one is a thumbnail of a result. Server and clients share the machine. Memory is the resident set
of the server, after a warm-up of a tenth of the time and at the end.
"""

import argparse
import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx2
import numpy as np

WORDS = [
    "red",
    "rotes",
    "rouge",
    "Herz",
    "heart",
    "cat",
    "Katze",
    "gato",
    "house",
    "car",
    "sun",
    "Hund",
    "tree",
    "fish",
]


@dataclass
class Load:
    """What was measured.

    Attributes:
        clients: clients that asked at the same time.
        seconds: for how long.
        requests: requests that were answered.
        errors: requests that were not answered with status 200.
        p50, p99, longest: latency in milliseconds.
        memory: resident memory of the server in MB, after the warm-up and at the end.
    """

    clients: int
    seconds: float
    requests: int
    errors: int
    p50: float
    p99: float
    longest: float
    memory: tuple[float, float]


def memory_of(process: int) -> float:
    """The resident memory of a process in MB."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    return int(found[1]) / 1024 if found else float("nan")


async def load(address: str, process: int, *, clients: int, seconds: float, language: str = "en") -> Load:
    """Asks a server for some time.

    Args:
        address: the address of the server.
        process: the id of its process.
        clients: clients that ask at the same time.
        seconds: for how long.
        language: the language of the queries.
    """
    latencies: list[float] = []
    errors = 0
    end = time.monotonic() + seconds
    limits = httpx2.Limits(max_connections=clients, max_keepalive_connections=clients)

    async def client(http: httpx2.AsyncClient, seed: int) -> None:
        nonlocal errors
        choice, thumbnail = random.Random(seed), ""
        while time.monotonic() < end:
            is_search = not thumbnail or choice.random() < 0.9
            text = f"{' '.join(choice.choices(WORDS, k=3))} {choice.randrange(10**6)}"
            started = time.perf_counter()
            try:
                if is_search:
                    answer = await http.get("api/search", params={"q": text, "language": language, "top": 24})
                else:
                    answer = await http.get(thumbnail)
            except httpx2.HTTPError:
                errors += 1
                continue
            latencies.append(time.perf_counter() - started)
            errors += answer.status_code != 200
            if is_search and answer.status_code == 200:
                thumbnail = choice.choice(answer.json()["results"])["thumbnail"]

    async with httpx2.AsyncClient(base_url=address, limits=limits, timeout=60, trust_env=False) as http:
        asking = [asyncio.create_task(client(http, seed)) for seed in range(clients)]
        await asyncio.sleep(seconds / 10)
        before = memory_of(process)
        await asyncio.gather(*asking)
    p50, p99, longest = (1000 * float(np.percentile(latencies, share)) for share in (50, 99, 100))
    return Load(clients, seconds, len(latencies), errors, p50, p99, longest, (before, memory_of(process)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("images")
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--language", default="en", help="the language of the queries")
    options = parser.parse_args()
    command = [sys.executable, "-m", "babelens", "serve", options.model, "--images", options.images, "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        line = server.stdout.readline() if server.stdout else ""
        found = re.search(r"http://\S+", line)
        if not found:
            sys.exit("the server has not started")
        measured = asyncio.run(
            load(found[0], server.pid, clients=options.clients, seconds=options.seconds, language=options.language)
        )
        print(json.dumps(asdict(measured) | {"cores": os.cpu_count(), "load_average": os.getloadavg()[0]}))
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(20)


if __name__ == "__main__":
    main()
