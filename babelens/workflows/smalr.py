"""SMALR's recipes: words and their vectors from the captions, the latent vocabulary, then the model."""

import logging
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel, ProcessorMixin

from ..configuration.configuration_smalr import SPECIAL_IDS
from ..configuration.errors import RecipeError
from ..configuration.strict_config import TEXT_TEXT
from ..modeling.modeling_smalr import SmalrModel
from ..modeling.modeling_smalr_latent import SmalrLatentModel
from ..processing.processing_smalr import SmalrProcessor, frequent_words
from ..processing.word_vectors import aligned_word_vectors, dictionary_words, word_vectors
from .data import file_digest
from .loading import Workflow
from .words import WordsBuilder, WordsData, WordsRecipe, WordsReporting

logger = logging.getLogger(__name__)


class SmalrData(WordsData):
    """The data of SMALR, its dictionaries among them."""

    def digests(self) -> dict[str, str]:
        """Of the dictionaries as well: they decide which word's embedding a rare word has."""
        recipe: Any = self.recipe
        dictionary = recipe.words.dictionary if recipe.words else None
        files = dictionary.files if dictionary else {}
        return super().digests() | {
            f"words.dictionary.files.{language}": file_digest(path) for language, path in files.items()
        }


class SmalrBuilder(WordsBuilder):
    """Builds a SMALR model.

    `words` tells which words each language has and where their vectors come from; by a dictionary, rare words have the
    embedding of a word of another language. A first stage with `text_text` alone learns the latent vocabulary; of a
    model without a latent vocabulary, it is MULE's warm-up, which aligns the projections of the words.
    """

    def make_processor(self) -> ProcessorMixin:
        if self.recipe.model.from_pretrained:
            return super().make_processor()
        vocabularies = {
            language: [*words, *self._mapped.get(language, {})] for language, words in self._own_words.items()
        }
        length = self.words.max_text_length
        return SmalrProcessor(self.new_image_processor(), vocabularies, max_text_length=length)

    def make_model(self, processor: ProcessorMixin) -> PreTrainedModel:
        if self.recipe.model.from_pretrained:
            return super().make_model(processor)
        config = self._config(processor)
        if self.recipe.all_stages[0].tasks == [TEXT_TEXT] and config.latent_tokens:
            latent = SmalrLatentModel(config)
            latent.vectors[SPECIAL_IDS:] = self._vectors(processor)
            return latent
        model = SmalrModel(config)
        model.load_word_vectors(self._vectors(processor))
        self._share_rows(model, processor)
        return self.with_backbone(model)

    def unknown_rates(self, processor: ProcessorMixin) -> dict[str, float]:
        """The share of words that are unknown, in percent, in each language of the corpora."""
        return {
            language: round(vocabulary.unknown_rate(self.data.captions[language]), 3)
            for language, vocabulary in processor.vocabularies.items()
        }

    def next_model(self, model: PreTrainedModel) -> PreTrainedModel:
        """The latent vocabulary becomes part of the model that is trained next. `model.overrides` hold for that model,
        even if the run of another recipe learned the vocabulary."""
        if not isinstance(model, SmalrLatentModel):
            return model
        return self.with_backbone(SmalrModel.from_latent(model, **self.recipe.model.overrides))

    def _config(self, processor: ProcessorMixin) -> PreTrainedConfig:
        sizes = [len(processor.vocabularies[language].words) for language in processor.languages]
        mapped = [len(self._mapped.get(language, {})) for language in processor.languages]
        return self.config(languages=processor.languages, vocabulary_sizes=sizes, dictionary_words=mapped)

    @cached_property
    def _own_words(self) -> dict[str, list[str]]:
        """The words of each language that have embeddings of their own."""
        least, dictionary = self.words.min_frequency, self.words.dictionary
        thresholds = dict.fromkeys(dictionary.files, max(least, dictionary.threshold)) if dictionary else {}
        return {
            language: self._frequent_words(language, thresholds.get(language, least))
            for language in self.data.languages
        }

    @cached_property
    def _mapped(self) -> dict[str, dict[str, str]]:
        """The rare words that a dictionary maps to words of another language, by language."""
        dictionary = self.words.dictionary
        if dictionary is None:
            return {}
        for language in (dictionary.target, *dictionary.files):
            if language not in self.data.languages:
                known = ", ".join(self.data.languages)
                raise RecipeError(f"words.dictionary: the model has no language {language!r}; it has {known}")
        if dictionary.target in dictionary.files:
            raise RecipeError(
                f"words.dictionary.files: {dictionary.target!r} is the target, into which the others are translated"
            )
        targets = self._own_words[dictionary.target]
        mapped: dict[str, dict[str, str]] = {}
        for language, path in dictionary.files.items():
            rare = self._frequent_words(language, self.words.min_frequency)[len(self._own_words[language]) :]
            mapped[language] = dictionary_words(path, rare, language, targets, dictionary.target)
            logger.info("%s: a dictionary maps %d of %d rare words", language, len(mapped[language]), len(rare))
        return mapped

    def _frequent_words(self, language: str, least: int) -> list[str]:
        size = self.words.max_size
        return frequent_words(self.data.captions[language], language, max_size=size, min_frequency=least)

    def _share_rows(self, model: SmalrModel, processor: ProcessorMixin) -> None:
        """Gives words that a dictionary maps the rows of their translations."""
        dictionary = self.words.dictionary
        if dictionary is None:
            return
        for language, translations in self._mapped.items():
            words = _word_indices(model, processor, language, translations)
            others = _word_indices(model, processor, dictionary.target, translations.values())
            model.words.share(words, others)

    def _vectors(self, processor: ProcessorMixin) -> Tensor:
        """The vectors of all languages' words, [words, word size]."""
        size = self._config(processor).word_size
        words = {language: vocabulary.words for language, vocabulary in processor.vocabularies.items()}
        if self.words.aligned:
            found = aligned_word_vectors(words, self.words.vectors, size=size)
        else:
            found = {
                language: word_vectors(
                    own,
                    language,
                    self.words.vectors,
                    captions=self.data.captions[language] if self.words.train_vectors else None,
                    size=size,
                )
                for language, own in words.items()
            }
        return torch.cat([torch.from_numpy(vectors.matrix) for vectors in found.values()])


def _word_indices(model: SmalrModel, processor: ProcessorMixin, language: str, words: Iterable[str]) -> Tensor:
    """The indices of a language's words among those of all languages, [n]."""
    ids = {word: index for index, word in enumerate(processor.vocabularies[language].words, SPECIAL_IDS)}
    wanted = torch.tensor([[ids[word] for word in words]], dtype=torch.long)
    return model.words.words(wanted, torch.tensor([processor.languages.index(language)]))[0]


WORKFLOW = Workflow(recipe=WordsRecipe, data=SmalrData, builder=SmalrBuilder, reporting=WordsReporting)
