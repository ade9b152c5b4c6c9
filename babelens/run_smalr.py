"""SMALR's recipes: words and their vectors from the captions, the latent vocabulary, then the model."""

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel, ProcessorMixin

from .configuration.tasks import TEXT_TEXT
from .modeling.modeling_smalr import SmalrModel
from .modeling.modeling_smalr_latent import SmalrLatentModel
from .modeling.word_embedding import SPECIAL_TOKENS
from .processing.processing_smalr import SmalrProcessor
from .processing.word_vectors import word_vectors
from .processing.word_vocabulary import frequent_words
from .run_captioned_pictures import CaptionedPicturesRun


class SmalrRun(CaptionedPicturesRun):
    """A recipe of SMALR.

    `words` says which words each language has and where their vectors come from. A first stage with `text_text` alone
    learns the latent vocabulary; a model without one, such as MULE, needs none.
    """

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

    def unknown_rates(self, processor: ProcessorMixin) -> dict[str, float]:
        return {
            language: round(vocabulary.unknown_rate(self.captions[language]), 3)
            for language, vocabulary in processor.vocabularies.items()
        }

    def next_model(self, model: PreTrainedModel) -> PreTrainedModel:
        """The latent vocabulary becomes part of the model that is trained next, which is as the recipe says, even if
        another recipe's run has learned the vocabulary."""
        if not isinstance(model, SmalrLatentModel):
            return model
        return self._with_backbone(SmalrModel.from_latent(model, **self.recipe.model.overrides))

    def _config(self, processor: ProcessorMixin) -> PreTrainedConfig:
        sizes = [len(processor.vocabularies[language].words) for language in processor.languages]
        return self._preset(languages=processor.languages, vocabulary_sizes=sizes)

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
