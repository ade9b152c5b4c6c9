"""RC3's recipes: from three data sets to a pre-trained encoder-decoder."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

from pydantic import model_validator
from transformers import (
    AutoModelForPreTraining,
    AutoProcessor,
    AutoTokenizer,
    MBartForConditionalGeneration,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    ProcessorMixin,
)

from ..configuration.configuration_rc3 import PARALLEL, STRICT, WEAK, Rc3Config
from ..inference.backbones import RegionExtractor
from ..modeling.modeling_rc3_pretraining import Rc3ForPreTraining
from ..presets import load_preset
from ..processing.processing_rc3 import Rc3Processor
from ..processing.regions import RegionFeatures, open_regions
from ..processing.tokenizer_training import train_bpe
from ..utils.errors import RecipeError
from ..utils.languages import normalize_languages
from ..utils.pretrained import load_config, load_model, load_processor
from .build import ModelBuilder
from .data import RecipeData
from .schema import Count, ImageSizes, Recipe, Section, TokenizerSource

MBART = "mbart"
REGION_SIZES = ("region_size", "max_regions")  # keys of `Rc3Config`


class RegionsSource(Section):
    """The source of the regions of RC3's images. Give one of these."""

    # Files of precomputed regions (`open_regions`). `{language}` in a file name is replaced by each
    # language of MaRVL, which has one file per language.
    features: str | list[str] | None = None
    detector: str | None = None  # folder or Hub id of a transformers object detector
    grid: Count | None = None  # N, for an N×N grid of features of the recipe's `backbone`

    @model_validator(mode="after")
    def _one_source(self) -> "RegionsSource":
        if sum(value is not None for value in (self.features, self.detector, self.grid)) != 1:
            raise ValueError("give either features, a detector or a grid")
        return self


class RegionsRecipe(Recipe):
    """A recipe of a model that reads regions of images."""

    regions: RegionsSource | None = None  # not needed if all images are given as patches
    backbone: str | None = None  # folder or Hub id of the vision model whose features are the cells of `regions.grid`


class Rc3Recipe(RegionsRecipe):
    """A recipe of RC3's pre-training, whose `train` has `strict`, `weak` and `parallel` data. `model` is a preset, an
    mBART with its vocabulary (`babelens trim` shrinks it), or a trained RC3; `model.overrides` are keys of
    `Rc3Config`."""

    only_from_scratch = ("tokenizer",)

    tokenizer: TokenizerSource | None = None
    image: ImageSizes | None = None


class Rc3Data(RecipeData):
    translation_tasks = (PARALLEL,)
    paired_tasks = (STRICT, PARALLEL)

    @cached_property
    def languages(self) -> list[str]:
        """The languages of all data sets, unless `model.overrides` names others."""
        return normalize_languages(self.recipe.model.overrides.get("languages") or sorted(self.captions))


class Rc3Builder(ModelBuilder):
    """Builds an RC3 for pre-training, which is trained with the regions of its images."""

    recipe_class: ClassVar[type[RegionsRecipe]] = Rc3Recipe
    data_class: ClassVar[type[RecipeData]] = Rc3Data
    recipe: RegionsRecipe
    data: Rc3Data
    starts: ClassVar[tuple[str, ...]] = (Rc3Config.model_type, MBART)
    overrides_start = True
    in_pipelines = False
    tasks: list[str] = [STRICT, WEAK, PARALLEL]

    @cached_property
    def _regions(self) -> RegionExtractor | RegionFeatures | None:
        return load_regions(self.recipe, self.region_sizes, **self.code)

    def trainer_options(self) -> dict[str, Any]:
        return {"regions": self._regions}

    @cached_property
    def _is_mbart(self) -> bool:
        source = self.recipe.model.from_pretrained
        return source is not None and load_config(source, **self.code).model_type == MBART

    @cached_property
    def region_sizes(self) -> dict[str, int]:
        source = self.recipe.model
        if source.preset:
            config = load_preset(source.preset)
        else:
            config = Rc3Config() if self._is_mbart else load_config(self.start, **self.code)
        return {name: source.overrides.get(name, getattr(config, name)) for name in REGION_SIZES}

    @property
    def known_overrides(self) -> dict[str, Any]:
        """The overrides without the languages, because their tokens are not known before there is a vocabulary."""
        return {name: value for name, value in super().known_overrides.items() if name != "languages"}

    def check(self) -> None:
        super().check()
        if self.recipe.model.from_pretrained is None:
            self._check_patches()

    def _check_patches(self) -> None:
        """Checks that a new processor makes images of the size that the model cuts into patches."""
        preset, overrides = self.recipe.model.preset, self.known_overrides
        config = load_preset(preset, **overrides) if preset else Rc3Config(**overrides)
        if config.has_patches and (crop := self.image_sizes.crop) != config.image_size:
            raise RecipeError(f"image.crop is {crop}, but the model cuts patches from {config.image_size} pixels")

    def make_processor(self) -> ProcessorMixin:
        source = self.recipe.model.from_pretrained
        if source and not self._is_mbart:
            return load_processor(AutoProcessor, source, **self.code)
        if source:
            self._check_patches()
            tokenizer, make = load_processor(AutoTokenizer, source, **self.code), Rc3Processor.from_mbart_tokenizer
        else:
            tokenizer = self.new_tokenizer("tokenizer", self.data.languages, self.data.captions)
            make = Rc3Processor.new
        return make(tokenizer, self.data.languages, self.new_image_processor(), **self.region_sizes)

    def train_vocabulary(
        self, source: TokenizerSource, texts: list[str], vocab_size: int, alphabet: list[str]
    ) -> PreTrainedTokenizerFast:
        """Trains byte-pair encodings, because the decoder can join their pieces to text."""
        if source.continuing_subword_prefix is not None:
            raise RecipeError("tokenizer.continuing_subword_prefix is for WordPiece; RC3 reads byte-pair encodings")
        return train_bpe(texts, vocab_size, alphabet=alphabet, lowercase=source.lowercase)

    def make_model(self, processor: ProcessorMixin) -> PreTrainedModel:
        source = self.recipe.model
        if source.preset:
            config = load_preset(source.preset, **source.overrides | processor.config_fields())
            return AutoModelForPreTraining.from_config(config, **self.attention)
        if self._is_mbart:
            mbart = load_model(MBartForConditionalGeneration, self.start)
            made = Rc3ForPreTraining.from_mbart(mbart, **source.overrides | processor.config_fields())
            if source.attn_implementation:
                made.set_attn_implementation(source.attn_implementation)
            return made
        options = self.attention | self.code | source.overrides
        return load_model(AutoModelForPreTraining, self.start, part=lambda model: model.base_model, **options)


def load_regions(
    recipe: RegionsRecipe, sizes: Mapping[str, int], **loading: Any
) -> RegionExtractor | RegionFeatures | None:
    """Opens the regions that a recipe names, in the `sizes` of the model; returns None if it names none."""
    source = recipe.regions
    if source is None:
        return None
    if source.features:
        return open_regions(source.features, **sizes)
    called = source.detector or recipe.backbone
    if called is None:
        raise RecipeError("regions.grid: its cells are features of a backbone: name it in backbone")
    given: dict[str, Any] = {"max_regions": sizes["max_regions"]} if source.detector else {"grid": source.grid}
    extractor = RegionExtractor.from_pretrained(called, **given, **loading)
    count, width = extractor.shape()
    if width != sizes["region_size"]:
        raise RecipeError(
            f"regions: {called} has regions of width {width}, but the model takes {sizes['region_size']}: "
            f"model.overrides.region_size must be {width}"
        )
    if count > sizes["max_regions"]:
        raise RecipeError(
            f"regions: {called} gives {count} of an image, and the model takes {sizes['max_regions']}: set a smaller "
            "grid, or a larger model.overrides.max_regions"
        )
    return extractor
