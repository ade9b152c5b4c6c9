"""MLA's recipes: a native model, plain or with languages already, acquires those that the recipe names."""

from functools import cached_property
from typing import Any, ClassVar

import torch
from transformers import AutoModel, AutoProcessor, PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin

from ..configuration.presets import load_preset
from ..configuration.pretrained import load_model, load_processor
from ..configuration.tasks import IMAGE_TEXT
from ..modeling.modeling_mla import MlaModel
from ..processing.processing_mla import MlaProcessor
from .base import RecipeRun
from .recipe import merged
from .recipe_checks import overrides_checked
from .vocabulary import pretrained_table


class MlaRun(RecipeRun):
    """A recipe of MLA.

    `model.from_pretrained` is a plain dual encoder, for which the recipe gives a `multilingual_tokenizer`, or an MLA
    model; `model.overrides` are `MlaConfig`'s keys, `languages` those to acquire. With `model.preset` the native model
    is new as well, and `tokenizer` is its own.
    """

    sections: ClassVar[tuple[str, ...]] = ("multilingual_tokenizer",)
    overrides_start = True

    @cached_property
    def image_languages(self) -> list[str]:
        """Languages with captioned images in training: the native one, and those of language exposure."""
        return list(dict.fromkeys([self._native_language, *self._exposed]))

    @cached_property
    def _exposed(self) -> list[str]:
        is_exposed = any(IMAGE_TEXT in stage.tasks for stage in self.stages)
        return self._languages(IMAGE_TEXT) if is_exposed else []

    @property
    def _native_language(self) -> str:
        return self.recipe.model.overrides.get("native_language", "en")

    @property
    def _acquired(self) -> list[str]:
        return self.recipe.model.overrides.get("languages", [])

    @property
    def readable_languages(self) -> list[str] | None:
        return [self._native_language, *self._acquired]

    def vocabulary(self, processor: ProcessorMixin) -> PreTrainedTokenizerBase:
        return processor.multilingual_tokenizer

    @cached_property
    def _given(self) -> tuple[PreTrainedModel, ProcessorMixin]:
        """The trained model to go on from, and its processor."""
        source = self.recipe.model
        attention: dict[str, Any] = {"attn_implementation": source.attn_implementation}
        model = load_model(AutoModel, self.start, **attention, **self.code)
        return model, load_processor(AutoProcessor, self.start, **self.code)

    def _check_overrides(self) -> None:
        source = self.recipe.model
        if source.preset:
            with overrides_checked():
                base = load_preset(source.preset).base_config.to_dict()
                base = merged(base, source.overrides.get("base_config", {}))
                load_preset(source.preset, **source.overrides | {"base_config": base})

    def make_processor(self) -> ProcessorMixin:
        languages: dict[str, Any] = {"native_language": self._native_language, "languages": self._acquired}
        if self.recipe.model.preset:
            config = load_preset(self.recipe.model.preset)
            return MlaProcessor(
                self.new_image_processor(),
                self.new_tokenizer("tokenizer", [self._native_language], [self._native_language]),
                self.new_tokenizer("multilingual_tokenizer", self.captions, self.captions),
                max_text_length=config.base_config.text_config.max_position_embeddings,
                **languages,
            )
        model, processor = self._given
        if isinstance(model, MlaModel):
            processor.languages = list(dict.fromkeys([*processor.languages, *self._acquired]))
            return processor
        tokenizer = self.new_tokenizer("multilingual_tokenizer", self.captions, self.captions)
        return MlaProcessor.for_native(model.config, processor, tokenizer, **languages)

    def make_model(self, processor: ProcessorMixin) -> PreTrainedModel:
        source, tokenizer = self.recipe.model, processor.multilingual_tokenizer
        options: dict[str, Any] = source.overrides | {"languages": processor.languages}
        if source.preset is None:
            model = self._given[0]
            if isinstance(model, MlaModel):
                return model.reconfigured(**options)
            return self._wrapped(model, tokenizer, options)
        native = {"vocab_size": len(processor.tokenizer), "eos_token_id": processor.tokenizer.sep_token_id}
        base = options.pop("base_config", {})
        base = base | {"text_config": base.get("text_config", {}) | native}
        preset = load_preset(source.preset)
        base = merged(preset.base_config.to_dict(), base)
        vocabulary = {"vocab_size": len(tokenizer), "sep_token_id": tokenizer.sep_token_id}
        config = load_preset(source.preset, **options, **vocabulary, base_config=base)
        return AutoModel.from_config(config, attn_implementation=source.attn_implementation)

    def _wrapped(
        self, native: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, options: dict[str, Any]
    ) -> PreTrainedModel:
        """A plain dual encoder with room for the languages, and with the vocabulary's own table where it has one."""
        vocabulary = {"vocab_size": len(tokenizer), "sep_token_id": tokenizer.sep_token_id}
        source = self.recipe.multilingual_tokenizer
        table = (
            pretrained_table(source.from_pretrained, tokenizer, **self.code)
            if source and source.from_pretrained
            else None
        )
        if table is None:
            return MlaModel.from_native(native, **options, **vocabulary)
        vocabulary |= {"vocab_size": len(table), "embedding_size": table.shape[1]}
        model = MlaModel.from_native(native, **options, **vocabulary)
        with torch.no_grad():
            model.embedding.mla_embedding.table.weight.copy_(table)
        return model
