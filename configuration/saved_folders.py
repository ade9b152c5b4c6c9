"""Recognizes folders whose saving was interrupted; `trainers.checkpoints` describes how folders are saved."""

from pathlib import Path

from .errors import ModelFolderError

# Folders of completely written files: before they are moved to their places, and while they are.
WHOLE, MOVING = ".saved", ".moving"
# Loaders read one of these first; it is removed before other files are moved, and put back after them.
FIRST_READ = ("config.json", "adapter_config.json")


def check_finished(folder: str | Path) -> None:
    """Checks that a folder was saved completely.

    Args:
        folder: the folder to load from; the name of a repository on the Hub always passes.

    Raises:
        ModelFolderError: if the folder has no configuration because its saving was interrupted.
    """
    folder = Path(folder)
    if any((folder / name).is_file() for name in FIRST_READ):
        return
    for name in (WHOLE, MOVING):
        if (folder / name).is_dir():
            raise ModelFolderError(
                f"{folder} was being saved when its process was killed, and cannot be loaded as it is. Its files were "
                f"written whole, to {folder / name}: the command that saved it, with --resume, moves them to their "
                "places"
            )
