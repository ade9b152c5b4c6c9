"""Commands that take long, killed at random moments and run again until they are whole.

The command line does the same with as many kills as it is given, and prints a table:

    python -m tests.support.killed_commands --kills 50
"""

import argparse
import hashlib
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import torch
import yaml
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import ConvNextImageProcessorPil, ResNetConfig, ResNetModel

from tests.support.acquired_languages import sentences, write_tsv
from tests.support.forks import forked
from tests.support.image_sources import write_images
from tests.support.tiny_native import saved, tiny_clip
from tests.support.tiny_recipes import mural
from tests.support.tiny_training import write_shapes

SHARDS = ("--shard-size", "2", "--batch-size", "2")


@dataclass(frozen=True)
class Command:
    """A command, and what tells whether it has been completed.

    Args:
        arguments: the arguments; `{output}` stands for its output.
        output: the name of its output.
        resumed: arguments that a repeated run has beside them.
        finished: the file of the output that exists when the run is complete; the output itself by default.
        before: the output of another command, which is copied to `output` first.
        compared: endings of the files that must be equal to those of an undisturbed run.
    """

    arguments: list[str]
    output: str
    resumed: list[str] = field(default_factory=list)
    finished: str = ""
    before: str | None = None
    compared: tuple[str, ...] = (".safetensors", ".parquet", "config.json", "tokenizer.json", ".f16", ".npy")

    def filled(self, folder: Path, *, again: bool = False) -> list[str]:
        """The arguments with the output in a folder."""
        output = str(folder / self.output)
        return [each.format(output=output) for each in self.arguments] + (self.resumed if again else [])


@dataclass
class Outcome:
    """What became of a command.

    Args:
        seconds: how long it takes undisturbed.
        kills: how often it was killed.
        lives: how often it ended by itself before it was killed.
        finished: how often it had been completed when it was killed.
        broken: what was wrong, a sentence for each case.
    """

    seconds: float
    kills: int = 0
    lives: int = 0
    finished: int = 0
    broken: list[str] = field(default_factory=list)


def commands(folder: Path) -> dict[str, Command]:
    """The commands, with the tiny models and data that they read, which are made in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    saved(tiny_clip(), folder / "clip")
    write_tsv(folder / "german.tsv", ["de", "en"], sentences())
    (folder / "shapes").mkdir()
    write_shapes(folder / "shapes")
    images = write_images(folder / "images", range(24))
    recipe = mural(folder / "shapes")
    recipe["training"] |= {"max_steps": 6, "save_strategy": "steps", "save_steps": 2, "disable_tqdm": True}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    (folder / "texts.txt").write_text("\n".join(row["en"] for row in sentences()), encoding="utf-8")
    torch.manual_seed(0)
    resnet = ResNetModel(ResNetConfig(embedding_size=8, hidden_sizes=[8, 12], depths=[1, 1], layer_type="basic"))
    resnet.save_pretrained(folder / "resnet")
    ConvNextImageProcessorPil().save_pretrained(folder / "resnet")
    clip, at = str(folder / "clip"), ["--output", "{output}"]
    index = ["--images", str(images), "--model", clip]
    features = ["--data", str(folder / "shapes"), "--resize", "36", "--crop", "32"]
    german = ["--base", clip, "--language", "de", "--translations", str(folder / "german.tsv")]
    solved = [*german, *at, "--set", "names=false"]
    return {
        "train": Command(["train", str(folder / "recipe.yaml"), *at], "train", ["--resume"], "results.json"),
        "acquire": Command(["acquire", *solved], "acquire", [], "README.md"),
        "embed": Command(["embed", clip, "--images", str(images), *at, *SHARDS], "embed", [], "counts.json"),
        "embed a file": Command(["embed", clip, "--images", str(images), *at], "embed.npy"),
        "features": Command(["features", str(folder / "resnet"), *features, *at], "features"),
        "data": Command(["data", str(folder / "shapes"), *at], "data"),
        "trim": Command(["trim", clip, "--texts", str(folder / "texts.txt"), *at], "trim", finished="config.json"),
        "index": Command(["index", *index, *at], "index", finished="vectors.lance"),
        "export": Command(["export", clip, *at], "export"),
        "export in place": Command(["export", "{output}", *at], "copy", before="trim"),
        "export stock": Command(["export", clip, *at, "--format", "transformers"], "stock"),
    }


def killed(command: Command, kills: int, folder: Path, seed: int = 0, before: Path | None = None) -> Outcome:
    """Kills a command so often at random moments, and repeats it after each kill until it is whole.

    Every run after a kill goes on with what the killed one left; when one is whole, the next begins anew.
    """
    moments = random.Random(seed)
    whole = folder / "whole"
    _begin(command, whole, before)
    began = time.perf_counter()
    assert _run(command.filled(whole), None) == 0
    outcome = Outcome(time.perf_counter() - began)
    expected = digests(whole / command.output, command.compared)
    life, again = 0, False
    while outcome.kills < kills:
        place = folder / f"life{life}"
        if not again:
            _begin(command, place, before)
        status = _run(
            command.filled(place, again=again and _has_begun(command, place)), moments.random() * outcome.seconds
        )
        if status == -signal.SIGKILL:
            outcome.kills += 1
            again = True
            if not _is_finished(command, place, expected) and outcome.kills < kills:
                continue
        elif status != 0 and not (again and _is_finished(command, place, expected)):
            outcome.broken.append(f"kill {outcome.kills}: the next run ended with {status}: {_said()}")
        _complete(command, place, outcome, expected, was_killed=status == -signal.SIGKILL)
        shutil.rmtree(place)
        life, again = life + 1, False
    return outcome


def _complete(command: Command, place: Path, outcome: Outcome, expected: dict[str, str], *, was_killed: bool) -> None:
    """Lets a command end, if it has not, and compares its output with that of an undisturbed run."""
    if was_killed and _is_finished(command, place, expected):
        outcome.finished += 1
    elif was_killed:
        status = _run(command.filled(place, again=_has_begun(command, place)), None)
        if status != 0 and not _is_finished(command, place, expected):
            outcome.broken.append(f"kill {outcome.kills}: it does not go on: {_said()}")
            return
    else:
        outcome.lives += 1
    found = digests(place / command.output, command.compared)
    if found != expected:
        differ = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
        outcome.broken.append(f"kill {outcome.kills}: other files than undisturbed: {', '.join(differ)}")


def _begin(command: Command, place: Path, before: Path | None) -> None:
    place.mkdir(parents=True)
    if before is not None:
        shutil.copytree(before, place / command.output)


def _has_begun(command: Command, place: Path) -> bool:
    """Whether there is anything to resume; a command with --resume refuses to resume nothing."""
    return (place / command.output).exists()


def _is_finished(command: Command, place: Path, expected: dict[str, str]) -> bool:
    output = place / command.output
    if not (output / command.finished if command.finished else output).exists():
        return False
    return digests(output, command.compared) == expected


def doubled(known: dict[str, Command], name: str, folder: Path) -> tuple[list[int], bool]:
    """Runs a command twice at the same time with one output. Returns the exit statuses, and whether the output is that
    of one undisturbed run."""
    command, before = known[name], _before(known, name, folder)
    places = [folder / "one", folder / "two"]
    for place in places:
        _begin(command, place, before)
    assert _run(command.filled(places[0]), None) == 0, _said()
    children = [_started(command.filled(places[1])) for _ in range(2)]
    statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    one, two = (digests(place / command.output, command.compared) for place in places)
    return statuses, one == two


def _started(arguments: list[str]) -> int:
    """Starts a command in a process of its own; returns its number."""
    child = forked()
    if child == 0:
        _live(arguments)
    return child


def _run(arguments: list[str], seconds: float | None) -> int:
    """Runs a command in a process of its own, which is killed after some seconds; returns its exit status."""
    child = _started(arguments)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _live(arguments: list[str]) -> NoReturn:
    from babelens.cli.main import main

    status = 1
    try:
        with open(LOG, "w", encoding="utf-8") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            sys.argv = ["babelens", *arguments]
            try:
                main()
            except SystemExit as ended:
                status = int(ended.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


LOG = Path(tempfile.gettempdir()) / f"killed-commands-{os.getpid()}.log"


def _said() -> str:
    return " ".join(LOG.read_text(encoding="utf-8").split()[-40:])


def digests(output: Path, endings: tuple[str, ...]) -> dict[str, str]:
    """Digests of the content of the files of an output, by name; not of checkpoints, which differ by times."""
    files = [output] if output.is_file() else [path for path in output.rglob("*") if path.is_file()]
    return {
        _RANDOM.sub("", str(path.relative_to(output))): _digest(path)
        for path in files
        if path.name.endswith(endings) and "checkpoints" not in path.relative_to(output).parts
    }


_OF_THE_PROCESS = {"is_local", "local_files_only", "truncation", "padding"}
# What an index adds to the names of its parts.
_RANDOM = re.compile(r"-[0-9a-f]{8}(?=/)")


def _digest(path: Path) -> str:
    try:
        content = _content(path)
    except (ValueError, SafetensorError):  # the kill came while the file of a checkpoint was written
        content = path.read_bytes()
    return hashlib.sha256(content).hexdigest()


def _content(path: Path) -> bytes:
    """What is compared of a file."""
    if path.suffix == ".safetensors":  # metadata apart
        tensors = load_file(path)
        return b"".join(
            name.encode() + tensors[name].reshape(-1).view(torch.uint8).numpy().tobytes() for name in sorted(tensors)
        )
    if path.name in ("tokenizer_config.json", "tokenizer.json"):
        # transformers adds where a tokenizer was loaded from, and how its last call cut and filled texts.
        kept = json.loads(path.read_text(encoding="utf-8"))
        return json.dumps({name: kept[name] for name in sorted(kept.keys() - _OF_THE_PROCESS)}).encode()
    return path.read_bytes()


def main() -> None:
    """Kills every command, and prints what became of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--commands", default="", help="some of them, separated by commas")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        known = commands(folder / "brought")
        chosen = [name for name in asked.commands.split(",") if name] or list(known)
        print("| command | undisturbed | kills | ended before the kill | whole when killed | broken |")
        print("|---|---|---|---|---|---|")
        broken = 0
        for name in chosen:
            outcome = killed_command(known, name, asked.kills, folder / "runs", asked.seed)
            broken += len(outcome.broken)
            print(
                f"| {name} | {outcome.seconds:.2f} s | {outcome.kills} | {outcome.lives} | {outcome.finished} | "
                f"{len(outcome.broken)} |",
                flush=True,
            )
            for sentence in outcome.broken:
                print(f"  {sentence}", file=sys.stderr, flush=True)
    sys.exit(broken > 0)


def killed_command(known: dict[str, Command], name: str, kills: int, folder: Path, seed: int = 0) -> Outcome:
    """`killed` for one of `commands`, after the command whose output it begins with."""
    place = folder / name.replace(" ", "-")
    return killed(known[name], kills, place, seed, _before(known, name, place))


def _before(known: dict[str, Command], name: str, folder: Path) -> Path | None:
    """The output that a command begins with, if there is one."""
    if known[name].before is None:
        return None
    first = known[known[name].before or ""]
    before = folder / "before" / first.output
    before.parent.mkdir(parents=True)
    assert _run(first.filled(before.parent), None) == 0, _said()
    return before


if __name__ == "__main__":
    main()
