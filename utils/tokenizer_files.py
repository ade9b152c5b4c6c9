"""Compares how a tokenizer's files treat case, accents and special tokens with what transformers builds from them."""

import json
import logging
from collections.abc import Mapping
from functools import cache
from typing import Any

from tokenizers import Tokenizer, normalizers
from transformers import PreTrainedTokenizerFast, Siglip2Tokenizer
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
    """Returns a tokenizer that reads texts as its files state; other differences than these are warned of. SigLIP 2
    was trained on lower case, even if its tokenizer is loaded as Gemma's. If a BERT's tokenizer.json keeps case or
    accents and tokenizer_config.json does not mention them, tokenizer.json wins. A sentence-transformers embedder may
    state that its texts are lower-cased."""
    if not isinstance(tokenizer, PreTrainedTokenizerFast) or loading.get("subfolder"):
        return tokenizer

    def settings_in(name: str) -> dict[str, Any]:
        file = optional_file(source, name, loading)
        return {} if file is None else json.loads(file.read_text(encoding="utf-8"))

    is_siglip = str(settings_in(CONFIG_NAME).get("model_type", "")).startswith("siglip")
    if is_siglip and type(tokenizer).__name__.startswith("Gemma"):
        return Siglip2Tokenizer.from_pretrained(source, **loading)
    settings, file = settings_in("tokenizer_config.json"), optional_file(source, "tokenizer.json", loading)
    stated = None if file is None else Tokenizer.from_file(str(file))
    own, meant = tokenizer.backend_tokenizer.normalizer, None if stated is None else stated.normalizer
    if isinstance(own, normalizers.BertNormalizer) and isinstance(meant, normalizers.BertNormalizer):
        unsaid = {key: getattr(meant, name) for key, name in _OF_BERT.items() if key not in settings}
        if any(value != getattr(own, _OF_BERT[key]) for key, value in unsaid.items()):
            tokenizer = type(tokenizer).from_pretrained(source, **loading, **unsaid)
    if settings_in("sentence_bert_config.json").get("do_lower_case"):
        normalizer = tokenizer.backend_tokenizer.normalizer
        if normalizer is None or normalizer.normalize_str("AÖ") != normalizer.normalize_str("aö"):
            return _lower_cased(tokenizer)
    if stated is not None:
        _compare(tokenizer, stated, settings, source)
    return tokenizer


def _lower_cased(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """Returns a tokenizer that reads lower case, even after it is saved: its class follows tokenizer.json."""
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    others = [] if backend.normalizer is None else [backend.normalizer]
    backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), *others])
    kept = {key: value for key, value in tokenizer.init_kwargs.items() if key not in _OF_VOCABULARIES}
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, **kept | {"model_input_names": tokenizer.model_input_names}
    )


def _compare(tokenizer: PreTrainedTokenizerFast, stated: Tokenizer, settings: Mapping[str, Any], source: str) -> None:
    """Warns of the first text with other tokens than the files state, without padding, which all-MiniLM's file sets to
    128."""
    for text in _PROBES:
        both = [
            backend.encode(text, add_special_tokens=not _ENDS & settings.keys())
            for backend in (tokenizer.backend_tokenizer, stated)
        ]
        read, meant = ([t for t, real in zip(e.tokens, e.attention_mask, strict=True) if real] for e in both)
        if read != meant:
            _warn(
                f"{source}: {type(tokenizer).__name__} reads {text!r} as {read}, tokenizer.json as {meant}; set "
                "tokenizer_class, do_lower_case and strip_accents, or add_bos_token and add_eos_token in "
                "tokenizer_config.json to what the model was trained with"
            )
            return


@cache
def _warn(message: str) -> None:
    logger.warning("%s", message)
