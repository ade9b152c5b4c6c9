"""Fetches the test suites of the installed transformers and peft: `python tests/peers/fetch.py FOLDER`. They come from
the source distributions on PyPI, of exactly the installed versions."""

import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

PACKAGES = ("transformers", "peft")


def fetch(folder: Path) -> None:
    for package in PACKAGES:
        name = f"{package}-{version(package)}"
        if (folder / name).is_dir():
            continue
        with tempfile.TemporaryDirectory() as scratch:
            wanted = name.replace("-", "==")
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", package]
            subprocess.run([*command, "--dest", scratch, wanted], check=True)
            with tarfile.open(next(Path(scratch).glob("*.tar.gz"))) as archive:
                members = [member for member in archive if member.name.startswith(f"{name}/tests/")]
                archive.extractall(Path(scratch) / "unpacked", members, filter="data")
            folder.mkdir(parents=True, exist_ok=True)
            (Path(scratch) / "unpacked" / name).rename(folder / name)
        print(f"{name}: its tests are in {folder / name}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    fetch(Path(sys.argv[1]))
