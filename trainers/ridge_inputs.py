"""A regression's inputs, computed once and kept on disk: embeddings of native texts, features of a text encoder."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
import torch
from datasets.utils.logging import tqdm
from torch import Tensor

from ..inference.embedder import Embedder, autocasting, evaluation_mode
from ..inference.translation import source_tokens, token_of
from ..modeling.modeling_ridge import RidgeModel
from ..processing.processing_ridge import RidgeProcessor
from ..utils.identity import model_identity
from ..utils.languages import normalize_language
from .frozen_features import frozen_features

_AT_ONCE = 32  # texts to encode; with more, much of a batch of a few hundred short texts is padding


class Teacher(Protocol):
    """Embeds native texts, instead of a model's native model. With `reads_any`, it embeds texts in any language,
    including the languages to learn."""

    reads_any: bool

    def encode(self, texts: Sequence[str], /) -> np.ndarray:
        """Returns embeddings [n, d] of unit length."""


class NativeTeacher:
    reads_any = True

    def __init__(self, model: RidgeModel, processor: RidgeProcessor) -> None:
        self._embedder = Embedder(model.native_model, processor.native, batch_size=_AT_ONCE)
        self._language = processor.native_language

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        return self._embedder.encode_text(list(texts), language=self._language, normalize=True)

    @cached_property
    def identity(self) -> str:
        return model_identity(self._embedder.model, self._embedder.processor, "ridge targets", self._language)


def native_targets(teacher: Teacher, texts: Iterable[str], cache_dir: str | None) -> tuple[Tensor, dict[str, int]]:
    """Returns the teacher's embeddings of all different texts [n, d], and the position of each text. The embeddings of
    a native model are kept on disk."""
    texts = list(dict.fromkeys(texts))
    position = {text: index for index, text in enumerate(texts)}
    if not isinstance(teacher, NativeTeacher):
        return torch.from_numpy(teacher.encode(texts)), position
    items, identity = (text.encode() for text in texts), teacher.identity
    found = frozen_features(lambda: teacher.encode(texts), identity=identity, items=items, cache_dir=cache_dir)
    return torch.from_numpy(found), position


def encoder_features(
    model: RidgeModel, processor: RidgeProcessor, texts: Mapping[str, list[str]], precision: str, cache_dir: str | None
) -> dict[str, Tensor]:
    """Returns the features of the text encoder by language, [n, W]; empty without a text encoder. Each language has
    its own file in the cache, so it is not encoded again together with others."""
    encoder, tokenizer, length = model.text_model, processor.encoder_tokenizer, processor.max_text_length
    if encoder is None:
        return {}
    identity = model_identity(encoder, tokenizer, "pooled texts", model.config.text_pooling, precision, str(length))
    device = next(encoder.parameters()).device

    def read(texts: list[str], token: tuple[int, int] | None) -> Tensor:
        order, parts = sorted(range(len(texts)), key=lambda row: len(texts[row])), []
        with evaluation_mode(encoder), autocasting(device, precision):
            for start in range(0, len(order), _AT_ONCE):
                chosen = [texts[row] for row in order[start : start + _AT_ONCE]]
                cut: dict[str, Any] = {"truncation": True, "max_length": length}
                inputs = tokenizer(chosen, padding=True, return_tensors="pt", **cut).to(device)
                ids = inputs["input_ids"]
                if token is not None:  # states the language of the texts, which is not the tokenizer's default
                    ids = torch.where(ids == token[0], token[1], ids)
                pooled = model.encoder_features(ids, inputs["attention_mask"])
                assert pooled is not None
                parts.append(pooled.float().cpu())
                bar.update(len(chosen))
        return torch.cat(parts)[torch.tensor(order).argsort()]

    features, count = {}, sum(map(len, texts.values()))
    with tqdm(total=count, desc="Reading texts", unit=" texts", leave=False, disable=None) as bar:
        for tag, own in texts.items():
            whole = [processor.text_prompt + text for text in processor.with_same_letters(own, tag)]
            token = processor.language_token(tag)
            found = frozen_features(
                partial(read, whole, token),
                identity=f"{identity}, with {token[1]} for {token[0]}" if token else identity,
                items=(text.encode() for text in whole),
                cache_dir=cache_dir,
            )
            features[tag] = torch.from_numpy(found)
    return features


def language_codes(tokenizer: Any, languages: Iterable[str] | None = None) -> dict[str, str]:
    """The tokens by which a tokenizer such as NLLB's or SONAR's states these languages (default: all that it has)."""
    tokens = source_tokens(tokenizer)
    if languages is None:
        languages = [normalize_language("-".join(filter(None, written))) for written in tokens]
    found = {tag: token_of(tokens, tag) for tag in languages}
    return {tag: token for tag, token in found.items() if token is not None}
