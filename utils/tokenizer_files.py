"""Compares how a tokenizer's files treat case, accents and special tokens with how the tokenizer that transformers
builds from them does."""

import json
import logging
from collections.abc import Mapping
from functools import cache
from typing import Any

from tokenizers import Tokenizer, normalizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast, Siglip2Tokenizer
from transformers.utils import CONFIG_NAME

from .files import optional_file

logger = logging.getLogger(__name__)

_PROBES = ("A Red Heart", "ÖL, Café naïve", "ЁЛКА Й", "中文 字")
# The settings of a BERT normalizer in tokenizer.json, by their keys in tokenizer_config.json.
_OF_BERT = {"do_lower_case": "lowercase", "strip_accents": "strip_accents"}
# Keys of tokenizer_config.json for the tokens at the ends of a text.
_ENDS = {"add_bos_token", "add_eos_token"}
_OF_VOCABULARIES = {"backend", "merges", "name_or_path", "tokenizer_class", "tokenizer_file", "vocab"}


def as_stated(tokenizer: Any, source: str, loading: Mapping[str, Any]) -> Any:
    """Returns a tokenizer that reads texts as its files state.

    It fixes unambiguous cases. SigLIP 2 was trained on lower case, even if its tokenizer is loaded as Gemma's. If a
    BERT's tokenizer.json keeps case or accents and tokenizer_config.json does not mention them, tokenizer.json wins.
    And a sentence-transformers embedder may state that its texts are lower-cased. For any other difference, a warning
    names a text.
    """
    if not isinstance(tokenizer, PreTrainedTokenizerFast) or loading.get("subfolder"):
        return tokenizer
    settings = _settings(source, "tokenizer_config.json", loading)
    is_siglip = str(_settings(source, CONFIG_NAME, loading).get("model_type", "")).startswith("siglip")
    if is_siglip and type(tokenizer).__name__.startswith("Gemma"):
        return Siglip2Tokenizer.from_pretrained(source, **loading)
    file = optional_file(source, "tokenizer.json", loading)
    stated = None if file is None else Tokenizer.from_file(str(file))
    unsaid = _unsaid(tokenizer, settings, stated)
    if unsaid:
        tokenizer = type(tokenizer).from_pretrained(source, **loading, **unsaid)
    if _settings(source, "sentence_bert_config.json", loading).get("do_lower_case") and _keeps_case(tokenizer):
        return _lower_cased(tokenizer)
    if stated is not None:
        _compare(tokenizer, stated, settings, source)
    return tokenizer


def _settings(source: str, name: str, loading: Mapping[str, Any]) -> dict[str, Any]:
    file = optional_file(source, name, loading)
    return {} if file is None else json.loads(file.read_text(encoding="utf-8"))


def _unsaid(
    tokenizer: PreTrainedTokenizerFast, settings: Mapping[str, Any], stated: Tokenizer | None
) -> dict[str, Any]:
    """Returns the settings in tokenizer.json that tokenizer_config.json omits and the loaded tokenizer contradicts."""
    if stated is None or not isinstance(stated.normalizer, normalizers.BertNormalizer):
        return {}
    if not isinstance(tokenizer.backend_tokenizer.normalizer, normalizers.BertNormalizer):
        return {}
    found = {key: getattr(stated.normalizer, name) for key, name in _OF_BERT.items() if key not in settings}
    own = tokenizer.backend_tokenizer.normalizer
    return found if any(value != getattr(own, _OF_BERT[key]) for key, value in found.items()) else {}


def _keeps_case(tokenizer: PreTrainedTokenizerFast) -> bool:
    return _read_form(tokenizer.backend_tokenizer, "AÖ") != _read_form(tokenizer.backend_tokenizer, "aö")


def _read_form(backend: Tokenizer, text: str) -> str:
    return text if backend.normalizer is None else backend.normalizer.normalize_str(text)


def _lower_cased(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerBase:
    """Returns a tokenizer that reads lower case, even after it is saved: its class follows tokenizer.json."""
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    others = [] if backend.normalizer is None else [backend.normalizer]
    backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), *others])
    kept = {key: value for key, value in tokenizer.init_kwargs.items() if key not in _OF_VOCABULARIES}
    kept |= {"model_input_names": tokenizer.model_input_names}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **kept)


def _compare(tokenizer: PreTrainedTokenizerFast, stated: Tokenizer, settings: Mapping[str, Any], source: str) -> None:
    for text in _PROBES:
        backends = (tokenizer.backend_tokenizer, stated)
        read, meant = (_tokens(each, text, add_special_tokens=not _ENDS & settings.keys()) for each in backends)
        if read != meant:
            _warn(
                f"{source}: {type(tokenizer).__name__} reads {text!r} as {read}, tokenizer.json as {meant}; set "
                "tokenizer_class, do_lower_case and strip_accents, or add_bos_token and add_eos_token in "
                "tokenizer_config.json to what the model was trained with"
            )
            return


def _tokens(backend: Tokenizer, text: str, add_special_tokens: bool) -> list[str]:
    """Returns the tokens of a text, without the padding that tokenizer.json may set, such as all-MiniLM's to 128."""
    read = backend.encode(text, add_special_tokens=add_special_tokens)
    return [token for token, is_real in zip(read.tokens, read.attention_mask, strict=True) if is_real]


@cache
def _warn(message: str) -> None:
    logger.warning("%s", message)
