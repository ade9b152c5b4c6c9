"""Parts that cards share: Markdown-safe texts without secrets and local paths, and the owner of a card."""

import dataclasses
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from huggingface_hub import ModelCard

from ..utils.identity import folder_identity
from ..utils.redaction import redact

CARD = "README.md"
IDENTITY = "model_identity"  # a key of ours in the metadata
# An absolute path, or one of a home folder, of at least two names; not a part of an address or of another word. In
# quotes it may have spaces.
_START = r"(?:~[\w.-]*/|/[\w.~-][^/\s'\"`|,;()\[\]<>]*/|[A-Za-z]:[\\/])"
_QUOTED = re.compile(rf"(?<![\w./:<-])'({_START}[^'\n]*)'")
_PATH = re.compile(rf"(?<![\w./:<-]){_START}[^\s'\"`|,;()\[\]<>]*")


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


def publishable(value: Any) -> Any:
    """Returns texts, in lists, mappings and dataclasses too, without secrets and with only the last name of paths."""
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
