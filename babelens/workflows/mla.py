"""MLA's recipes: a native model, plain or with languages already, acquires those that the recipe names."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from transformers import (
    AutoModel,
    AutoProcessor,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    ProcessorMixin,
)

from ..configuration.merging import merged
from ..configuration.presets import load_preset
from ..configuration.pretrained import load_model, load_processor
from ..configuration.strict_config import IMAGE_TEXT, TRIPLET
from ..modeling.modeling_mla import MlaModel
from ..processing.processing_mla import MlaProcessor, closing_token_id
from .building import ModelBuilder, native_with_vocabulary, pretrained_table, rows_of_pieces
from .data import RecipeData
from .loading import Workflow
from .recipe import DualEncoderRecipe, TokenizerSource


@dataclass(frozen=True)
class MlaRecipe(DualEncoderRecipe):
    """A recipe of MLA.

    `model.from_pretrained` is a plain dual encoder or an MLA model; `model.overrides` are `MlaConfig`'s keys, of which
    `languages` are those to acquire. With `model.preset` the native model is new as well, and `tokenizer` is its own.

    Args:
        multilingual_tokenizer: the vocabulary of the acquired languages; not needed where the model has one.
    """

    multilingual_tokenizer: TokenizerSource | None = None


class MlaData(RecipeData):
    """The data of a recipe of MLA, and which languages are native and acquired."""

    @property
    def native_language(self) -> str:
        return self.recipe.model.overrides.get("native_language", "en")

    @property
    def acquired_languages(self) -> list[str]:
        return self.recipe.model.overrides.get("languages", [])

    @cached_property
    def image_languages(self) -> list[str]:
        """Languages with captioned images in training: the native one, and those of language exposure."""
        trained = {task for stage in self.recipe.all_stages for task in stage.tasks}
        exposed = [tag for task in (IMAGE_TEXT, TRIPLET) if task in trained for tag in self.languages_of_task(task)]
        return list(dict.fromkeys([self.native_language, *exposed]))

    @property
    def readable_languages(self) -> list[str] | None:
        return [self.native_language, *self.acquired_languages]


class MlaBuilder(ModelBuilder):
    """Builds an MLA model on a trained native model or on a new one."""

    overrides_start = True

    @cached_property
    def native_parts(self) -> tuple[PreTrainedModel, ProcessorMixin]:
        """The trained model that training goes on from, and its processor."""
        attention: dict[str, Any] = {"attn_implementation": self.recipe.model.attn_implementation}
        model = load_model(AutoModel, self.start, **attention, **self.code)
        return model, load_processor(AutoProcessor, self.start, **self.code)

    def vocabulary(self, processor: ProcessorMixin) -> PreTrainedTokenizerBase:
        return processor.multilingual_tokenizer

    def make_processor(self) -> ProcessorMixin:
        native, acquired = self.data.native_language, self.data.acquired_languages
        languages: dict[str, Any] = {"native_language": native, "languages": acquired}
        if self.recipe.model.preset:
            config = load_preset(self.recipe.model.preset)
            return MlaProcessor(
                self.new_image_processor(),
                self.new_tokenizer("tokenizer", [native], [native]),
                self.multilingual_tokenizer(),
                max_text_length=config.base_config.text_config.max_position_embeddings,
                **languages,
            )
        model, processor = self.native_parts
        if isinstance(model, MlaModel):
            processor.languages = list(dict.fromkeys([*processor.languages, *acquired]))
            return processor
        declared = {"text_tower": self.recipe.model.overrides.get("text_tower")}
        tokenizer = self.multilingual_tokenizer()
        return MlaProcessor.for_native(model.config, processor, tokenizer, **languages, **declared)

    def multilingual_tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer that the recipe describes, with pieces from the captions of all languages."""
        return self.new_tokenizer("multilingual_tokenizer", self.data.captions, self.data.captions)

    def make_model(self, processor: ProcessorMixin) -> PreTrainedModel:
        source, tokenizer = self.recipe.model, processor.multilingual_tokenizer
        options: dict[str, Any] = source.overrides | {"languages": processor.languages}
        if source.preset is None:
            model = self.native_parts[0]
            if isinstance(model, MlaModel):
                return model.reconfigured(**options)
            return native_with_vocabulary(model, tokenizer, self._pretrained_table(tokenizer), **options)
        native = {"vocab_size": len(processor.tokenizer), "eos_token_id": processor.tokenizer.sep_token_id}
        vocabulary = {"vocab_size": len(tokenizer), "sep_token_id": closing_token_id(tokenizer)}
        changes = merged(options, {"base_config": {"text_config": native}} | vocabulary)
        config = load_preset(source.preset, **changes)
        return AutoModel.from_config(config, attn_implementation=source.attn_implementation)

    def _pretrained_table(self, tokenizer: PreTrainedTokenizerBase) -> Any:
        """The embeddings of the model that the multilingual tokenizer was taken from, where there is one."""
        source = self.recipe.multilingual_tokenizer
        if source is None or source.from_pretrained is None:
            return None
        if source.coverage is None:
            return pretrained_table(source.from_pretrained, tokenizer, **self.code)
        whole = load_processor(AutoTokenizer, source.from_pretrained, **self.code)
        table = pretrained_table(source.from_pretrained, whole, **self.code)
        return None if table is None else rows_of_pieces(table, tokenizer, whole)


WORKFLOW = Workflow(recipe=MlaRecipe, data=MlaData, builder=MlaBuilder)
