"""A card as text: metadata that stay short with many languages and results, above the card's Markdown.

`huggingface_hub` writes every value of the metadata on a line of its own; a hundred languages, or the results in them,
would fill more lines than the text. Long lists are folded here; each result and each example has one line.
"""

import dataclasses
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml
from huggingface_hub import ModelCard, ModelCardData

from ..utils.identity import folder_identity
from ..utils.redaction import names_token, redact

IDENTITY = "model_identity"  # a key of ours in the metadata
_MODEL_INDEX = "model-index"
# A list with more texts than this is folded; a shorter one has one on each line.
_LONG_LIST = 10
_WIDTH = 119
_IN_ADDRESSES = ":/?#@!$&'*+,;=%~-._"


def cell(value: Any) -> str:
    """Returns a text as plain words of Markdown, in a table or elsewhere: on one line, without markup or HTML."""
    text = " ".join(str(value).splitlines()).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"[\[\]|`]", lambda match: f"\\{match[0]}", text)


def code(value: Any) -> str:
    """Returns a text between backticks, of which it may have some itself."""
    text = " ".join(str(value).splitlines())
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def address(url: Any) -> str:
    """Returns an address of the web for a link; an empty text for any other, such as a script."""
    return quote(str(url), safe=_IN_ADDRESSES) if str(url).startswith(("https://", "http://")) else ""


class CompactCardData(ModelCardData):
    """The metadata of a card, as short YAML."""

    def to_yaml(self, line_break: str | None = None, original_order: list[str] | None = None) -> str:
        """The YAML block; arguments as in `ModelCardData.to_yaml`."""
        super().to_yaml(line_break, original_order)  # puts the keys in that order
        blocks = [_block(key, value) for key, value in self.to_dict().items()]
        text = "".join(blocks).strip()
        return text if line_break is None else re.sub(r"\n", lambda _: line_break, text)


class CompactCard(ModelCard):
    """A model card whose metadata are short YAML."""

    card_data_class = CompactCardData


def save_card(card: ModelCard, folder: str | Path) -> Path:
    """Writes a card into a model's folder; its metadata name the model whose scores it has (`folder_identity`)."""
    path = Path(folder) / "README.md"
    if (identity := folder_identity(folder)) is not None:
        card.data[IDENTITY] = identity
    card.save(path)
    return path


def is_of_another_model(metadata: Mapping[str, Any], folder: str | Path) -> bool:
    """Whether a card, by its metadata, was written for another model than the one in its folder. A card of an earlier
    version does not say for which."""
    named, found = metadata.get(IDENTITY), folder_identity(folder)
    return named is not None and found is not None and named != found


def _block(key: str, value: Any) -> str:
    if key == _MODEL_INDEX:
        models = [f"- name: {_flow(model['name'])}  results:\n{_lines(model['results'], '  ')}" for model in value]
        return f"{key}:\n{''.join(models)}"
    if isinstance(value, list) and any(isinstance(each, dict | list) for each in value):
        return f"{key}:\n{_lines(value, '')}"
    if isinstance(value, list) and len(value) > _LONG_LIST:
        return f"{key}:\n{_indented(_flow(value, _WIDTH - 2), '  ')}"
    return str(yaml.safe_dump({key: value}, sort_keys=False, allow_unicode=True))


def _lines(values: list[Any], by: str) -> str:
    """A list with one value on each line."""
    return "".join(f"{by}- {_flow(value)}" for value in values)


def _flow(value: Any, width: int | float = float("inf")) -> str:
    """A value in brackets, on lines of at most this width; with the end of the line."""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=width)
    return str(text).removesuffix("...\n")


def _indented(text: str, by: str) -> str:
    return "".join(f"{by}{line}\n" for line in text.splitlines())


# ---- What is published names no secret and no path of the machine: of a folder it has the name, not the place ----


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
    return Path(source).resolve().name if Path(source).exists() else str(publishable(str(source)))


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
        for name, text in _published_texts(folder, names)
        for path in paths_in(text)
    ]


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
    """Returns a text, or a list, mapping or dataclass of texts, without secrets (`redact`), and with the last name of
    each path of the machine."""
    if isinstance(value, str):
        value = redact(value)
        quoted = _QUOTED.sub(lambda match: shlex.quote(_last(match[1])), value)
        return _PATH.sub(lambda match: _last(match.group()), quoted)
    if isinstance(value, Mapping):
        return {key: publishable(redact(each, str(key))) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [publishable(each) for each in redact(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {each.name: getattr(value, each.name) for each in dataclasses.fields(value) if each.init}
        changed = {name: publishable(given) for name, given in fields.items()}
        return dataclasses.replace(value, **{name: each for name, each in changed.items() if each != fields[name]})
    return value


def _last(path: str) -> str:
    return re.split(r"[\\/]", path.rstrip("\\/"))[-1]
