"""RC3's recipes: from three data sets to a pre-trained encoder-decoder."""

from functools import cached_property
from typing import Any, ClassVar

from transformers import (
    AutoModelForPreTraining,
    AutoProcessor,
    AutoTokenizer,
    MBartForConditionalGeneration,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    ProcessorMixin,
)

from ..configuration.configuration_rc3 import PARALLEL, STRICT, Rc3Config
from ..configuration.errors import RecipeError
from ..configuration.languages import normalize_languages
from ..configuration.presets import load_preset
from ..configuration.pretrained import load_config, load_model, load_processor
from ..inference.region_extraction import RegionExtractor
from ..modeling.modeling_rc3_pretraining import Rc3ForPreTraining
from ..processing.processing_rc3 import Rc3Processor
from ..processing.regions import SeveralRegions, open_regions
from ..processing.tokenizer_training import train_bpe
from ..trainers.rc3 import Rc3Trainer
from .base import RecipeRun
from .recipe import TokenizerSource

MBART = "mbart"


class Rc3Run(RecipeRun):
    """A recipe of RC3, whose `train` has `strict`, `weak` and `parallel` data.

    `model` is a preset, for which `tokenizer` says how many pieces to learn; an mBART to start from, with its
    vocabulary (`babelens trim` cuts it down); or a pre-trained RC3 to go on from. `model.overrides` are `Rc3Config`'s
    keys. `regions` says where those of images come from.
    """

    in_pipelines = False
    translation_tasks = (PARALLEL,)
    paired_tasks = (STRICT, PARALLEL)
    sections: ClassVar[tuple[str, ...]] = ("regions", "backbone", "image")
    sections_of_new: ClassVar[tuple[str, ...]] = ("tokenizer",)
    reports = ()
    starts: ClassVar[tuple[str, ...]] = (Rc3Config.model_type, MBART)
    overrides_start = True

    @property
    def _known_tasks(self) -> list[str]:
        return list(Rc3Trainer.data_sets)

    @cached_property
    def languages(self) -> list[str]:
        """Of all data sets, unless the recipe says otherwise."""
        return normalize_languages(self.recipe.model.overrides.get("languages") or sorted(self.captions))

    @cached_property
    def _is_mbart(self) -> bool:
        source = self.recipe.model.from_pretrained
        return source is not None and load_config(source, **self.code).model_type == MBART

    @cached_property
    def _region_sizes(self) -> dict[str, int]:
        source = self.recipe.model
        if source.preset:
            config = load_preset(source.preset)
        else:
            config = Rc3Config() if self._is_mbart else load_config(self.start, **self.code)
        return {name: source.overrides.get(name, getattr(config, name)) for name in ("region_size", "max_regions")}

    # ---- Parts ----

    def make_processor(self) -> ProcessorMixin:
        source = self.recipe.model.from_pretrained
        if source and not self._is_mbart:
            return load_processor(AutoProcessor, source, **self.code)
        images = self.new_image_processor()
        if source:
            tokenizer = load_processor(AutoTokenizer, source, **self.code)
            return Rc3Processor.from_mbart_tokenizer(tokenizer, self.languages, images, **self._region_sizes)
        tokenizer = self.new_tokenizer("tokenizer", self.languages, self.captions)
        return Rc3Processor.new(tokenizer, self.languages, images, **self._region_sizes)

    def train_vocabulary(
        self, source: TokenizerSource, texts: list[str], vocab_size: int, alphabet: list[str]
    ) -> PreTrainedTokenizerFast:
        """Byte-pair encodings, whose pieces the decoder can put together again."""
        if source.continuing_subword_prefix is not None:
            raise RecipeError("tokenizer.continuing_subword_prefix is WordPiece's; RC3 reads byte-pair encodings")
        return train_bpe(texts, vocab_size, alphabet=alphabet, lowercase=source.lowercase)

    def make_model(self, processor: ProcessorMixin) -> PreTrainedModel:
        source = self.recipe.model
        attention = {"attn_implementation": source.attn_implementation}
        if source.preset:
            config = load_preset(source.preset, **source.overrides | processor.config_fields())
            return AutoModelForPreTraining.from_config(config, **attention)
        if self._is_mbart:
            mbart = Rc3ForPreTraining.from_mbart(
                load_model(MBartForConditionalGeneration, self.start),
                **source.overrides | processor.config_fields(),
            )
            if source.attn_implementation:
                mbart.set_attn_implementation(source.attn_implementation)
            return mbart
        options = attention | self.code | source.overrides
        return load_model(AutoModelForPreTraining, self.start, part=lambda model: model.base_model, **options)

    def trainer_options(self) -> dict[str, Any]:
        return {"regions": self._regions}

    @cached_property
    def _regions(self) -> RegionExtractor | SeveralRegions | None:
        source = self.recipe.regions
        if source is None:
            return None
        if source.features:
            files = [source.features] if isinstance(source.features, str) else source.features
            return SeveralRegions(*(open_regions(file, **self._region_sizes) for file in files))
        if source.detector:
            count = self._region_sizes["max_regions"]
            return RegionExtractor.from_pretrained(source.detector, max_regions=count, **self.code)
        if self.recipe.backbone is None or source.grid is None:
            raise RecipeError("regions.grid: of what a backbone sees, which the recipe does not name")
        return RegionExtractor.from_pretrained(self.recipe.backbone, grid=source.grid, **self.code)
