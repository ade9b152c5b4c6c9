"""Recipes of SMALR and LIWE, which learn from words of multilingual texts and from a backbone's image features."""

import logging
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoImageProcessor, BaseImageProcessor, PreTrainedConfig, PreTrainedModel, ProcessorMixin

from ..configuration.configuration_smalr import SPECIAL_IDS
from ..configuration.configuration_two_tower import IMAGE_TEXT, TEXT_TEXT
from ..data.batching.collators import CaptionedImages
from ..inference.backbones import check_backbone, load_backbone
from ..model_cards.base_models import IMAGE_TOWER
from ..modeling.modeling_liwe import LiweModel
from ..modeling.modeling_smalr import SmalrLatentModel, SmalrModel
from ..presets import load_preset
from ..processing.processing_liwe import LiweProcessor, frequent_characters
from ..processing.processing_smalr import SmalrProcessor, frequent_words
from ..processing.word_vectors import dictionary_words, reduce_vectors, word_vectors
from ..utils.errors import RecipeError
from ..utils.pretrained import load_processor
from .build import ModelBuilder
from .data import RecipeData
from .schema import Count, ImageSizes, Language, Recipe, Section, Stage, check_names

logger = logging.getLogger(__name__)


class DictionarySource(Section):
    """A dictionary by which words of these languages that occur less often than `threshold` take the embedding of
    their translation; words without a translation are left out."""

    files: dict[Language, str]  # MUSE's, from each language to `target`, with a word and its translation per line
    threshold: int
    target: Language = "en"


class WordsSource(Section):
    """The words of a word-level model (SMALR), taken from the captions of its languages."""

    min_frequency: Count = 1
    vectors: dict[Language, str] = {}  # FastText's `.vec` or `.vec.gz` files; others are trained on the captions
    dictionary: DictionarySource | None = None  # for a model whose other words have embeddings of their own
    max_text_length: Count = 40  # words


class WordsRecipe(Recipe):
    """A recipe of a word-level model. Keys of a new model: the words of its vocabularies; a vision model or dual
    encoder (default: untrained); and image sizes, scaled as in MURAL (default: the backbone's image processor)."""

    only_from_scratch = ("words", "backbone", "image")

    words: WordsSource | None = None
    backbone: str | None = None
    image: ImageSizes | None = None


class WordsData(RecipeData):
    recipe: WordsRecipe

    @cached_property
    def languages(self) -> list[str]:
        """The languages of the model: the data's, unless `model.overrides` names others."""
        return self.recipe.model.overrides.get("languages") or self.image_languages

    @property
    def readable_languages(self) -> list[str] | None:
        return self.languages

    def count_examples(self, task: str, stage: Stage) -> int | None:
        data = self.task_data(task, stage)
        return len(CaptionedImages(data.corpus, data.languages, with_images=task == IMAGE_TEXT))


class WordsBuilder(ModelBuilder):
    recipe_class = WordsRecipe
    data_class = WordsData
    # Word-level models need the language of every label, which endpoints do not ask for, and may read only features.
    in_pipelines = False
    recipe: WordsRecipe
    data: WordsData

    def base_sources(self) -> dict[str, str | None]:
        return super().base_sources() | {IMAGE_TOWER: self.recipe.backbone}

    @property
    def words(self) -> WordsSource:
        return self.recipe.words or WordsSource()

    def vocabulary(self, processor: ProcessorMixin) -> ProcessorMixin:
        return processor

    def config(self, **words: Any) -> PreTrainedConfig:
        """Makes the configuration, with the backbone's; `words` are the keys that depend on the vocabularies."""
        source, vision = self.recipe.model, {}
        if self._backbone is not None:
            vision = {"vision_config": self._backbone.config}
        elif "features" in (corpus := self.data.corpora[IMAGE_TEXT]).column_names:  # features replace the images
            vision = {"image_feature_size": len(corpus[0]["features"])}
        return load_preset(source.preset or "", **vision | source.overrides | words)

    def unknown_rates(self, processor: ProcessorMixin) -> dict[str, float]:
        captions = self.data.captions
        tags = getattr(processor, "languages", captions)  # LIWE reads any language
        return {tag: round(processor.unknown_rate(captions[tag], tag), 3) for tag in tags}

    def with_backbone(self, model: LiweModel | SmalrModel) -> PreTrainedModel:
        if model.vision_model is not None and self._backbone is not None:
            model.vision_model.load_state_dict(self._backbone.state_dict())
        return model

    def new_image_processor(self) -> BaseImageProcessor:
        source = self.recipe.backbone
        if source is None or self.recipe.image is not None:
            images = super().new_image_processor()
        else:
            images = load_processor(AutoImageProcessor, source, **self.code)
        if source is not None:
            check_backbone(self._backbone, images, source)
        return images

    @cached_property
    def _backbone(self) -> PreTrainedModel | None:
        return None if self.recipe.backbone is None else load_backbone(self.recipe.backbone, **self.code)


# ---- LIWE's recipes: the characters of the captions, then the model ----


class LiweBuilder(WordsBuilder):
    """Builds a LIWE model; it reads only `min_frequency` (of characters) and `max_text_length` from `words`."""

    def make_processor(self) -> ProcessorMixin:
        if self.recipe.model.from_pretrained:
            return super().make_processor()
        if self.words.vectors:
            raise RecipeError("words.vectors: LIWE reads the characters of all words, without word vectors")
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


# ---- SMALR's recipes: words and their vectors from the captions, the latent vocabulary, then the model ----


class SmalrBuilder(WordsBuilder):
    """Builds a SMALR model. A first stage with only `text_text` learns the latent vocabulary. If the model has none,
    that stage is MULE's warm-up, which aligns the projections of the words."""

    def make_processor(self) -> ProcessorMixin:
        if self.recipe.model.from_pretrained:
            return super().make_processor()
        vocabularies = {tag: [*words, *self._mapped.get(tag, {})] for tag, words in self._own_words.items()}
        length = self.words.max_text_length
        return SmalrProcessor(self.new_image_processor(), vocabularies, max_text_length=length)

    def make_model(self, processor: ProcessorMixin) -> PreTrainedModel:
        if self.recipe.model.from_pretrained:
            return super().make_model(processor)
        config = self._config(processor)
        if self.recipe.all_stages[0].tasks == [TEXT_TEXT] and config.latent_tokens:
            latent = SmalrLatentModel(config)
            latent.load_word_vectors(*self._vectors(processor))
            return latent
        model = SmalrModel(config)
        model.load_word_vectors(self._vectors(processor)[1])
        self._share_rows(model, processor)
        return self.with_backbone(model)

    def next_model(self, model: PreTrainedModel) -> PreTrainedModel:
        """Makes the next model, with the latent vocabulary as a part. `model.overrides` apply to it, even if the run
        of another recipe learned the vocabulary."""
        if not isinstance(model, SmalrLatentModel):
            return model
        return self.with_backbone(SmalrModel.from_latent(model, **self.recipe.model.overrides))

    def _config(self, processor: ProcessorMixin) -> PreTrainedConfig:
        sizes = [len(processor.vocabularies[language]) for language in processor.languages]
        mapped = [len(self._mapped.get(language, {})) for language in processor.languages]
        return self.config(languages=processor.languages, vocabulary_sizes=sizes, dictionary_words=mapped)

    @cached_property
    def _own_words(self) -> dict[str, list[str]]:
        least, dictionary = self.words.min_frequency, self.words.dictionary
        thresholds = dict.fromkeys(dictionary.files, max(least, dictionary.threshold)) if dictionary else {}
        return {tag: self._frequent_words(tag, thresholds.get(tag, least)) for tag in self.data.languages}

    @cached_property
    def _mapped(self) -> dict[str, dict[str, str]]:
        """The rare words that a dictionary maps to words in another language, by language."""
        dictionary = self.words.dictionary
        if dictionary is None:
            return {}
        check_names([dictionary.target, *dictionary.files], self.data.languages, "words.dictionary")
        if dictionary.target in dictionary.files:
            raise RecipeError(f"words.dictionary.files: {dictionary.target!r} is the target")
        targets = self._own_words[dictionary.target]
        mapped: dict[str, dict[str, str]] = {}
        for language, path in dictionary.files.items():
            rare = self._frequent_words(language, self.words.min_frequency)[len(self._own_words[language]) :]
            mapped[language] = dictionary_words(path, rare, language, targets, dictionary.target)
            logger.info("%s: a dictionary maps %d of %d rare words", language, len(mapped[language]), len(rare))
        return mapped

    def _frequent_words(self, language: str, least: int) -> list[str]:
        return frequent_words(self.data.captions[language], language, min_frequency=least)

    def _share_rows(self, model: SmalrModel, processor: ProcessorMixin) -> None:

        def indices(language: str, of: Iterable[str]) -> Tensor:
            """The indices of a language's words among the words of all languages, [n]."""
            ids = {word: index for index, word in enumerate(processor.vocabularies[language], SPECIAL_IDS)}
            wanted = torch.tensor([[ids[word] for word in of]], dtype=torch.long)
            return model.words.words(wanted, torch.tensor([processor.languages.index(language)]))[0]

        for language, translations in self._mapped.items():
            assert self.words.dictionary is not None
            target = self.words.dictionary.target
            model.words.share(indices(language, translations), indices(target, translations.values()))

    def _vectors(self, processor: ProcessorMixin) -> tuple[Tensor, Tensor]:
        """Returns the vectors of all words [words, vector size], and the reduced ones [words, word size]."""
        config = self._config(processor)
        size = config.vector_size or config.word_size
        found = word_vectors(processor.vocabularies, self.words.vectors, size=size, captions=self.data.captions)
        parts = [reduce_vectors(each, config.word_size) for each in found]
        whole, specific = (torch.from_numpy(np.concatenate(of)) for of in (found, parts))
        return whole, specific
