"""Subword regularization (Kudo 2018): random segmentations of texts in training, by MaxMatch-Dropout, the version for
WordPiece (Hiraoka 2022)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers.models import WordPiece
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from ..configuration.configuration_two_tower import check_probabilities
from .text_inputs import note_cut_texts

_REMEMBERED_WORDS = 1 << 16


@dataclass(frozen=True)
class TextAugmentation:
    """Settings of the random segmentation: `subword_dropout` is the probability that a piece is skipped in favor of
    the next shorter one that fits, `share` that a text is changed at all; by default, texts of all `tasks` are."""

    subword_dropout: float = 0.0
    share: float = 1.0
    tasks: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        check_probabilities(subword_dropout=self.subword_dropout, share=self.share)


class SubwordDropout:
    """Turns texts and seeds into `input_ids` and `attention_mask`, cut at `max_length` tokens with `[CLS]` and
    `[SEP]`."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, augmentation: TextAugmentation, max_length: int) -> None:
        if not isinstance(getattr(getattr(tokenizer, "backend_tokenizer", None), "model", None), WordPiece):
            raise ValueError(f"subword_dropout needs a WordPiece tokenizer, not {type(tokenizer).__name__}")
        self.tokenizer, self.augmentation, self.max_length = tokenizer, augmentation, max_length
        self._vocabulary = tokenizer.get_vocab()
        self._fitting: dict[str, list[list[tuple[int, int]]]] = {}  # remembered

    def __getstate__(self) -> dict[str, object]:
        return vars(self) | {"_fitting": {}}

    def __call__(self, texts: Sequence[str], seeds: Sequence[int], column: int = 0) -> dict[str, Tensor]:
        """Segments N texts, each by its own seed, into [N, T]; `column` distinguishes texts of one example, which
        share a seed."""
        backend = self.tokenizer.backend_tokenizer
        rows = []
        for text, seed in zip(texts, seeds, strict=True):
            rng = np.random.Generator(np.random.PCG64([seed, column]))
            dropout = self.augmentation.subword_dropout if rng.random() < self.augmentation.share else 0.0
            normal = backend.normalizer.normalize_str(text) if backend.normalizer else text
            words = [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(normal)]
            pieces = [piece for word in words for piece in self._pieces(word, dropout, rng)]
            inner = pieces[: self.max_length - 2]
            if len(inner) < len(pieces):
                note_cut_texts([text], f"{self.max_length} tokens")
            rows.append([self.tokenizer.cls_token_id, *inner, self.tokenizer.sep_token_id])
        return dict(self.tokenizer.pad({"input_ids": rows}, return_tensors="pt"))

    def _pieces(self, word: str, dropout: float, rng: np.random.Generator) -> list[int]:
        fitting = self._fitting.get(word)
        if fitting is None:
            fitting = self._find_fitting(word)
            if len(self._fitting) < _REMEMBERED_WORDS:
                self._fitting[word] = fitting
        pieces, start = [], 0
        while start < len(word):
            fits = fitting[start] if fitting else ()
            if not fits:
                return [self.tokenizer.unk_token_id]
            # The shortest piece that fits is never skipped, so known letters never become unknown.
            start, piece = next((fit for fit in fits[:-1] if not dropout or rng.random() >= dropout), fits[-1])
            pieces.append(piece)
        return pieces

    def _find_fitting(self, word: str) -> list[list[tuple[int, int]]]:
        """Returns, for every position, the (end, id) of the fitting pieces, longest first; none for a word that is too
        long."""
        model = self.tokenizer.backend_tokenizer.model
        prefix, found = model.continuing_subword_prefix, []
        for start in range(len(word) if len(word) <= model.max_input_chars_per_word else 0):
            marked = prefix if start else ""
            pieces = ((end, self._vocabulary.get(marked + word[start:end])) for end in range(len(word), start, -1))
            found.append([(end, piece) for end, piece in pieces if piece is not None])
        return found
