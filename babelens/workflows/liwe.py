"""LIWE's recipes: the characters of the captions, then the model."""

from transformers import PreTrainedModel, ProcessorMixin

from ..configuration.errors import RecipeError
from ..modeling.modeling_liwe import LiweModel
from ..processing.processing_liwe import LiweProcessor, frequent_characters
from .words import WordDualEncoderRun


class LiweRun(WordDualEncoderRun):
    """A recipe of LIWE; of `words` it has `min_frequency`, of characters, and `max_text_length`."""

    def make_processor(self) -> ProcessorMixin:
        if self.recipe.model.from_pretrained:
            return super().make_processor()
        for name in ("max_size", "vectors"):
            if getattr(self._words, name):
                raise RecipeError(f"words.{name}: LIWE reads the characters of all words, without word vectors")
        texts = {language: self.captions[language] for language in self.languages}
        return LiweProcessor(
            self.new_image_processor(),
            frequent_characters(texts, min_frequency=self._words.min_frequency),
            max_text_length=self._words.max_text_length,
            word_length=self._preset().word_length,
        )

    def make_model(self, processor: ProcessorMixin) -> PreTrainedModel:
        if self.recipe.model.from_pretrained:
            return super().make_model(processor)
        return self._with_backbone(LiweModel(self._preset(vocab_size=processor.vocab_size)))

    def unknown_rates(self, processor: ProcessorMixin) -> dict[str, float]:
        """How many of 100 characters are unknown, in each language of the corpora."""
        return {
            language: round(processor.unknown_rate(texts, language), 3) for language, texts in self.captions.items()
        }
