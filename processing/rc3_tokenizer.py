"""Tokenizers for RC3: mBART-50's, or one that was trained here, with [CLS], [SEP'] and the languages (Zhou et al.
2023, section 2.2)."""

import re
from collections.abc import Iterable
from typing import Any

from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from ..configuration.errors import VocabularyError
from ..configuration.languages import normalize_language

CLS_TOKEN = "[CLS]"  # mBART's own, <s>, begins the text
IMAGE_SEPARATOR_TOKEN = "[SEP']"
_MBART_LANGUAGE_CODE = re.compile(r"([a-z]{2,3})_[A-Z]{2}")  # de_DE, fr_XX
_NEEDED_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token", "mask_token")


def check_tokens(tokenizer: Any, tokens: Iterable[str]) -> None:
    """Checks that a tokenizer has these tokens, and those that every text needs.

    Raises:
        VocabularyError: if one is missing.
    """
    missing = [name for name in _NEEDED_TOKENS if getattr(tokenizer, name, None) is None]
    if missing:
        raise VocabularyError(f"the tokenizer has no {', '.join(missing)}")
    vocabulary = tokenizer.get_vocab()
    for token in tokens:
        if token not in vocabulary:
            raise VocabularyError(f"the tokenizer has no token {token}")


def mbart_languages(tokenizer: PreTrainedTokenizerBase) -> dict[str, str]:
    """Returns mBART's codes by language tag: both `de` and `de-DE` are de_DE, and only `fr` is fr_XX."""
    codes: dict[str, str] = {}
    for token in map(str, tokenizer.added_tokens_decoder.values()):
        if match := _MBART_LANGUAGE_CODE.fullmatch(token):
            codes[normalize_language(match[1])] = token
            if not token.endswith("_XX"):
                codes[normalize_language(token)] = token
    return codes


def with_special_tokens(tokenizer: PreTrainedTokenizerBase, tokens: list[str]) -> PreTrainedTokenizerFast:
    """Returns a tokenizer with the same pieces, followed by these special tokens; it adds [BOS] alone to texts.

    Raises:
        VocabularyError: if it is not a fast tokenizer, or lacks a token that every text needs.
    """
    if not hasattr(tokenizer, "backend_tokenizer"):
        raise VocabularyError(f"{type(tokenizer).__name__} is not a fast tokenizer")
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.no_padding()
    backend.no_truncation()
    backend.add_special_tokens(tokens)
    own = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=tokenizer.bos_token or tokenizer.cls_token,  # in mBART's tokenizer, <s> has the latter name
        **{name: getattr(tokenizer, name) for name in _NEEDED_TOKENS if name != "bos_token"},
        cls_token=CLS_TOKEN,
        sep_token=tokenizer.eos_token,
        additional_special_tokens=[token for token in tokens if token != CLS_TOKEN],
        model_max_length=tokenizer.model_max_length,
        model_input_names=["input_ids", "attention_mask"],
    )
    check_tokens(own, tokens)
    # mBART's tokenizer would also add the code of the language that was last set on it.
    begin = (own.bos_token, own.bos_token_id)
    own.backend_tokenizer.post_processor = TemplateProcessing(single=f"{begin[0]} $A", special_tokens=[begin])
    return own
