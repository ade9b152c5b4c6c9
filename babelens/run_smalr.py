"""SMALR's recipes: words and their vectors from the captions, the latent vocabulary, then the model."""

from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModel, PreTrainedModel, ProcessorMixin

from .configuration.presets import load_preset
from .configuration.tasks import TEXT_TEXT
from .modeling.modeling_smalr import SmalrModel
from .modeling.modeling_smalr_latent import SmalrLatentModel
from .modeling.word_embedding import SPECIAL_TOKENS
from .processing.processing_smalr import SmalrProcessor
from .processing.word_vectors import word_vectors
from .processing.word_vocabulary import frequent_words
from .recipe import WordsSource
from .run import RecipeRun


class SmalrRun(RecipeRun):
    """A recipe of SMALR.

    `words` says which words each language has and where their vectors come from, `backbone` whose vision tower sees
    the pictures. A first stage with `text_text` alone learns the latent vocabulary; a model without one, such as MULE,
    needs none.
    """

    @cached_property
    def languages(self) -> list[str]:
        return self.recipe.model.overrides.get("languages") or self.image_languages

    @property
    def _words(self) -> WordsSource:
        return self.recipe.words or WordsSource()

    def make_processor(self) -> ProcessorMixin:
        if self.recipe.model.from_pretrained:
            return super().make_processor()
        source = self._words
        vocabularies = {
            language: frequent_words(
                self.captions[language],
                language,
                max_size=source.max_size,
                min_frequency=source.min_frequency,
            )
            for language in self.languages
        }
        return SmalrProcessor(self.new_image_processor(), vocabularies, max_text_length=source.max_text_length)

    def make_model(self, processor: ProcessorMixin) -> PreTrainedModel:
        if self.recipe.model.from_pretrained:
            return super().make_model(processor)
        config = self._config(processor)
        if self.stages[0].tasks == [TEXT_TEXT]:
            latent = SmalrLatentModel(config)
            latent.vectors[SPECIAL_TOKENS:] = self._vectors(processor)
            return latent
        model = SmalrModel(config)
        model.load_word_vectors(self._vectors(processor))
        return self._with_backbone(model)

    def vocabulary(self, processor: ProcessorMixin) -> ProcessorMixin:
        return processor

    def unknown_rates(self, processor: ProcessorMixin) -> dict[str, float]:
        return {
            language: round(vocabulary.unknown_rate(self.captions[language]), 3)
            for language, vocabulary in processor.vocabularies.items()
        }

    def next_model(self, model: PreTrainedModel) -> PreTrainedModel:
        """The latent vocabulary becomes part of the model that is trained next."""
        return self._with_backbone(SmalrModel.from_latent(model)) if isinstance(model, SmalrLatentModel) else model

    def _config(self, processor: ProcessorMixin) -> Any:
        source = self.recipe.model
        sizes = [len(processor.vocabularies[language].words) for language in processor.languages]
        vision = {"vision_config": self._backbone.config} if self._backbone is not None else {}
        words = {"languages": processor.languages, "vocabulary_sizes": sizes}
        return load_preset(source.preset or "", **vision | source.overrides | words)

    def _vectors(self, processor: ProcessorMixin) -> Tensor:
        """The vectors of all languages' words, [words, word size]."""
        size = self._config(processor).word_size
        found = [
            word_vectors(
                vocabulary.words,
                language,
                self._words.vectors,
                captions=self.captions[language] if self._words.train_vectors else None,
                size=size,
            ).matrix
            for language, vocabulary in processor.vocabularies.items()
        ]
        return torch.cat([torch.from_numpy(matrix) for matrix in found])

    @cached_property
    def _backbone(self) -> Any | None:
        """A vision backbone: a model by itself, that of a dual encoder, or that of an MLA model's native one."""
        if self.recipe.backbone is None:
            return None
        model = AutoModel.from_pretrained(self.recipe.backbone)
        for part in ("native_model", "vision_model"):
            model = getattr(model, part, model)
        return model

    def _with_backbone(self, model: SmalrModel) -> SmalrModel:
        if model.vision_model is not None and self._backbone is not None:
            model.vision_model.load_state_dict(self._backbone.state_dict())
        return model
