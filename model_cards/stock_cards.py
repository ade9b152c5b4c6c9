"""The card of a stock folder of transformers, from the card of the model that it was made of."""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import ModelCard

from .card_text import CompactCard, save_card
from .result_tables import RESULTS_FILE

_CARD = "README.md"
_EXAMPLES = "examples"
# What only the model's own code understands, in the examples of a card.
_OF_OWN_CODE = re.compile(r', (?:trust_remote_code=True|prompt_name="[^"]*"|language=(?:"[^"]*"|\[[^]]*\]))')
_PROCESSED = re.compile(r'(processor\([^\n]*?)return_tensors="pt"')
_SENTENCES = re.compile(
    r"^(?:With `import babelens` first, .*|The Python files beside the weights .*)$\n?", re.MULTILINE
)
_PROMPTS = "; a prompt names the language of the texts"
_RESULTS_OF_ALL = ("model-index", "widget", "metrics", "language_bcp47", "inference", "model_identity")


def write_stock_card(
    folder: Path, source: Path, *, class_name: str, lost: Sequence[str] = (), language: str | None = None
) -> Path | None:
    """Writes the card of a stock folder.

    Args:
        folder: the stock folder.
        source: the folder of the model that it was made of, with its card.
        class_name: the class of transformers in the stock folder.
        lost: what the model has and the stock folder lacks.
        language: the only language that the stock folder reads as the model does. Results are then left out, which
            hold for the whole model.

    Returns:
        The card's file, or None where the model has no card.
    """
    if not (source / _CARD).is_file():
        return None
    given = ModelCard.load(source / _CARD, ignore_metadata_errors=True)
    metadata = given.data.to_dict()
    metadata["tags"] = [tag for tag in metadata.get("tags") or [] if tag != "custom_code"]
    if language is not None:
        for name in _RESULTS_OF_ALL:
            metadata.pop(name, None)
        metadata["language"] = [language.partition("-")[0]]
    text = _own_title(given.text, source.resolve().name) if language else _stock_text(given.text)
    card = CompactCard(f"---\n{{}}\n---\n{_with_note(text, class_name, lost)}")
    card.data = CompactCard.card_data_class(**metadata, ignore_metadata_errors=True)
    if language is None:
        for name in (_EXAMPLES, RESULTS_FILE):
            if (source / name).is_dir():
                shutil.copytree(source / name, folder / name)
            elif (source / name).is_file():
                shutil.copyfile(source / name, folder / name)
    return save_card(card, folder)


def _stock_text(text: str) -> str:
    text = _SENTENCES.sub("", text.replace(_PROMPTS, ""))
    return _PROCESSED.sub(r'\1padding=True, truncation=True, return_tensors="pt"', _OF_OWN_CODE.sub("", text))


def _own_title(text: str, name: str) -> str:
    """The title of a card alone."""
    found = re.search(r"^# .*$", text, re.MULTILINE)
    return f"\n{found[0] if found else f'# {name}'}\n"


def _with_note(text: str, class_name: str, lost: Sequence[str]) -> str:
    """A card's text with a paragraph below its title that says what the folder is."""
    note = (
        f"This repository holds the model as stock `{class_name}` of transformers: it loads without babelens, without "
        "`trust_remote_code` and without a language, with the same embeddings."
    )
    if lost:
        note += f" It lacks {'; '.join(lost)}."
    title = re.search(r"^# .*$", text, re.MULTILINE)
    end = title.end() if title else 0
    return f"{text[:end]}\n\n{note}\n{text[end:]}"
