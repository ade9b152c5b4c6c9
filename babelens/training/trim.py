"""Trims the vocabulary of a checkpoint to a set of texts, which the smaller model reads in the same way: of babelens
models that read word pieces, and any with a fast Unigram or WordPiece tokenizer (mBART, XLM-R, M-BERT, …)."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import transformers
from torch import nn
from transformers import AutoProcessor, PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin

from ..data.corpus.files import read_lines
from ..model_folders import atomic_directory, check_free
from ..modeling.embedding_trimming import named_token_ids, trim_embeddings, vocabulary_size
from ..modeling.tower_loading import without_pooler
from ..processing.vocabulary_trimming import choose_pieces, count_pieces, trim_tokenizer
from ..trainers.checkpoints import prepare_saving
from ..utils.errors import InputError
from ..utils.files import ensure_parents
from ..utils.pretrained import load_config, load_model, load_processor
from .data import recipe_data

# For a processor with two tokenizers, the one to trim comes first.
_TOKENIZERS = ("multilingual_tokenizer", "tokenizer")


@dataclass(frozen=True)
class TrimmingReport:
    pieces: tuple[int, int]
    parameters: tuple[int, int]
    megabytes: tuple[float, float]
    coverage: float  # the share of the texts' running pieces that were kept
    unknown: tuple[int, int]  # running pieces that are the unknown token
    texts: int


def trim(
    source: str, texts: Sequence[str], output: Path, *, coverage: float = 0.9999, trust_remote_code: bool = False
) -> TrimmingReport:
    """Saves the checkpoint `source`, a folder or Hub id, in the new folder `output`, with only the vocabulary that
    texts need; `coverage` is the minimum share of running pieces to keep."""
    code = {"trust_remote_code": trust_remote_code}
    with ensure_parents(output):
        prepare_saving(output)
        check_free(output)
        model = _load_model(source, **code)
        processor = load_processor(AutoProcessor, source, **code)  # for a text model, its tokenizer
        name = _tokenizer_name(processor)
        tokenizer = getattr(processor, name) if name else processor
        if len(tokenizer) > vocabulary_size(model.config):
            raise InputError(
                f"{source}: the tokenizer has {len(tokenizer)} pieces, and the model {vocabulary_size(model.config)}"
            )
        counts = count_pieces(tokenizer, texts)
        named = named_token_ids(model.config, model.generation_config if model.can_generate() else None)
        kept = choose_pieces(tokenizer, counts, coverage=coverage, always=named)
        trimmed, smaller = trim_tokenizer(tokenizer, kept), trim_embeddings(model, kept)
        report = TrimmingReport(
            pieces=(len(tokenizer), len(trimmed)),
            parameters=(model.num_parameters(), smaller.num_parameters()),
            megabytes=(_megabytes(model), _megabytes(smaller)),
            coverage=float(counts[kept].sum() / counts.sum()),
            unknown=(_unknown(tokenizer, counts), _unknown(trimmed, count_pieces(trimmed, texts))),
            texts=len(texts),
        )
        if name:
            setattr(processor, name, trimmed)
        with atomic_directory(output) as scratch:
            smaller.save_pretrained(scratch)
            (processor if name else trimmed).save_pretrained(scratch)
        return report


def gather_texts(files: Sequence[Path] = (), recipe: str | None = None) -> list[str]:
    """Reads the texts of files in UTF-8, one in each line, and the distinct texts of a recipe's data."""
    texts: list[str] = []
    if recipe is not None:
        data = recipe_data(recipe)
        for language in dict.fromkeys([*data.image_languages, *data.pair_languages]):
            texts.extend(data.captions.get(language, ()))
    lines = (line.strip() for file in files for _, line in read_lines(file))
    return [*texts, *lines]


def _load_model(source: str, **code: Any) -> PreTrainedModel:
    """Loads the model as it was saved: with its heads, and without its pooling layer if the files lack that layer."""
    name, *_ = load_config(source, **code).architectures or ["AutoModel"]
    model_class = getattr(import_module("babelens"), name, None) or getattr(transformers, name, None)
    if model_class is None:
        raise InputError(f"{source} holds a {name}, which neither babelens nor transformers has")

    def necessary(model: PreTrainedModel) -> nn.Module:
        return without_pooler(model) if hasattr(model, "pooler") else model

    untrained: set[str] = set()
    model = load_model(model_class, source, part=necessary, untrained=untrained, dtype="auto", **code)
    if untrained:
        model.pooler = None
    return model


def _tokenizer_name(processor: ProcessorMixin | PreTrainedTokenizerBase) -> str | None:
    """Returns the attribute of a processor that holds the tokenizer to trim; None if it is the tokenizer itself."""
    if isinstance(processor, PreTrainedTokenizerBase):
        return None
    for name in _TOKENIZERS:
        if isinstance(getattr(processor, name, None), PreTrainedTokenizerBase):
            return name
    raise InputError(f"{type(processor).__name__} has no tokenizer whose word pieces could be trimmed")


def _megabytes(model: PreTrainedModel) -> float:
    return model.get_memory_footprint(return_buffers=False) / 1e6


def _unknown(tokenizer: PreTrainedTokenizerBase, counts: np.ndarray) -> int:
    return 0 if tokenizer.unk_token_id is None else int(counts[tokenizer.unk_token_id])
