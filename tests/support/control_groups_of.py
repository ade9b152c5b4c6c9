"""Files as Linux shows the control groups of a process."""

from collections.abc import Mapping
from pathlib import Path


def written_groups(folder: Path, own: str, files: Mapping[str, str]) -> dict[str, Path]:
    """Writes the groups of a process (`own`) and settings by their path; returns the arguments `root` and `own`."""
    (folder / "own").write_text(own)
    for name, content in files.items():
        file = folder / "cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return {"root": folder / "cgroup", "own": folder / "own"}
