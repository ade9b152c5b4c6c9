"""LIWE's recipes: the characters of the captions, then the model."""

from transformers import PreTrainedModel, ProcessorMixin

from ..configuration.errors import RecipeError
from ..modeling.modeling_liwe import LiweModel
from ..processing.processing_liwe import LiweProcessor, frequent_characters
from .loading import Workflow
from .words import WordsBuilder, WordsData, WordsRecipe, WordsReporting


class LiweBuilder(WordsBuilder):
    """Builds a LIWE model; of `words` it reads `min_frequency`, of characters, and `max_text_length`."""

    def make_processor(self) -> ProcessorMixin:
        if self.recipe.model.from_pretrained:
            return super().make_processor()
        for name in ("max_size", "vectors", "aligned"):
            if getattr(self.words, name):
                raise RecipeError(f"words.{name}: LIWE reads the characters of all words, without word vectors")
        texts = {language: self.data.captions[language] for language in self.data.languages}
        return LiweProcessor(
            self.new_image_processor(),
            frequent_characters(texts, min_frequency=self.words.min_frequency),
            max_text_length=self.words.max_text_length,
            word_length=self.config().word_length,
        )

    def make_model(self, processor: ProcessorMixin) -> PreTrainedModel:
        if self.recipe.model.from_pretrained:
            return super().make_model(processor)
        return self.with_backbone(LiweModel(self.config(vocab_size=processor.vocab_size)))

    def unknown_rates(self, processor: ProcessorMixin) -> dict[str, float]:
        """The share of characters that are unknown, in percent, in each language of the corpora."""
        return {
            language: round(processor.unknown_rate(texts, language), 3)
            for language, texts in self.data.captions.items()
        }


WORKFLOW = Workflow(recipe=WordsRecipe, data=WordsData, builder=LiweBuilder, reporting=WordsReporting)
