"""The inputs of a regression from texts to embeddings: the embeddings of native texts, and the features of a text
encoder. Both are computed once and kept on disk."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ..data.emoji.benchmark import Pairs
from ..modeling.modeling_mla import MlaPreTrainedModel
from ..modeling.modeling_ridge import RidgeModel
from ..processing.processing_mla_student import MlaStudentProcessor
from ..processing.processing_ridge import RidgeProcessor
from ..utils.identity import model_identity
from ..utils.language_matching import language_and_script
from ..utils.languages import normalize_language
from .encoder_features import EncoderFeatures
from .frozen_features import frozen_tensor


class Teacher(Protocol):
    """Embeds native texts, instead of a model's native model.

    Attributes:
        reads_any: whether it embeds texts in any language, including the languages to learn.
    """

    reads_any: bool

    def encode(self, texts: Sequence[str], /) -> np.ndarray:
        """Returns embeddings [n, d] of unit length."""


class NativeTeacher:
    """The native model as a teacher.

    Args:
        model, processor: the model that contains the native model, and its processor.
        batch_size: the number of texts to read at a time.
    """

    reads_any = True

    def __init__(
        self, model: MlaPreTrainedModel, processor: RidgeProcessor | MlaStudentProcessor, batch_size: int
    ) -> None:
        from ..inference.embedder import Embedder  # imports what loads encoders of every kind

        self._embedder = Embedder(model.native_model, processor.native, batch_size=batch_size)
        self._language = processor.native_language

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        return self._embedder.encode_text(list(texts), language=self._language, normalize=True)

    @cached_property
    def identity(self) -> str:
        return model_identity(self._embedder.model, self._embedder.processor, "ridge targets", self._language)


def natives_of(translations: Mapping[Any, Pairs]) -> Iterator[str]:
    """Yields the native texts of all languages."""
    return (native for _, natives in translations.values() for native in natives)


def native_targets(teacher: Teacher, texts: Iterable[str], cache_dir: str | None) -> tuple[Tensor, dict[str, int]]:
    """Returns the teacher's embeddings of all different texts [n, d], and the position of each text. The embeddings of
    a native model are kept on disk."""
    texts = list(dict.fromkeys(texts))

    def compute() -> Tensor:
        return torch.from_numpy(teacher.encode(texts))

    if isinstance(teacher, NativeTeacher):
        items = (text.encode() for text in texts)
        targets = frozen_tensor(compute, identity=teacher.identity, items=items, cache_dir=cache_dir)
    else:
        targets = compute()
    return targets, {text: index for index, text in enumerate(texts)}


def encoder_features(
    model: RidgeModel, processor: RidgeProcessor, translations: Mapping[str, Pairs], **reading: Any
) -> dict[str, Tensor]:
    """Returns the features of the text encoder by language, [n, W]; empty without a text encoder."""
    if model.text_model is None:
        return {}
    reader = EncoderFeatures(
        model.text_model,
        processor.encoder_tokenizer,
        model.encoder_features,
        model.config.text_pooling,
        processor.text_prompt,
        processor.max_text_length,
        **reading,
    )
    spelled = {tag: processor.with_same_letters(texts, tag) for tag, (texts, _) in translations.items()}
    tokens = {tag: found for tag in spelled if (found := processor.language_token(tag))}
    features = reader.of({tag: texts for tag, texts in spelled.items() if tag not in tokens})
    for tag, (own, stated) in tokens.items():
        other = replace(reader, pooled=partial(_in_language, model, own, stated))
        other.identity = f"{reader.identity}, with {stated} for {own}"
        features |= other.of({tag: spelled[tag]})
    return features


def _in_language(model: RidgeModel, own: int, stated: int, ids: Tensor, mask: Tensor) -> Tensor | None:
    """The features of texts in another language than the tokenizer's default."""
    return model.encoder_features(torch.where(ids == own, stated, ids), mask)


def language_codes(tokenizer: Any, languages: Iterable[str] | None = None) -> dict[str, str]:
    """Returns the tokens with which a tokenizer states these languages, if it has them, as the tokenizers of NLLB and
    SONAR do; by default those of all languages that it states."""
    from ..inference.translation import source_tokens

    tokens = source_tokens(tokenizer)
    if languages is None:
        languages = [normalize_language("-".join(filter(None, written))) for written in tokens]
    found = {tag: tokens.get(language_and_script(tag)) for tag in languages} if tokens else {}
    return {tag: token for tag, token in found.items() if token is not None}
