"""MLA's baselines: a multilingual student of a frozen dual encoder (Zhang et al. 2022, tables 4 and 7).

With the student's encoder h, a projection W, and the native model's features f, a text t with a native translation n
is trained by

    L = ‖f(n) − g(t)‖²,    g(t) = W pool(h(t)) + b        pooled at [CLS] in the paper

The student reads every language with one multilingual vocabulary, including the native language unless the
configuration assigns that to the native model, which embeds the images. `MlaStudentConfig` describes the strategies.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import can_return_tuple

from ..configuration.configuration_mla import MlaStudentConfig, feature_width
from ..configuration.configuration_two_tower import TextPooling, text_width
from .acquirer import AcquiredBlock, Acquirer, MasksByLanguage, RowsByLanguage, initialize_linears, name_of_blocks
from .modeling_common import initialized_by_itself, is_exporting
from .modeling_dual_encoder import (
    eval_frozen_modules,
    pool_text,
    text_head,
    text_head_input,
    tower_keywords,
    with_embeddings,
)
from .modeling_mla import MlaPreTrainedModel, Trainable, new_native_model

_EVERY = "every"  # all languages


class CrossModalBlock(AcquiredBlock):
    """A frozen block, followed by the acquirer that all languages share."""

    def __init__(self, base_layer: nn.Module, acquirer: Acquirer) -> None:
        super().__init__(base_layer)
        self.mla_acquirers[_EVERY] = acquirer

    def rows_of(self, count: int) -> RowsByLanguage:
        return RowsByLanguage.all_in(_EVERY, count)


class MlaStudentModel(MlaPreTrainedModel):
    """A multilingual text encoder that learns the features of a frozen dual encoder.

    Examples:
        >>> towers = "openai/clip-vit-base-patch32", "intfloat/multilingual-e5-small"
        >>> model = MlaStudentModel.from_towers(*towers, languages=["de", "fr"])
        >>> inputs = processor(text=["ein rotes Auto"], language="de", return_tensors="pt")
        >>> model.get_text_features(**inputs).pooler_output  # [1, 512]
    """

    config_class = MlaStudentConfig
    auto_classes = ("AutoModel", "AutoModelForZeroShotImageClassification")
    parts = {
        "native model": "native_model",
        "text encoder": r"text_model\.(?!.*\.mla_)",
        "acquirers": "text_model",
        "projection": "projection",
    }

    def __init__(self, config: MlaStudentConfig) -> None:
        super().__init__(config)
        self.native_model = new_native_model(config.base_config)
        self.text_model = self.new_text_encoder()
        if config.strategy == "acquisition":
            width = self.text_model.config.hidden_size
            blocks: Any = self.text_model.get_submodule(name_of_blocks(self.text_model, config.text_config))
            for index, block in enumerate(blocks):
                blocks[index] = CrossModalBlock(block, Acquirer(width, config.acquirer_size, config.acquirer))
        pooled, width = text_width(config.text_config, config.text_pooling), feature_width(config.base_config)
        self.text_head_input = text_head_input(pooled, layer_norm=config.text_layer_norm, dropout=config.text_dropout)
        self.projection = text_head(pooled, width, config.text_hidden_size, config.text_dropout)
        initialize_linears(self.projection)
        for layer in self.projection.modules():
            if isinstance(layer, nn.Linear):
                initialized_by_itself(layer)
        self._settle_precision()
        self.set_trainable("acquirers")
        self.post_init()

    @classmethod
    def from_towers(
        cls,
        native: str | Path | PreTrainedModel,
        text: str | Path | PreTrainedModel,
        *,
        text_pooling: TextPooling | None = None,
        trust_remote_code: bool = False,
        **options: Any,
    ) -> Self:
        """Makes an untrained student from a dual encoder and a text encoder, each a folder, a Hub id or a model, with
        other keys of `MlaStudentConfig`. `text_pooling` is by default as the encoder's folder states, else `cls`."""
        from ..utils.pretrained import load_model
        from .tower_loading import chosen_pooling, load_text_encoder

        code: dict[str, Any] = {"trust_remote_code": trust_remote_code}
        pooling = chosen_pooling(text, text_pooling, **code)
        encoder = load_text_encoder(text, pooling=pooling, **code)
        if not isinstance(native, PreTrainedModel):
            native = load_model(AutoModel, native, **code)
        configs = {"base_config": native.config, "text_config": encoder.config}
        model = cls(MlaStudentConfig(**configs, text_pooling=pooling, **options))
        model.take_text_encoder(encoder)
        model.take_native(native)
        return model.train(native.training)

    def set_trainable(
        self, part: Trainable, languages: Sequence[str] | None = None, *, temperature: bool = False
    ) -> None:
        """Selects what the strategy trains; `part` must be `acquirers`: the native model provides the targets."""
        if part != "acquirers":
            raise ValueError(f"trainable={part!r}: the native model of a student stays frozen")
        self.requires_grad_(False)
        self.text_model.requires_grad_(self.config.strategy == "distillation")
        for trained in (self.projection, *self.acquirers()):
            trained.requires_grad_(True)
        self.train(self.training)

    def frozen_parts(self) -> list[nn.Module]:
        return [self.native_model, *([self.text_model] if self.config.strategy == "acquisition" else [])]

    def learned_parts(self) -> list[nn.Module]:
        return [self.text_model, self.projection]

    def train(self, mode: bool = True) -> Self:
        """Sets training mode, except in the frozen parts, including those of a partly trained text encoder."""
        super().train(mode)
        if mode and self.text_model.training:
            eval_frozen_modules(self.text_model)
        return self

    @property
    def towers(self) -> dict[str, nn.Module]:
        """The text encoder, named `text`; the image tower is never trained."""
        return {"text": self.text_model}

    def acquirers(self) -> list[Acquirer]:
        """Returns the acquirers, which only the strategy `acquisition` has."""
        return [module for module in self.text_model.modules() if isinstance(module, Acquirer)]

    @can_return_tuple
    def get_text_features(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        language_ids: Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Embeds texts [N, T] in any language; `pooler_output` [N, d] is not normalized. With `native_texts="native"`,
        the native model reads the rows whose `language_ids` [N] are 0, with ids from its own tokenizer."""
        reads_natively = self.config.native_texts == "native"
        if language_ids is not None and reads_natively and (is_exporting() or not language_ids.all()):
            return self._features_by_reader(input_ids, attention_mask, language_ids, **kwargs)
        kwargs = tower_keywords(kwargs, self.text_model.forward)
        output = self.text_model(input_ids=input_ids, attention_mask=attention_mask, return_dict=True, **kwargs)
        features = pool_text(output, input_ids, attention_mask, self.config)
        found = self.projection(self.text_head_input(features))
        return with_embeddings(output, found if self.learned_dtype == self.dtype else found.to(self.dtype))

    def _features_by_reader(
        self, input_ids: Tensor, attention_mask: Tensor | None, language_ids: Tensor, **kwargs: Any
    ) -> BaseModelOutputWithPooling:
        """Embeds a batch in which the native model reads some or all rows."""

        def read(language: str | None, rows: Tensor) -> Tensor:
            ids = readers.ids_of(language, input_ids, rows)
            mask = None if attention_mask is None else attention_mask[rows]
            if language is None:
                return self.embed_native_texts(ids, mask)
            return self.get_text_features(ids, mask, **kwargs | {"return_dict": True}).pooler_output

        readers: Any = MasksByLanguage([None, _EVERY], language_ids)
        if not is_exporting():
            readers = RowsByLanguage([_EVERY if id else None for id in language_ids.tolist()])
        rows = torch.arange(input_ids.shape[0], device=input_ids.device)
        return BaseModelOutputWithPooling(pooler_output=readers.map(read, rows))
