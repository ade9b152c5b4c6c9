"""Parts that cards share: Markdown-safe texts without secrets and local paths, and the owner of a card."""

import dataclasses
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from huggingface_hub import ModelCard

from ..utils.identity import folder_identity
from ..utils.redaction import names_token, redact

CARD = "README.md"
IDENTITY = "model_identity"  # a key of ours in the metadata
# An absolute path, or one of a home folder, of at least two names; not a part of an address or of another word. In
# quotes it may have spaces.
_START = r"(?:~[\w.-]*/|/[\w.~-][^/\s'\"`|,;()\[\]<>]*/|[A-Za-z]:[\\/])"
_QUOTED = re.compile(rf"(?<![\w./:<-])'({_START}[^'\n]*)'")
_PATH = re.compile(rf"(?<![\w./:<-]){_START}[^\s'\"`|,;()\[\]<>]*")
# Files that may name a path, and those whose tokens may look like one.
_WITH_PATHS = (".md", ".json", ".yaml", ".yml")
_OF_TOKENS = ("tokenizer.json", "vocab.json", "vocabularies.json", "added_tokens.json", "special_tokens_map.json")


def cell(value: Any) -> str:
    """Returns a text as plain words of Markdown: on one line, without markup or HTML."""
    text = " ".join(str(value).splitlines()).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"[\[\]|`]", r"\\\g<0>", text)


def code(value: Any) -> str:
    """Returns a text between backticks; the text may contain some itself."""
    text = " ".join(str(value).splitlines())
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def address(url: Any) -> str:
    """Returns an address of the web for a link; an empty text for any other, such as a script."""
    is_web = str(url).startswith(("https://", "http://"))
    return quote(str(url), safe=":/?#@!$&'*+,;=%~-._") if is_web else ""


def save_card(card: ModelCard, folder: str | Path) -> Path:
    """Writes a card into a model's folder; its metadata name the model whose scores it has."""
    path = Path(folder) / CARD
    if (identity := folder_identity(folder)) is not None:
        card.data[IDENTITY] = identity
    card.save(path)
    return path


def is_of_another_model(metadata: Mapping[str, Any], folder: str | Path) -> bool:
    named, found = metadata.get(IDENTITY), folder_identity(folder)
    return named is not None and found is not None and named != found


def public_name(source: str | Path) -> str:
    """Returns how data or a base model is named: a folder or file by its last name, others as they are."""
    return Path(source).resolve().name if Path(source).exists() else str(publishable(str(source)))


def paths_in(text: str) -> list[str]:
    return list(dict.fromkeys(match.group() for match in _PATH.finditer(text)))


def paths_in_files(folder: Path, names: Iterable[str]) -> list[str]:
    """Returns a sentence for each path of a machine that cards, results and settings name."""
    texts = _published_texts(folder, names)
    return [f"{name} names a path of this machine: {path}" for name, text in texts for path in paths_in(text)]


def tokens_in_files(folder: Path, names: Iterable[str]) -> list[str]:
    """Returns a sentence for each of the same files that holds a token, such as one of the Hub."""
    return [
        f"{name} holds a token or a key: remove it, and revoke it if others have seen the file"
        for name, text in _published_texts(folder, names)
        if names_token(text)
    ]


def _published_texts(folder: Path, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    for name in names:
        if name.endswith(_WITH_PATHS) and Path(name).name not in _OF_TOKENS:
            yield name, (folder / name).read_text(encoding="utf-8", errors="replace")


def publishable(value: Any) -> Any:
    """Returns a text, or a list, mapping or dataclass of texts, without secrets, and with paths cut to their last
    name."""
    if isinstance(value, str):
        quoted = _QUOTED.sub(lambda match: shlex.quote(_last(match[1])), redact(value))
        return _PATH.sub(lambda match: _last(match[0]), quoted)
    if isinstance(value, Mapping):
        return {key: publishable(redact(each, str(key))) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [publishable(each) for each in redact(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {each.name: getattr(value, each.name) for each in dataclasses.fields(value) if each.init}
        return dataclasses.replace(value, **{name: publishable(given) for name, given in fields.items()})
    return value


def _last(path: str) -> str:
    return re.split(r"[\\/]", path.rstrip("\\/"))[-1]
