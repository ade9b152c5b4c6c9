"""Tokenizers for RC3: mBART-50's, or one trained here, with [CLS], [SEP'] and the languages (section 2.2)."""

import re
import unicodedata
from collections.abc import Iterable
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from torch import Tensor
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from ..configuration.configuration_two_tower import check_probabilities
from ..utils.errors import InputError
from ..utils.languages import normalize_language

CLS_TOKEN = "[CLS]"  # mBART's own, <s>, begins the text
IMAGE_SEPARATOR_TOKEN = "[SEP']"
_MBART_LANGUAGE_CODE = re.compile(r"([a-z]{2,3})_[A-Z]{2}")  # de_DE, fr_XX
_NEEDED_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token", "mask_token")


def check_tokens(tokenizer: Any, tokens: Iterable[str]) -> None:
    vocabulary = tokenizer.get_vocab()
    missing = [name for name in _NEEDED_TOKENS if getattr(tokenizer, name, None) is None]
    missing += [f"token {token}" for token in tokens if token not in vocabulary]
    if missing:
        raise InputError(f"the tokenizer has no {', '.join(missing)}")


def mbart_languages(tokenizer: PreTrainedTokenizerBase) -> dict[str, str]:
    """Returns mBART's codes by language tag: `de` and `de-DE` both map to de_DE, and only `fr` maps to fr_XX."""
    codes: dict[str, str] = {}
    for token in map(str, tokenizer.added_tokens_decoder.values()):
        if match := _MBART_LANGUAGE_CODE.fullmatch(token):
            codes[normalize_language(match[1])] = token
            if not token.endswith("_XX"):
                codes[normalize_language(token)] = token
    return codes


def with_special_tokens(tokenizer: PreTrainedTokenizerBase, tokens: list[str]) -> PreTrainedTokenizerFast:
    """Returns a tokenizer with the same pieces, followed by these special tokens; it adds only [BOS] to texts."""
    if not hasattr(tokenizer, "backend_tokenizer"):
        raise InputError(f"{type(tokenizer).__name__} is not a fast tokenizer")
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.no_padding()
    backend.no_truncation()
    backend.add_special_tokens(tokens)
    own = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=tokenizer.bos_token or tokenizer.cls_token,  # in mBART's tokenizer, <s> is the cls_token
        **{name: getattr(tokenizer, name) for name in _NEEDED_TOKENS if name != "bos_token"},
        cls_token=CLS_TOKEN,
        sep_token=tokenizer.eos_token,
        additional_special_tokens=[token for token in tokens if token != CLS_TOKEN],
        model_max_length=tokenizer.model_max_length,
        model_input_names=["input_ids", "attention_mask"],
    )
    check_tokens(own, tokens)
    # mBART's tokenizer would also add the language code that was last set on it.
    begin = (own.bos_token, own.bos_token_id)
    own.backend_tokenizer.post_processor = TemplateProcessing(single=f"{begin[0]} $A", special_tokens=[begin])
    return own


_SPACE = "▁"
# Thai, Lao, Burmese, Khmer; Han, kana and bopomofo with extensions and punctuation; not Korean, which uses spaces.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3001-\u30ff\u3100-\u312f\u31a0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uf900-\ufaff\uff01-\uff9f\U0001b000-\U0001b16f\U00020000-\U000323af]"
)
_BYTE = re.compile("<0x[0-9A-F]{2}>")
_NO_WORD = -1


class WordMasking:
    """Masks whole words, for masked conditional language modeling (section 2.3.1: 15 % of the words of a caption).

    A word is the text between spaces (`▁`), with its punctuation. In scripts without spaces, each piece is a word:
    SentencePiece finds pieces of about that length. A piece that begins with a vowel sign, and the bytes of an unknown
    character, belong to the piece before them; a lone `▁` belongs to the piece after it.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, special_tokens: list[str]) -> None:
        pieces = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
        special = {*tokenizer.all_special_tokens, *special_tokens} - {tokenizer.unk_token}
        self.mask_token_id = tokenizer.mask_token_id
        # Properties of each piece, bool [V].
        self._is_special = torch.tensor([piece in special for piece in pieces])
        self._is_space = torch.tensor([piece == _SPACE for piece in pieces])
        self._after_space = torch.tensor([piece.startswith(_SPACE) for piece in pieces])
        firsts = [piece.removeprefix(_SPACE)[:1] for piece in pieces]
        self._begins_unspaced = torch.tensor([bool(_UNSPACED.match(own)) and not _continues(own) for own in firsts])
        self._ends_unspaced = torch.tensor([bool(_UNSPACED.match(piece[-1:])) for piece in pieces])
        self._continues = torch.tensor([_continues(piece) for piece in pieces])
        if not self._after_space.any():
            raise InputError(f"words cannot be found: no piece of the vocabulary begins with {_SPACE!r}")

    def words(self, input_ids: Tensor) -> Tensor:
        """Returns the index of the word of each piece; -1 for special tokens, including masks and padding. [N, T] ->
        [N, T]"""
        special = self._is_special[input_ids]
        previous = input_ids.roll(1, dims=-1)
        first = self._is_special[previous]
        first[:, 0] = True
        after_unspaced = self._ends_unspaced[previous] & ~self._continues[input_ids]
        begins = first | self._after_space[input_ids]
        begins |= (self._begins_unspaced[input_ids] | after_unspaced) & ~self._is_space[previous]
        indices = (begins & ~special).cumsum(-1) - 1
        return indices.masked_fill(special, _NO_WORD)

    def __call__(
        self, input_ids: Tensor, probability: float, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Masks each word of texts [N, T] with a given probability, but leaves one of each text. Returns the masked
        ids, and labels [N, T]: the original ids of masked pieces, -100 elsewhere."""
        check_probabilities(probability=probability)
        self.refuse_all_masked(input_ids)
        words = self.words(input_ids)
        counts = words.amax(-1, keepdim=True) + 1  # [N, 1]
        drawn = torch.rand(words.shape, generator=generator)  # [N, T]: the first entries are the words' random numbers
        drawn = drawn.masked_fill(torch.arange(words.shape[1]) >= counts, -1.0)
        # The word with the largest random number would be masked last, so it is the one that is always left.
        chosen = (drawn < probability).scatter(-1, drawn.argmax(-1, keepdim=True), False)
        masked = chosen.gather(-1, words.clamp(min=0)) & (words != _NO_WORD)
        return input_ids.masked_fill(masked, self.mask_token_id), input_ids.masked_fill(~masked, -100)

    def refuse_all_masked(self, input_ids: Tensor, first: int = 0) -> None:
        """Checks that every text has a word that is not masked; `first` is the number of the first text in errors."""
        nothing_left = (input_ids == self.mask_token_id).any(-1) & (self.words(input_ids) == _NO_WORD).all(-1)
        if nothing_left.any():
            raise InputError(f"all words of text {first + int(nothing_left.nonzero()[0])} are masked: leave some")


def _continues(piece: str) -> bool:
    """Returns whether a piece can never begin a word: a byte, or a sign on the preceding letter."""
    return bool(_BYTE.fullmatch(piece)) or unicodedata.category(piece[:1] or " ").startswith("M")
