"""The folders that a command writes: each holds a whole model or none, and replaces no model of others."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from .utils.files import SCRATCH, apply_umask, ensure_parents, errors_naming, remove_unfinished
from .utils.identity import holds_weights

# Loaders read one of these files first. It is removed before the other files are replaced, and written after them.
_FIRST_READ = ("config.json", "adapter_config.json")
_WEIGHTS = re.compile(r"(model|adapter_model)(-\d{5}-of-\d{5})?\.safetensors(\.index\.json)?")


def check_free(output: str | Path) -> None:
    """Raises a FileExistsError for a folder whose model, README.md or config.json would be overwritten."""
    if holds_weights(output):
        raise FileExistsError(f"{output} holds a model already: choose another folder")
    for name in ("README.md", "config.json"):
        if Path(output, name).exists():
            raise FileExistsError(f"{output} has a {name} already: choose another folder")


@contextmanager
def atomic_directory(folder: str | Path) -> Iterator[Path]:
    """Yields a scratch folder, and moves its files to `folder` if the block ends without an error; errors of the disk
    become a `SaveError`. If the process is killed, `folder` is unchanged, or has no configuration and does not load:
    the weights of one model never end up next to the configuration of another. Other files in `folder` are kept,
    except the weights of the model that is replaced."""
    folder = Path(folder).resolve()
    with errors_naming(folder), ensure_parents(folder):
        remove_unfinished(folder)
        with TemporaryDirectory(prefix=SCRATCH, dir=folder) as temporary:
            scratch = Path(temporary)
            yield scratch
            files = sorted(path.relative_to(scratch) for path in scratch.rglob("*") if path.is_file())
            apply_umask(*(scratch / file for file in files))
            if blocked := [file for file in files if (folder / file).is_dir()]:
                raise IsADirectoryError(f"{blocked[0]} is a folder")
            if any(file.name in _FIRST_READ for file in files if not file.parent.name):  # a model replaces another
                for path in [folder / name for name in _FIRST_READ] + [*folder.iterdir()]:
                    if path.name in _FIRST_READ or (_WEIGHTS.fullmatch(path.name) and Path(path.name) not in files):
                        path.unlink(missing_ok=True)
            for file in sorted(files, key=lambda file: str(file) in _FIRST_READ):
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                os.replace(scratch / file, folder / file)
