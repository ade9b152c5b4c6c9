"""Builds the processor and the model that a recipe describes: new ones, or a saved model to continue from."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

from huggingface_hub.errors import StrictDataclassError
from transformers import (
    AutoModel,
    AutoProcessor,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    ProcessorMixin,
)

from ..model_cards.base_models import IMAGE_TOWER, TEXT_TOWER, WHOLE_MODEL
from ..modeling.modeling_etcl import EtclModel
from ..modeling.modeling_mural import MuralModel
from ..modeling.tower_loading import config_of_towers, reset_heads
from ..presets import load_preset
from ..processing.image_processing_mural import MuralImageProcessor
from ..processing.processing_etcl import EtclProcessor
from ..processing.tokenizer_training import WORDPIECE_PREFIX, train_wordpiece, unknown_rate
from ..processing.vocabulary_trimming import choose_pieces, count_pieces, trim_tokenizer
from ..registry import METHODS, imported
from ..trainers.base import BabelensTrainer
from ..utils.errors import ModelKindError, RecipeError
from ..utils.pretrained import load_config, load_model, load_processor
from .data import MuralData, RecipeData
from .results import Reporting
from .schema import DualEncoderRecipe, ImageSizes, Recipe, TokenizerSource, check_names

_RATED_CAPTIONS = 2_000  # per language, to compute the share of unknown tokens


@contextmanager
def overrides_checked(key: str = "model.overrides") -> Iterator[None]:
    """Turns errors of a configuration into errors of the recipe's key."""
    try:
        yield
    except (TypeError, ValueError, StrictDataclassError) as error:
        if isinstance(error, RecipeError | ModelKindError):  # ModelKindError is about the model itself
            raise
        raise RecipeError(f"{key}: {' '.join(str(error).split())}") from error


class ModelBuilder:
    """Builds a dual encoder that reads word pieces, and names its trainer and the classes of its recipes; methods with
    other models have a subclass. Parts of a model that are trained first are kept in the run's folder of
    `checkpoints`."""

    recipe_class: ClassVar[type[Recipe]] = DualEncoderRecipe
    data_class: ClassVar[type[RecipeData]] = RecipeData
    reporting_class: ClassVar[type[Reporting]] = Reporting
    # The values of the recipe's `task`, for a builder that fine-tunes.
    task_names: ClassVar[tuple[str, ...]] = ()
    # The model types that training can continue from; if empty, the model class checks its start.
    starts: ClassVar[tuple[str, ...]] = ()
    # True if `model.overrides` may change a saved model.
    overrides_start: ClassVar[bool] = False
    # True if the model can be built from two pretrained towers.
    takes_towers: ClassVar[bool] = False
    # True if transformers' pipelines and endpoints can classify images with the model.
    in_pipelines: ClassVar[bool] = True

    # Methods with other keys or data declare their classes.
    recipe: Recipe
    data: RecipeData

    def __init__(self, recipe: Recipe, checkpoints: Path, *, trust_remote_code: bool = False) -> None:
        self.recipe, self.data, self.checkpoints = recipe, self.data_class(recipe), checkpoints
        self.code: dict[str, Any] = {"trust_remote_code": trust_remote_code}  # an argument of all loaders

    @property
    def start(self) -> str:
        """Folder or Hub id of the model that training continues from, in a recipe that names one."""
        start = self.recipe.model.from_pretrained
        assert start is not None
        return start

    @property
    def attention(self) -> dict[str, Any]:
        """The loaders' argument for the attention implementation."""
        return {"attn_implementation": self.recipe.model.attn_implementation}

    @property
    def image_sizes(self) -> ImageSizes:
        """The recipe's `image`, if the method has this key, or the default sizes."""
        return getattr(self.recipe, "image", None) or ImageSizes()

    # ---- Parts that a method may define ----

    @cached_property
    def trainer_class(self) -> type[BabelensTrainer]:
        return imported(METHODS[self.recipe.method].trainer)

    @property
    def tasks(self) -> list[str]:
        """The allowed names in `train`."""
        return list(self.trainer_class.task_weights)

    def base_sources(self) -> dict[str, str | None]:
        """The folder or Hub id of each model that training starts from, by its part of the trained model."""
        model = self.recipe.model
        return {WHOLE_MODEL: model.from_pretrained, IMAGE_TOWER: model.image, TEXT_TOWER: model.text}

    def trainer_options(self) -> dict[str, Any]:
        """Returns arguments that only the method's trainer has."""
        return {}

    def check_tasks(self) -> None:
        check_names(self.recipe.train, self.tasks, "train")

    def check_start(self) -> None:
        """Checks what training starts from, such as two pretrained towers, without loading weights."""
        if self.recipe.model.towers:
            self._tower_processor()

    def check(self) -> None:
        """Checks before data is read whether the model can be built."""
        source = self.recipe.model
        if source.preset:
            with overrides_checked():
                load_preset(source.preset, **self.known_overrides)

    @property
    def known_overrides(self) -> dict[str, Any]:
        """The overrides that can be checked without a vocabulary."""
        return self.recipe.model.overrides

    def make_processor(self) -> ProcessorMixin:
        if self.recipe.model.from_pretrained:
            return load_processor(AutoProcessor, self.start, **self.code)
        if self.recipe.model.towers:
            return self._tower_processor()
        languages = [*self.data.image_languages, *self.data.pair_languages]
        # All captions contribute their characters, so every language can at least be spelled.
        tokenizer = self.new_tokenizer("tokenizer", languages, self.data.captions)
        return METHODS[self.recipe.method].processor(self.new_image_processor(), tokenizer)

    def make_model(self, processor: ProcessorMixin) -> PreTrainedModel:
        source = self.recipe.model
        if source.towers:
            fresh, model_class = source.fresh_towers, METHODS[self.recipe.method].model
            made = model_class.from_towers(*source.towers, fresh=fresh, loading=self.code, **source.overrides)
            if source.attn_implementation:
                made.set_attn_implementation(source.attn_implementation)
            return made
        if source.preset is None:
            model = load_model(AutoModel, self.start, **self.attention, **self.code)
            if source.fresh_heads:
                reset_heads(model)
            return model
        vocabulary = {"vocab_size": len(processor.tokenizer)}
        overrides = {**source.overrides, "text_config": {**source.overrides.get("text_config", {}), **vocabulary}}
        return AutoModel.from_config(load_preset(source.preset, **overrides), **self.attention)

    def _tower_processor(self) -> ProcessorMixin:
        """The processor of a model from two pretrained towers; it checks that images and configuration fit them."""
        source, method = self.recipe.model, METHODS[self.recipe.method]
        assert source.towers is not None
        with overrides_checked():
            config = config_of_towers(method.config, *source.towers, loading=self.code, **source.overrides)
        return method.processor.from_towers(*source.towers, config, **self.code)

    def next_model(self, model: PreTrainedModel) -> PreTrainedModel:
        """Makes the model of the next stage from the final model of the previous one."""
        return model

    def train_vocabulary(
        self, source: TokenizerSource, texts: list[str], vocab_size: int, alphabet: list[str]
    ) -> PreTrainedTokenizerFast:
        """Trains a tokenizer of the method's kind, by default WordPiece."""
        prefix = source.continuing_subword_prefix
        prefix = WORDPIECE_PREFIX if prefix is None else prefix
        how: dict[str, Any] = {"lowercase": source.lowercase, "continuing_subword_prefix": prefix}
        return train_wordpiece(texts, vocab_size, alphabet=alphabet, **how)

    def vocabulary(self, processor: ProcessorMixin) -> PreTrainedTokenizerBase:
        """The tokenizer that reads all languages of the corpora."""
        return processor.tokenizer

    def unknown_rates(self, processor: ProcessorMixin) -> dict[str, float]:
        """Returns the percentage of [UNK] tokens in each language, on an evenly spread sample of its captions."""
        tokenizer = self.vocabulary(processor)
        return {
            language: round(unknown_rate(tokenizer, texts[:: -(-len(texts) // _RATED_CAPTIONS) or 1]), 3)
            for language, texts in self.data.captions.items()
        }

    # ---- Parts of new processors ----

    def new_image_processor(self) -> MuralImageProcessor:
        sizes = self.image_sizes
        resize, crop = ({"height": side, "width": side} for side in (sizes.resize, sizes.crop))
        return MuralImageProcessor(size=resize, crop_size=crop)

    def new_tokenizer(self, key: str, languages: Iterable[str], spelled: Iterable[str]) -> PreTrainedTokenizerBase:
        """Makes the tokenizer that a key of the recipe describes. The captions in `languages` train the word pieces,
        unless the recipe names others; all characters of the languages `spelled` become pieces."""
        source: TokenizerSource | None = getattr(self.recipe, key)
        if source is None:
            raise RecipeError(f"{key}: a model trained from scratch needs one")
        texts = self.data.texts(source.sample)
        if source.vocab_size is None:
            assert source.from_pretrained is not None  # a recipe gives one or the other
            tokenizer = load_processor(AutoTokenizer, source.from_pretrained, **self.code)
            if source.coverage is None:
                return tokenizer
            counts = count_pieces(tokenizer, list(chain(*texts.values())))
            return trim_tokenizer(tokenizer, choose_pieces(tokenizer, counts, coverage=source.coverage))
        chosen = [text for tag in source.languages or languages for text in texts.get(tag, [])]
        alphabet = [text for tag in dict.fromkeys([*spelled, *texts]) for text in texts.get(tag, [])]
        try:
            return self.train_vocabulary(source, chosen, source.vocab_size, alphabet)
        except RecipeError:
            raise
        except ValueError as error:  # too few pieces for the characters
            raise RecipeError(f"{key}.vocab_size: {error}") from error


# ---- MURAL, ALIGN and ETCL ----

# Keys that may change in a saved model, with its tasks, which have a head each.
_LOSSES = ("label_smoothing", "text_text_temperature", "text_text_margin", "matryoshka_dims", "truncate_dim")


class MuralBuilder(ModelBuilder):
    """Builds a MURAL model; a saved model may get another task."""

    data_class = MuralData
    starts = ("mural",)
    overrides_start = True
    takes_towers = True

    def check(self) -> None:
        super().check()
        if self.recipe.model.from_pretrained:
            check_names(self.recipe.model.overrides, ("tasks", *_LOSSES), "model.overrides of a saved model")

    def check_start(self) -> None:
        super().check_start()
        if self.recipe.model.from_pretrained:
            tasks = self.recipe.model.overrides.get("tasks") or load_config(self.start, **self.code).tasks
            for task in self.recipe.train:
                if task not in tasks:
                    raise RecipeError(f"train.{task}: {self.start} lacks this task: add it in model.overrides.tasks")

    def make_model(self, processor: ProcessorMixin) -> PreTrainedModel:
        model, source = super().make_model(processor), self.recipe.model
        if source.from_pretrained and source.overrides:
            with overrides_checked():
                model = MuralModel.from_native(model, **source.overrides)
            model.set_attn_implementation(source.attn_implementation or "sdpa")
        return model


class EtclBuilder(ModelBuilder):
    """Builds an ETCL model; `model.overrides` are keys of `EtclConfig`, also when a MURAL is continued."""

    starts = ("etcl", "mural")
    overrides_start = True
    takes_towers = True

    def make_processor(self) -> ProcessorMixin:
        processor: Any = super().make_processor()
        if isinstance(processor, EtclProcessor):
            return processor
        kept = {name: getattr(processor, name) for name in ("text_prompt", "max_text_length", "pad_to_max_length")}
        return EtclProcessor(processor.image_processor, processor.tokenizer, **kept)

    def make_model(self, processor: ProcessorMixin) -> PreTrainedModel:
        model = super().make_model(processor)
        if isinstance(model, MuralModel):
            model = EtclModel.from_native(model, **self.recipe.model.overrides)
            model.set_attn_implementation(self.recipe.model.attn_implementation or "sdpa")
        return model
