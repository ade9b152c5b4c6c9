"""Trims the vocabulary of a tokenizer to the pieces that texts in some languages need: RC3 keeps those that cover
99.99 % of its seven languages (Zhou et al. 2023, section 3.2). `modeling.embedding_trimming` trims the model. Kept are

    special tokens, language codes, added tokens, and tokens that configurations name by their id;
    the characters of the texts, each as a piece, and all byte pieces, so every text can still be spelled;
    the pieces of the texts, most frequent first, until they cover the requested share of all occurrences.

Pieces keep their order and scores, so a text whose pieces are all kept is segmented as before: Unigram's best path
still exists and no new path competes, and WordPiece's longest match is still the longest.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from ..utils.errors import InputError
from ..utils.files import errors_naming

KINDS = ("Unigram", "WordPiece")
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
_TEXTS_AT_ONCE = 1000


def count_pieces(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> np.ndarray:
    """Counts how often each piece occurs in texts, without the special tokens around them: int64 [vocabulary]."""
    _specification(tokenizer)
    counts = np.zeros(max(tokenizer.get_vocab().values()) + 1, dtype=np.int64)
    plain = {"add_special_tokens": False, "truncation": False, "padding": False, "verbose": False}
    for start in range(0, len(texts), _TEXTS_AT_ONCE):
        rows = tokenizer(list(texts[start : start + _TEXTS_AT_ONCE]), **plain)["input_ids"]
        counts += np.bincount(np.concatenate(rows).astype(np.int64), minlength=len(counts))
    if not counts.any():
        raise InputError("there are no texts to count pieces in")
    return counts


def choose_pieces(
    tokenizer: PreTrainedTokenizerBase, counts: np.ndarray, *, coverage: float = 0.9999, always: Iterable[int] = ()
) -> list[int]:
    """Returns the ids to keep, ascending, which cover at least `coverage` of all occurrences; the new id of a piece is
    its index. `always` are ids to keep in any case, such as those in configurations."""
    if not 0 < coverage <= 1:
        raise InputError(f"coverage={coverage} must be above 0 and at most 1")
    specification, vocabulary = _specification(tokenizer), tokenizer.get_vocab()
    model = specification["model"]
    unknown = model["unk_id"] if model["type"] == "Unigram" else vocabulary.get(model["unk_token"])
    kept = {*always, *tokenizer.all_special_ids, *(token["id"] for token in specification["added_tokens"]), unknown}
    kept |= {ids[place] for ids, places in _template_ids(specification["post_processor"]) for place in places}
    kept -= {None}
    if missing := sorted(kept - set(vocabulary.values())):
        raise InputError(f"the model's configuration names token {missing[0]}, which its tokenizer does not have")
    # Byte pieces, and pieces that are a single character of the texts, can spell any text.
    prefix = model.get("continuing_subword_prefix") or ""  # WordPiece's ##
    characters = set().union(*(piece.removeprefix(prefix) for piece, number in vocabulary.items() if counts[number]))
    kept |= {
        n for piece, n in vocabulary.items() if piece.removeprefix(prefix) in characters or _BYTE.fullmatch(piece)
    }
    covered, wanted = counts[sorted(kept)].sum(), coverage * counts.sum()
    for piece in np.argsort(-counts, kind="stable").tolist():
        if covered >= wanted:
            break
        if piece not in kept:
            kept.add(piece)
            covered += counts[piece]
    return sorted(kept)


def trim_tokenizer(tokenizer: PreTrainedTokenizerBase, kept: Sequence[int]) -> PreTrainedTokenizerBase:
    """Returns the same tokenizer with only the pieces `kept` (from `choose_pieces`)."""
    specification, new_ids = _specification(tokenizer), {old: new for new, old in enumerate(kept)}
    model = specification["model"]
    if model["type"] == "Unigram":  # a list of [piece, score]: the index is the id
        model["vocab"] = [entry for token_id, entry in enumerate(model["vocab"]) if token_id in new_ids]
        model["unk_id"] = new_ids[model["unk_id"]]
    else:
        model["vocab"] = {piece: new_ids[old] for piece, old in model["vocab"].items() if old in new_ids}
    for token in specification["added_tokens"]:
        token["id"] = new_ids[token["id"]]
    if specification["padding"]:
        specification["padding"]["pad_id"] = new_ids[specification["padding"]["pad_id"]]
    for ids, positions in _template_ids(specification["post_processor"]):
        for position in positions:
            ids[position] = new_ids[ids[position]]
    with TemporaryDirectory() as folder:
        with errors_naming(folder):
            tokenizer.save_pretrained(folder)
        Path(folder, "tokenizer.json").write_text(json.dumps(specification, ensure_ascii=False), "utf-8")
        trimmed = type(tokenizer).from_pretrained(folder)
    if trimmed.get_vocab() != {piece: new_ids[old] for piece, old in tokenizer.get_vocab().items() if old in new_ids}:
        raise InputError(f"{type(tokenizer).__name__} does not load the pieces that were saved for it")
    return trimmed


def _specification(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise InputError(f"{type(tokenizer).__name__} is not a fast tokenizer; only fast ones can be trimmed")
    specification = json.loads(tokenizer.backend_tokenizer.to_str())
    kind = specification["model"]["type"]
    if kind not in KINDS:
        raise InputError(f"a vocabulary of the kind {kind} cannot be trimmed; {', '.join(KINDS)} can")
    return specification


def _template_ids(processor: dict[str, Any] | None) -> Iterator[tuple[list[Any], Sequence[int]]]:
    """Yields the lists with ids of tokens that a post-processor adds (`special_tokens`, `cls`, `sep`), and their
    positions."""
    for token in (processor or {}).get("special_tokens", {}).values():
        yield token["ids"], range(len(token["ids"]))
    for name in {"cls", "sep"} & (processor or {}).keys():
        yield processor[name], [1]  # type: ignore[index]
    for inner in (processor or {}).get("processors", ()):
        yield from _template_ids(inner)
