"""Keeps paths of the machine out of what is published: cards and reports name a folder, and not where it is."""

import dataclasses
import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

# An absolute path, or one of a home folder, of at least two names; not a part of an address or of another word. In
# quotes it may have spaces.
_START = r"(?:~[\w.-]*/|/[\w.~-][^/\s'\"`|,;()\[\]<>]*/|[A-Za-z]:[\\/])"
_QUOTED = re.compile(rf"(?<![\w./:<-])'({_START}[^'\n]*)'")
# Files that may name a path, and those whose tokens may look like one.
_WITH_PATHS = (".md", ".json", ".yaml", ".yml")
_OF_TOKENS = ("tokenizer.json", "vocab.json", "vocabularies.json", "added_tokens.json", "special_tokens_map.json")
_PATH = re.compile(rf"(?<![\w./:<-]){_START}[^\s'\"`|,;()\[\]<>]*")


def public_name(source: str | Path) -> str:
    """Returns how a source of data or a base model is named: a folder or file by its last name, and what is on the Hub
    as it is."""
    return Path(source).resolve().name if Path(source).exists() else str(without_paths(str(source)))


def paths_in(text: str) -> list[str]:
    """Returns the paths of a machine that a text names, each once."""
    return list(dict.fromkeys(match.group() for match in _PATH.finditer(text)))


def paths_in_files(folder: Path, names: Iterable[str]) -> list[str]:
    """Returns the paths of a machine that cards, results and settings name, one sentence each. They tell strangers the
    names of users and folders, and mean nothing to them.

    Args:
        folder: the folder of the files.
        names: their names in it, with `/`; other kinds of files are left out.
    """
    return [
        f"{name} names a path of this machine: {path}"
        for name in names
        if name.endswith(_WITH_PATHS) and Path(name).name not in _OF_TOKENS
        for path in paths_in((folder / name).read_text(encoding="utf-8", errors="replace"))
    ]


def without_paths(value: Any) -> Any:
    """Returns a text, or a list, mapping or dataclass of texts, with the last name of each path of the machine."""
    if isinstance(value, str):
        quoted = _QUOTED.sub(lambda match: shlex.quote(_last(match[1])), value)
        return _PATH.sub(lambda match: _last(match.group()), quoted)
    if isinstance(value, Mapping):
        return {key: without_paths(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_paths(each) for each in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {each.name: getattr(value, each.name) for each in dataclasses.fields(value) if each.init}
        changed = {name: without_paths(given) for name, given in fields.items()}
        return dataclasses.replace(value, **{name: each for name, each in changed.items() if each != fields[name]})
    return value


def _last(path: str) -> str:
    return re.split(r"[\\/]", path.rstrip("\\/"))[-1]
