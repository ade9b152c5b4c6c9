"""Recipes of methods that learn from the words of texts in several languages, and from a backbone's features of
images: what those of SMALR and LIWE share."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from transformers import PreTrainedConfig, PreTrainedModel, ProcessorMixin

from ..configuration.errors import RecipeError
from ..configuration.presets import load_preset
from ..configuration.strict_config import IMAGE_TEXT
from ..data.batching.captioned_images import CaptionedImages
from ..inference.backbones import check_backbone, load_backbone, load_image_processor
from ..model_cards.base_models import IMAGE_TOWER
from .building import ModelBuilder
from .data import RecipeData
from .recipe import OF_NEW_MODEL, ImageSizes, Recipe, Stage, check_languages
from .reporting import Reporting


@dataclass(frozen=True)
class DictionarySource:
    """A dictionary, by which rare words share the embedding of a word of another language.

    Args:
        files: MUSE's dictionaries, from each language to `target`: a word and its translation in every line.
        threshold: words of these languages that occur less often have the embedding of their translation; without
            one, they are left out.
        target: the language of the translations.
    """

    files: dict[str, str]
    threshold: int
    target: str = "en"

    def __post_init__(self) -> None:
        check_languages([self.target], "target")
        check_languages(self.files, "files")


@dataclass(frozen=True)
class WordsSource:
    """The words of a word-level model (SMALR), taken from the captions of its languages.

    Args:
        max_size: size of each language's vocabulary, which has its most frequent words; default: all.
        min_frequency: words that occur less often are left out.
        vectors: FastText's `.vec` or `.vec.gz` files by language.
        aligned: whether the files' vectors are those of one space, in which words of equal meaning are near each other
            in all languages. They are then reduced to the same principal components, which keep them aligned, and
            every language needs a file. Vectors that are not aligned are reduced language by language.
        train_vectors: whether vectors are trained on the captions of languages that have no file.
        dictionary: a dictionary for rare words; for a model whose other words have embeddings of their own.
        max_text_length: number of words after which texts are cut.
    """

    max_size: int | None = None
    min_frequency: int = 1
    vectors: dict[str, str] = field(default_factory=dict)
    aligned: bool = False
    train_vectors: bool = True
    dictionary: DictionarySource | None = None
    max_text_length: int = 40

    def __post_init__(self) -> None:
        check_languages(self.vectors, "vectors")
        for name in ("max_size", "min_frequency", "max_text_length"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise RecipeError(f"{name} must be at least 1, not {getattr(self, name)}")


@dataclass(frozen=True)
class WordsRecipe(Recipe):
    """A recipe of a word-level model; all of these keys describe a new one.

    Args:
        words: the words of its vocabularies.
        backbone: folder or Hub id of a vision model or a dual encoder whose vision tower sees the images; default: the
            configuration's, untrained.
        image: the sizes of its images, which are then scaled as MURAL's are; default: images are prepared by the
            backbone's own image processor.
    """

    words: WordsSource | None = field(default=None, metadata=OF_NEW_MODEL)
    backbone: str | None = field(default=None, metadata=OF_NEW_MODEL)
    image: ImageSizes | None = field(default=None, metadata=OF_NEW_MODEL)


class WordsData(RecipeData):
    """The data of a word-level model, whose examples are images with several captions."""

    @cached_property
    def languages(self) -> list[str]:
        """The languages of the model: those of the data, unless `model.overrides` names others."""
        return self.recipe.model.overrides.get("languages") or self.image_languages

    @property
    def readable_languages(self) -> list[str] | None:
        return self.languages

    def count_examples(self, task: str, stage: Stage) -> int | None:
        data = self.task_data(task, stage)
        return len(CaptionedImages(data.corpus, data.languages, with_images=task == IMAGE_TEXT))


class WordsBuilder(ModelBuilder):
    """Builds a word-level model on a backbone."""

    @property
    def words(self) -> WordsSource:
        """The recipe's `words`, or their defaults."""
        return self.recipe.words or WordsSource()

    def vocabulary(self, processor: ProcessorMixin) -> ProcessorMixin:
        return processor

    def config(self, **words: Any) -> PreTrainedConfig:
        """The recipe's configuration with that of the backbone.

        Args:
            words: keys of the configuration that follow from the vocabularies.
        """
        source = self.recipe.model
        vision = {"vision_config": self._backbone.config} if self._backbone is not None else self._feature_size
        return load_preset(source.preset or "", **vision | source.overrides | words)

    def with_backbone(self, model: Any) -> PreTrainedModel:
        """The model with the weights of the recipe's backbone."""
        if model.vision_model is not None and self._backbone is not None:
            model.take_backbone(self._backbone)
        return model

    def new_image_processor(self) -> Any:
        """The backbone's own, or, where the recipe states the sizes of images, one with these."""
        source = self.recipe.backbone
        if source is None:
            return super().new_image_processor()
        own = self.recipe.image is None
        images = load_image_processor(source, **self.code) if own else super().new_image_processor()
        check_backbone(self._backbone, images, source)
        return images

    @property
    def _feature_size(self) -> dict[str, int]:
        """The width of the features that a corpus has in the place of images."""
        corpus = self.data.corpora[IMAGE_TEXT]
        if "features" not in corpus.column_names:
            return {}
        return {"image_feature_size": len(corpus[0]["features"])}

    @cached_property
    def _backbone(self) -> Any | None:
        return None if self.recipe.backbone is None else load_backbone(self.recipe.backbone, **self.code)


class WordsReporting(Reporting):
    """Models that read words may read features of images alone, and need the language of every label, which
    endpoints do not ask for: they are shown as models that embed."""

    in_pipelines = False

    def base_sources(self) -> dict[str, str | None]:
        """The backbone among them, whose weights are part of the model."""
        return super().base_sources() | {IMAGE_TOWER: self.recipe.backbone}
