"""What a regression from texts to embeddings is solved with: the embeddings of native texts, and the features of a
text encoder. Both are computed once and kept on disk."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ..configuration.identity import model_identity
from ..data.emoji.benchmark import Pairs
from ..modeling.modeling_mla_base import MlaPreTrainedModel
from ..modeling.modeling_ridge import RidgeModel
from ..processing.processing_mla_student import MlaStudentProcessor
from ..processing.processing_ridge import RidgeProcessor
from .frozen_features import EncoderFeatures, frozen_tensor


class Teacher(Protocol):
    """What embeds native texts, in the place of a model's native model.

    Attributes:
        reads_any: whether it embeds any text, also in the languages to be learned.
    """

    reads_any: bool

    def encode(self, texts: Sequence[str], /) -> np.ndarray:
        """Returns embeddings [n, d] of unit length."""


class NativeTeacher:
    """The native model as a teacher.

    Args:
        model, processor: the model that it is the native model of, and its processor.
        batch_size: texts that are read at a time.
        normalize: whether its embeddings have length 1, or are the features that the model computes.
    """

    reads_any = True

    def __init__(
        self,
        model: MlaPreTrainedModel,
        processor: RidgeProcessor | MlaStudentProcessor,
        batch_size: int,
        *,
        normalize: bool = True,
    ) -> None:
        from ..inference.embedder import Embedder  # imports what loads encoders of every kind

        self._embedder = Embedder(model.native_model, processor.native, batch_size=batch_size)
        self._language, self._normalize = processor.native_language, normalize

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        return self._embedder.encode_text(list(texts), language=self._language, normalize=self._normalize)

    @cached_property
    def identity(self) -> str:
        kind = "ridge targets" if self._normalize else "features"
        return model_identity(self._embedder.model, self._embedder.processor, kind, self._language)


def natives_of(translations: Mapping[Any, Pairs]) -> Iterator[str]:
    """Yields the native texts of all languages."""
    return (native for _, natives in translations.values() for native in natives)


def native_targets(teacher: Teacher, texts: Iterable[str], cache_dir: str | None) -> tuple[Tensor, dict[str, int]]:
    """The teacher's embeddings of all different texts [n, d], and the position of each text. Those of a native model
    are kept on disk."""
    texts = list(dict.fromkeys(texts))

    def compute() -> Tensor:
        return torch.from_numpy(teacher.encode(texts))

    if isinstance(teacher, NativeTeacher):
        items = (text.encode() for text in texts)
        targets = frozen_tensor(compute, weights={}, settings=teacher.identity, items=items, cache_dir=cache_dir)
    else:
        targets = compute()
    return targets, {text: index for index, text in enumerate(texts)}


def encoder_features(
    model: RidgeModel, processor: RidgeProcessor, translations: Mapping[Any, Pairs], **reading: Any
) -> dict[Any, Tensor]:
    """The features of the text encoder, by language [n, W]; empty without one."""
    if model.text_model is None:
        return {}
    features = EncoderFeatures(
        model.text_model,
        processor.encoder_tokenizer,
        model.encoder_features,
        model.config.text_pooling,
        processor.text_prompt,
        processor.max_text_length,
        **reading,
    )
    return features.of({name: texts for name, (texts, _) in translations.items()})
