"""What a regression from texts to embeddings is solved with: the embeddings of native texts, and the features of a
text encoder. Both are computed once and kept on disk."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from datasets.utils.logging import tqdm
from torch import Tensor

from ..data.emoji.benchmark import Pairs
from ..modeling.modeling_mla import MlaPreTrainedModel
from ..modeling.modeling_ridge import RidgeModel
from ..modeling.text_features import TokenKinds
from ..processing.processing_mla_student import MlaStudentProcessor
from ..processing.processing_ridge import RidgeProcessor
from ..processing.text_inputs import UNDETERMINED
from ..utils.identity import contents_digest, model_identity
from .frozen_features import EncoderFeatures, frozen_tensor
from .ridge_solving import in_random_order

_KINDS_FROM = 2000  # texts
_LEAST_OF_A_KIND = 4  # tokens, so that their mean says more of the token than of the texts around it


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
    model: RidgeModel, processor: RidgeProcessor, translations: Mapping[str, Pairs], **reading: Any
) -> dict[str, Tensor]:
    """The features of the text encoder, by language [n, W + V]; empty without one."""
    if model.text_model is None:
        return {}
    reader = _reader(model, processor, reading)
    return reader.of({tag: processor.with_same_letters(texts, tag) for tag, (texts, _) in translations.items()})


def native_kinds(
    model: RidgeModel, processor: RidgeProcessor, texts: Sequence[str], **reading: Any
) -> TokenKinds | None:
    """The kinds of the tokens that the text encoder has in native texts; None if none of them is frequent. They are
    learned from some texts, and kept on disk."""
    some = processor.with_same_letters((texts[row] for row in in_random_order(len(texts))[:_KINDS_FROM]), UNDETERMINED)
    sample = [processor.text_prompt + text for text in some]
    reader = _reader(model, processor, reading)
    found = frozen_tensor(
        lambda: _mean_states(reader, sample),
        weights={},
        settings=f"kinds of tokens, each {_LEAST_OF_A_KIND} times {reader.identity}",
        items=(text.encode() for text in sample),
        cache_dir=reader.cache_dir,
    )
    mean, states, counts, in_texts = found[0, :-2], found[1:, :-2], found[1:, -2], found[1:, -1]
    if not len(states):
        return None
    return TokenKinds.of(mean, states, counts, ((1 + len(sample)) / (1 + in_texts)).log() + 1)


def _mean_states(reader: EncoderFeatures, texts: Sequence[str]) -> Tensor:
    """The mean state of all tokens, and of each frequent token [1 + V, W], with two more columns: how many there are,
    and in how many texts."""
    tokens = reader.tokenizer(list(texts), truncation=True, max_length=reader.max_length)["input_ids"]
    known = torch.tensor(sorted({token for row in tokens for token in row}))
    sums: Tensor | None = None
    for _, read in tqdm(reader.batches(texts), "Kinds of tokens", leave=False, disable=None):
        ids, mask = read["input_ids"], read["attention_mask"]
        output = reader.encoder(input_ids=ids, attention_mask=mask, return_dict=True)
        states, is_token = output.last_hidden_state.float().cpu(), mask.cpu().bool()  # [N, T, W], [N, T]
        places = torch.searchsorted(known, ids.cpu())
        if sums is None:
            sums = torch.zeros(len(known), states.shape[-1] + 2)
        ones = torch.ones(int(is_token.sum()), 2)
        ones[:, 1] = 0
        sums.index_add_(0, places[is_token], torch.cat([states[is_token], ones], 1))
        for row, kept in zip(places, is_token, strict=True):
            sums[row[kept].unique(), -1] += 1
    assert sums is not None
    whole = sums.sum(0)
    means = torch.cat([sums[:, :-2] / sums[:, -2:-1], sums[:, -2:]], 1)
    mean = torch.cat([whole[:-2] / whole[-2], whole[-2:]])
    return torch.cat([mean[None], means[sums[:, -2] >= _LEAST_OF_A_KIND]])


def _reader(model: RidgeModel, processor: RidgeProcessor, reading: Mapping[str, Any]) -> EncoderFeatures:
    assert model.text_model is not None
    pooling = model.config.text_pooling
    if model.token_kinds is not None:
        pooling += f" and kinds of tokens {contents_digest(model.token_kinds.state_dict())}"
    return EncoderFeatures(
        model.text_model,
        processor.encoder_tokenizer,
        model.encoder_features,
        pooling,
        processor.text_prompt,
        processor.max_text_length,
        **reading,
    )
