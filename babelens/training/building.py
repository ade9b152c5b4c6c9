"""Builds the processor and the model that a recipe describes: new ones, or a saved model to continue from."""

import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import (
    AutoModel,
    AutoProcessor,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    ProcessorMixin,
)
from transformers.utils import CONFIG_NAME

from ..configuration.presets import load_preset
from ..modeling.modeling_mla import MlaModel
from ..modeling.tower_loading import config_of_towers
from ..processing.image_processing_mural import MuralImageProcessor
from ..processing.processing_mla import closing_token_id
from ..processing.tokenizer_training import WORDPIECE_PREFIX, train_wordpiece, unknown_rate
from ..processing.vocabulary_trimming import choose_pieces, count_pieces, trim_tokenizer
from ..registry import METHODS
from ..utils.errors import InputError, RecipeError
from ..utils.hub_code import optional_file
from ..utils.languages import normalize_languages
from ..utils.pretrained import explained, load_model, load_processor, located
from .argument_checks import overrides_checked
from .data import RecipeData
from .recipe import ImageSizes, Recipe, TokenizerSource

_RATED_CAPTIONS = 2_000  # per language, to compute the share of unknown tokens


class ModelBuilder:
    """Builds a dual encoder that reads word pieces. Methods that build other models have a subclass.

    Args:
        recipe: the recipe.
        data: its data, from which vocabularies are trained.
        checkpoints: the run's folder of checkpoints, for parts of the model that are trained first.
        trust_remote_code: whether to run code that comes with the models in the recipe.
    """

    # The model types that training can continue from; if empty, the model class checks its start.
    starts: ClassVar[tuple[str, ...]] = ()
    # Whether `model.overrides` may change a saved model.
    overrides_start: ClassVar[bool] = False
    # Whether the model can be built from two pretrained towers.
    takes_towers: ClassVar[bool] = False

    # Methods with other keys or data declare their classes.
    recipe: Recipe
    data: RecipeData

    def __init__(
        self, recipe: Recipe, data: RecipeData, checkpoints: Path, *, trust_remote_code: bool = False
    ) -> None:
        self.recipe = recipe
        self.data = data
        self.checkpoints = checkpoints
        self.trust_remote_code = trust_remote_code

    @property
    def code(self) -> dict[str, Any]:
        """The loaders' argument for code that comes with a model."""
        return {"trust_remote_code": self.trust_remote_code}

    @property
    def start(self) -> str:
        """Folder or Hub id of the model that training continues from, in a recipe that names one."""
        start = self.recipe.model.from_pretrained
        assert start is not None
        return start

    @property
    def stated_sizes(self) -> ImageSizes | None:
        """The recipe's `image`, if the method has this key."""
        return getattr(self.recipe, "image", None)

    @property
    def _towers(self) -> tuple[str, str]:
        """The two pretrained towers, in a recipe that names them."""
        towers = self.recipe.model.towers
        assert towers is not None
        return towers

    def check_towers(self) -> None:
        """Checks two pretrained towers without loading weights: their kinds, the image processor, the tokenizer, and
        the recipe's overrides.

        Raises:
            RecipeError: if the overrides do not fit the towers.
            ModelFolderError: if there is no such folder or repository, or it lacks an image processor or a tokenizer.
            ModelKindError: if a source has no such tower, or cannot pool texts in this way.
            InputError: if the vision backbone cannot read the image processor's image size.
        """
        if self.recipe.model.towers:
            _ = self._tower_processor

    # ---- Parts that a method may define ----

    def check(self) -> None:
        """Checks before data is read whether the model can be built.

        Raises:
            RecipeError: if the overrides do not fit the preset.
        """
        source = self.recipe.model
        if source.preset:
            with overrides_checked():
                load_preset(source.preset, **self.known_overrides)

    @property
    def known_overrides(self) -> dict[str, Any]:
        """The overrides that can be checked without a vocabulary."""
        return self.recipe.model.overrides

    def make_processor(self) -> ProcessorMixin:
        """The processor of the model that training continues from, or a new one."""
        if self.recipe.model.from_pretrained:
            return load_processor(AutoProcessor, self.start, **self.code)
        if self.recipe.model.towers:
            return self._tower_processor
        languages = [*self.data.image_languages, *self.data.pair_languages]
        # All captions contribute their characters, so every language can at least be spelled.
        tokenizer = self.new_tokenizer("tokenizer", languages, self.data.captions)
        return METHODS[self.recipe.method].processor(self.new_image_processor(), tokenizer)

    def make_model(self, processor: ProcessorMixin) -> PreTrainedModel:
        """The model before training."""
        source = self.recipe.model
        attention: dict[str, Any] = {"attn_implementation": source.attn_implementation}
        if source.towers:
            return self._tower_model()
        if source.preset is None:
            model = load_model(AutoModel, self.start, **attention, **self.code)
            if source.fresh_heads:
                model.reset_heads()
            return model
        vocabulary = {"vocab_size": len(processor.tokenizer)}
        overrides = {**source.overrides, "text_config": {**source.overrides.get("text_config", {}), **vocabulary}}
        return AutoModel.from_config(load_preset(source.preset, **overrides), **attention)

    @cached_property
    def _tower_config(self) -> PreTrainedConfig:
        """The configuration of a model from two pretrained towers."""
        image, text = self._towers
        with overrides_checked():
            return config_of_towers(
                METHODS[self.recipe.method].config, image, text, loading=self.code, **self.recipe.model.overrides
            )

    def _tower_model(self) -> PreTrainedModel:
        image, text = self._towers
        model = METHODS[self.recipe.method].model
        fresh = self.recipe.model.fresh_towers
        made = model.from_towers(image, text, fresh=fresh, loading=self.code, **self.recipe.model.overrides)
        if self.recipe.model.attn_implementation:
            made.set_attn_implementation(self.recipe.model.attn_implementation)
        return made

    @cached_property
    def _tower_processor(self) -> ProcessorMixin:
        """The processor of a model from two pretrained towers; it checks that images and configuration fit them."""
        (image, text), config = self._towers, self._tower_config
        return METHODS[self.recipe.method].processor.from_towers(image, text, config, **self.code)

    def next_model(self, model: PreTrainedModel) -> PreTrainedModel:
        """The model of the next stage, made from the final model of the previous one."""
        return model

    def train_vocabulary(
        self, source: TokenizerSource, texts: list[str], vocab_size: int, alphabet: list[str]
    ) -> PreTrainedTokenizerFast:
        """Trains a tokenizer of the method's kind, by default WordPiece."""
        prefix = source.continuing_subword_prefix
        return train_wordpiece(
            texts,
            vocab_size,
            alphabet=alphabet,
            lowercase=source.lowercase,
            continuing_subword_prefix=WORDPIECE_PREFIX if prefix is None else prefix,
        )

    def vocabulary(self, processor: ProcessorMixin) -> PreTrainedTokenizerBase:
        """The tokenizer that reads all languages of the corpora."""
        return processor.tokenizer

    def unknown_rates(self, processor: ProcessorMixin) -> dict[str, float]:
        """The percentage of [UNK] tokens in each language of the corpora, computed on all captions or on an evenly
        spread sample."""
        tokenizer = self.vocabulary(processor)
        return {
            language: round(unknown_rate(tokenizer, texts[:: -(-len(texts) // _RATED_CAPTIONS) or 1]), 3)
            for language, texts in self.data.captions.items()
        }

    # ---- Parts of new processors ----

    def new_image_processor(self) -> MuralImageProcessor:
        """An image processor with the recipe's sizes."""
        sizes = self.stated_sizes or ImageSizes()
        resize, crop = ({"height": side, "width": side} for side in (sizes.resize, sizes.crop))
        return MuralImageProcessor(size=resize, crop_size=crop)

    def new_tokenizer(self, key: str, languages: Iterable[str], spelled: Iterable[str]) -> PreTrainedTokenizerBase:
        """Makes the tokenizer that a key of the recipe describes.

        Args:
            key: the recipe's key, such as `tokenizer`.
            languages: the languages whose captions train the word pieces, unless the recipe names others.
            spelled: the languages whose characters all become pieces.

        Raises:
            RecipeError: if the recipe lacks the key, or its tokenizer cannot be trained.
        """
        source: TokenizerSource | None = getattr(self.recipe, key)
        if source is None:
            raise RecipeError(f"{key}: a model trained from scratch needs one")
        if source.vocab_size is None:
            assert source.from_pretrained is not None  # a recipe gives one or the other
            tokenizer = load_processor(AutoTokenizer, source.from_pretrained, **self.code)
            if source.coverage is None:
                return tokenizer
            return trimmed_to(tokenizer, list(chain(*self.data.texts(source.sample).values())), source.coverage)
        texts = self.data.texts(source.sample)

        def texts_in(tags: Iterable[str]) -> list[str]:
            return [text for tag in tags for text in texts.get(tag, [])]

        chosen = texts_in(normalize_languages(source.languages) if source.languages else languages)
        alphabet = texts_in(dict.fromkeys([*spelled, *texts]))
        try:
            return self.train_vocabulary(source, chosen, source.vocab_size, alphabet)
        except RecipeError:
            raise
        except ValueError as error:  # too few pieces for the characters
            raise RecipeError(f"{key}.vocab_size: {error}") from error


# ---- Vocabulary ----
# The vocabulary that acquired languages share: an existing tokenizer and, if it belongs to a model, that model's
# embedding table (M-BERT's in Zhang et al. 2022).


def pretrained_table(source: str, tokenizer: PreTrainedTokenizerBase, **loading: Any) -> Tensor | None:
    """The word-piece embeddings [vocabulary, size] of the model that a tokenizer belongs to.

    Args:
        source: folder or Hub id of the tokenizer.
        tokenizer: the tokenizer that was loaded from there.
        loading: arguments of `load_model`, such as `trust_remote_code`.

    Returns:
        None if the tokenizer comes without a model.

    Raises:
        ModelFolderError: if the model cannot be loaded.
        InputError: if the model has fewer word pieces than the tokenizer, or no single table of them.
    """
    if not _has_model(source, **loading):
        return None
    model = load_model(AutoModel, source, part=_embedding, dtype=torch.float32, **loading)
    table = _embedding(model).weight.detach()
    if len(table) < len(tokenizer):
        raise InputError(f"{source}: the model has {len(table)} word pieces, but its tokenizer has {len(tokenizer)}")
    return table


def trimmed_to(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], coverage: float) -> PreTrainedTokenizerBase:
    """Trims a tokenizer to the pieces that texts need: see `processing.vocabulary_trimming`.

    Args:
        tokenizer: a fast tokenizer, which is not changed.
        texts: the texts.
        coverage: the minimum share of their running pieces to keep.

    Raises:
        InputError: if it cannot be trimmed.
    """
    return trim_tokenizer(tokenizer, choose_pieces(tokenizer, count_pieces(tokenizer, texts), coverage=coverage))


def rows_of_pieces(table: Tensor, tokenizer: PreTrainedTokenizerBase, whole: PreTrainedTokenizerBase) -> Tensor:
    """The rows [pieces, size] of an embedding table that belong to the pieces of a trimmed tokenizer.

    Args:
        table: the embeddings [vocabulary, size] of the whole vocabulary.
        tokenizer: the trimmed tokenizer.
        whole: the tokenizer before trimming.
    """
    pieces = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    return table[torch.tensor(whole.convert_tokens_to_ids(pieces))]


def native_with_vocabulary(
    native: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, table: Tensor | None, **options: Any
) -> MlaModel:
    """Makes an MLA model of a plain dual encoder, with a vocabulary that acquired languages share.

    Args:
        native: the dual encoder.
        tokenizer: the vocabulary of the acquired languages.
        table: the initial embeddings [vocabulary, size]; None for random ones as wide as the native text tower.
        options: keys of `MlaConfig`, such as `native_language` and `languages`.
    """
    own = {"vocab_size": len(tokenizer), "sep_token_id": closing_token_id(tokenizer)}
    return MlaModel.from_native(native, table=table, **options, **own)


def _embedding(model: PreTrainedModel) -> nn.Module:
    try:
        return model.get_input_embeddings()
    except NotImplementedError as error:
        raise InputError(
            f"a vocabulary must be a text encoder or a tokenizer; {type(model).__name__} has no single table of word "
            "pieces"
        ) from error


def _has_model(source: str, **loading: Any) -> bool:
    """Whether a folder or repository has a model's configuration in addition to its tokenizer."""
    loading = located(source, **loading)
    with explained(source, loading):
        file = optional_file(source, CONFIG_NAME, loading)
        return file is not None and "model_type" in json.loads(file.read_text(encoding="utf-8"))
