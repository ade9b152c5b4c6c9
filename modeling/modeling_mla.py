"""MLA: a frozen dual encoder that acquires languages (Zhang et al. 2022).

`native_model` is an ordinary dual encoder of transformers or babelens, whose text tower has the wrapped layers of
`acquirer`. A native text (`language_ids` 0) is embedded as by the plain model. For a text in an acquired language, the
acquirers of that language follow every block. Training has two stages: native language transfer moves the features of
a text to those of its native translation, and language exposure to those of its image (section 3.3).
"""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any, Self

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import can_return_tuple

from ..configuration.configuration_mla import MlaConfig
from ..configuration.text_towers import TextTower, text_tower
from .acquirer import (
    AcquiredBlock,
    AcquiredEmbedding,
    Acquirer,
    BatchLanguages,
    MasksByLanguage,
    NonNativeEmbedding,
    RowsByLanguage,
    languages_of_rows,
    take_precision,
)
from .modeling_common import Call, is_exporting, tower_keywords
from .modeling_dual_encoder import count_parameters
from .modeling_mla_base import MlaPreTrainedModel, Trainable, features_of, new_native_model, register_native
from .native_tower import TowerParts, native_marks, tower_parts


class MlaModel(MlaPreTrainedModel):
    """MLA, a frozen dual encoder with acquirers for each acquired language.

    Examples:
        >>> clip = AutoModel.from_pretrained("openai/clip-vit-base-patch32")
        >>> bert = AutoModel.from_pretrained("google-bert/bert-base-multilingual-cased")
        >>> model = MlaModel.from_native(clip, languages=["de"], table=bert.get_input_embeddings().weight)
        >>> inputs = processor(text=["a red car", "ein rotes Auto"], language=["en", "de"], return_tensors="pt")
        >>> model.get_text_features(**inputs).pooler_output  # [2, 512]
    """

    config_class = MlaConfig
    auto_classes = ("AutoModel", "AutoModelForZeroShotImageClassification")

    def __init__(self, config: MlaConfig) -> None:
        super().__init__(config)
        self.native_model = new_native_model(config.base_config)
        self._wrap_text_tower()
        for language in config.languages:
            self._grow(language)
        self._settle_precision()
        self.set_trainable("acquirers")
        self.post_init()

    @classmethod
    def from_native(cls, native_model: PreTrainedModel, *, table: Tensor | None = None, **options: Any) -> Self:
        """Makes a model that is about to acquire languages.

        Args:
            native_model: a dual encoder.
            table ([vocabulary, size]): what the embedding of the acquired languages begins with: that of the model
                whose tokenizer reads them, as the authors begin with M-BERT's. Without it, training begins with random
                word pieces, and takes many more steps.
            options: keys of `MlaConfig`, such as `languages`.

        Raises:
            ModelKindError: if the native model is no dual encoder, or the parts of its text tower are neither known
                (`TEXT_TOWERS`) nor declared (`text_tower`).
        """
        tower_parts(native_model, text_tower(native_model.config, options.get("text_tower")))
        register_native(native_model)
        if table is not None:
            options |= dict(zip(("vocab_size", "embedding_size"), table.shape, strict=True))
        model = cls(MlaConfig(base_config=native_model.config, **{"languages": [], **options}))
        if table is not None:
            model.embedding.mla_embedding.table.load_state_dict({"weight": table})
        model.take_native(native_model)
        for part in model.learned_parts():  # which are trained, and would lose small steps in half precision
            part.to(torch.promote_types(native_model.dtype, torch.float32))
        return model.train(native_model.training)

    def unload(self) -> PreTrainedModel:
        """Returns an independent copy of the native model without MLA."""
        plain, weights = new_native_model(self.config.base_config), self.native_state_dict()
        take_precision(plain, weights)
        plain.load_state_dict(weights)
        return plain.train(self.training)

    # ---- Parts ----

    def _wrap_text_tower(self) -> None:
        config, parts = self.config, self.text_parts
        embedding = AcquiredEmbedding(
            parts.embeddings,
            NonNativeEmbedding(config.vocab_size, config.embedding_size, parts.embedding_width),
            config.sep_token_id,
            native_marks(config.base_config, parts.tower, self._where),
        )
        parts.tower.set_submodule(self._where.embeddings, embedding)
        embedding.watch(parts.tower)
        for index, block in enumerate(parts.blocks):
            parts.blocks[index] = AcquiredBlock(block)

    @property
    def _where(self) -> TextTower:
        return text_tower(self.config.base_config, self.config.text_tower)

    @property
    def text_parts(self) -> TowerParts:
        """The text tower of the native model, and its parts that are wrapped."""
        return tower_parts(self.native_model, self._where)

    @property
    def embedding(self) -> AcquiredEmbedding:
        """The wrapped embedding of the text tower."""
        embedding: Any = self.text_parts.embeddings
        return embedding

    @property
    def blocks(self) -> nn.ModuleList:
        """The wrapped blocks of the text tower."""
        return self.text_parts.blocks

    def _grow(self, language: str) -> None:
        parts = self.text_parts
        for block in parts.blocks:
            acquirer = Acquirer(parts.width, self.config.acquirer_size, self.config.acquirer)
            # Blocks may be on several devices (`device_map`).
            device = next((weight.device for weight in block.base_layer.parameters()), self.device)
            block.mla_acquirers[language] = acquirer.to(device, self.embedding.mla_embedding.table.weight.dtype)

    def add_language(self, language: str) -> None:
        """Adds another language, with newly initialized acquirers.

        Args:
            language: a BCP-47 tag.

        Raises:
            LanguageTagError: if the tag names no language.
            ValueError: if the model already has the language, or it is the native one.
        """
        languages = [*self.config.languages, language]
        checked = MlaConfig(native_language=self.config.native_language, languages=languages).languages
        self._grow(checked[-1])
        self.config.languages = checked

    def reconfigured(self, **options: Any) -> Self:
        """Returns a model with changed options, such as more languages, and with this model's weights where both have
        them.

        Args:
            options: keys of `MlaConfig`.

        Raises:
            ValueError: if the changed model lacks a weight that this one has.
        """
        inherited = {field.name for field in fields(PreTrainedConfig)}
        settings = {f.name: getattr(self.config, f.name) for f in fields(MlaConfig) if f.name not in inherited}
        model = type(self)(MlaConfig(**settings | options))
        weights = self.state_dict()
        take_precision(model, weights)
        for part in model.learned_parts():
            part.to(self.learned_dtype)
        model.stored_weights = self.stored_weights
        _, unexpected = model.load_state_dict(weights, strict=False)
        if unexpected:
            raise ValueError(f"the changed model lacks weights that this one has: {unexpected[:3]}")
        return model.to(self.device).train(self.training)

    def acquirer_parameters(self, languages: Iterable[str] | None = None) -> list[nn.Parameter]:
        """Returns the parameters of the acquirers of some languages, by default of all."""
        chosen = self.config.languages if languages is None else languages
        return [p for language in chosen for block in self.blocks for p in block.mla_acquirers[language].parameters()]

    def set_trainable(
        self, part: Trainable, languages: Sequence[str] | None = None, *, temperature: bool = True
    ) -> None:
        """Selects what is trained; everything else is frozen, including batch-norm statistics.

        The selection is not saved: a loaded model trains the `acquirers` of all its languages, as a new one does.
        While the temperature of the native model is trained, it is at least 0.01, as in CLIP's own training.

        Args:
            part: `acquirers`, those of `languages` and, unless the configuration freezes it, the non-native embedding;
                `native`, the native model alone; or `all`.
            languages: languages whose acquirers are trained, by default all.
            temperature: whether the native model is trained with its temperature. Otherwise that stays, and the
                cosines of a loss are multiplied by the configuration's `logit_scale`, as in language exposure: the
                authors fine-tune with a fixed 100.
        """
        self.requires_grad_(False)
        self.trains_native = part != "acquirers"
        if self.trains_native:
            self.to(torch.promote_types(self.dtype, torch.float32))
        self.trains_temperature = self.trains_native and temperature
        if self.trains_native:
            self.native_model.requires_grad_(True)
            self.embedding.mla_embedding.requires_grad_(False)
            for parameter in self.acquirer_parameters():
                parameter.requires_grad_(False)
            self.temperature_parameter.requires_grad_(temperature)
            if self.config.image_text_objective == "sigmoid" and isinstance(self.logit_bias, nn.Parameter):
                self.logit_bias.requires_grad_(temperature)
        if part != "native":
            for parameter in self.acquirer_parameters(languages):
                parameter.requires_grad_(True)
            self.embedding.mla_embedding.requires_grad_(self.config.train_embedding)
        self.train(self.training)

    def frozen_parts(self) -> list[nn.Module]:
        """As in `MlaPreTrainedModel`."""
        return [] if self.trains_native else [self.native_model]

    def learned_parts(self) -> list[nn.Module]:
        blocks: list[Any] = list(self.blocks)
        return [self.embedding.mla_embedding, *(block.mla_acquirers for block in blocks)]

    def get_input_embeddings(self) -> nn.Module:
        """Returns the embedding table of the acquired languages, the vocabulary that can grow."""
        return self.embedding.mla_embedding.table

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.embedding.mla_embedding.table = value

    def parameter_parts(self) -> dict[str, int]:
        """Returns the number of parameters of each part; they add up to the total."""
        acquired = sum(parameter.numel() for parameter in self.acquirer_parameters())
        embedding = count_parameters(self.embedding.mla_embedding)
        native = count_parameters(self) - acquired - embedding
        return {"native model": native, "non-native embedding": embedding, "acquirers": acquired}

    # ---- Features ----

    @can_return_tuple
    def get_text_features(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        language_ids: Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Embeds texts, each in its language.

        Args:
            input_ids ([N, T]): token ids: of the native tokenizer in native rows, of the multilingual one in other
                rows.
            attention_mask ([N, T]): 0 at padding.
            language_ids ([N]): 0 for native texts, k for the k-th of the configuration's `languages`; by default, all
                texts are native. `MlaProcessor` makes them.
            kwargs: keyword arguments of the native model's text tower.

        Returns:
            The output of the native model's `get_text_features`; `pooler_output` [N, d] is not normalized.

        Raises:
            ArgumentError: for a keyword that the text tower does not have.
            ValueError: if an id is not one of the model's languages, or a text has no [SEP].
        """
        (kwargs,) = tower_keywords(self, kwargs, self.text_calls())
        kwargs |= {"input_ids": input_ids, "attention_mask": attention_mask, "return_dict": True}
        with languages_of_rows(self.native_model, self._rows(language_ids)):
            return features_of(self.native_model.get_text_features, **kwargs)

    def text_calls(self) -> list[Call]:
        return [self.native_model.get_text_features, self.text_parts.tower.forward]

    def _rows(self, language_ids: Tensor | None) -> BatchLanguages | None:
        if language_ids is not None and is_exporting():
            return MasksByLanguage([None, *self.config.languages], language_ids)
        ids = [] if language_ids is None else language_ids.tolist()
        if not any(ids):
            return None
        if min(ids) < 0 or max(ids) > len(self.config.languages):
            raise ValueError(f"language_ids={sorted(set(ids))}: this model acquired {len(self.config.languages)}")
        languages = [None, *self.config.languages]
        return RowsByLanguage([languages[language_id] for language_id in ids])


__all__ = ["MlaModel"]
