"""Recipes: a training run as a YAML file, from data to a model folder with its card.

A recipe names the method, the model, its data and the training arguments; `recipes/` holds those of the published
experiments and of the emoji benchmark. `extends: NAME` starts from the recipe NAME, seen from the same folder. Every
key is checked: one that nobody reads is refused by name, and so is a value that cannot be meant (`recipe_checks`).
"""

import dataclasses
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from datasets import Dataset, IterableDataset

from ..configuration.errors import LanguageTagError, RecipeError
from ..configuration.languages import normalize_language, normalize_languages
from ..data.corpus.loading import load_captions, load_translations
from ..data.emoji.benchmark import load_emoji
from ..data.emoji.weak import weakly_aligned_emoji
from .recipe_file import RECIPES as RECIPES, find_recipe as find_recipe, merged as merged, read_recipe, with_key
from .recipe_types import build

EMOJI = "emoji"
WEAK_EMOJI = "emoji-weak"

# A stage's checkpoints lie in a folder of its name, beside what a run keeps under these.
TEXT_MODEL, PROCESSOR = KEPT_FOLDERS = ("text_model", "processor")
_STAGE_NAME = re.compile(r"\w[\w .+-]*")
_CHECKPOINT_NAME = re.compile(r"checkpoint-\d+")


@dataclass(frozen=True)
class DataSource:
    """Where captions or translations come from.

    Args:
        source: `emoji`; `emoji-weak`, its names against keywords in other languages; or whatever `load_captions` or
            `load_translations` take: a folder, a file, a Hub id.
        options: keyword arguments of the loader, such as `streaming: true`; the recipe then needs `max_steps`, an
            existing vocabulary, and `languages` or `pairs`, which a stream does not tell beforehand.
        languages: languages of image-text pairs; default: all.
        pairs: language pairs of translations: a list of two-element lists, or {from: [...], to: [...]} for all
            combinations.
        license: SPDX identifier of the data's license, for the card; the emoji benchmark knows its own.
        attribution: whom to name, for the card.
    """

    source: str
    options: dict[str, Any] = field(default_factory=dict)
    languages: list[str] | None = None
    pairs: list[list[str]] | dict[str, list[str]] | None = None
    license: str = "unknown"
    attribution: str = ""

    def __post_init__(self) -> None:
        if not self.source:
            raise RecipeError("source is empty: say where the data is")
        check_languages(self.languages, "languages")
        if isinstance(self.pairs, dict):
            if sorted(self.pairs) != ["from", "to"]:
                raise RecipeError(f"pairs: a mapping has from and to, not {', '.join(self.pairs) or 'nothing'}")
            for side, tags in self.pairs.items():
                check_languages(tags, f"pairs.{side}")
        for pair in self.pairs if isinstance(self.pairs, list) else ():
            if len(pair) != 2:
                raise RecipeError(f"pairs: {pair} is no pair of languages; pairs look like [[en, de], [en, fr]]")
            check_languages(pair, "pairs")
        if self.pairs is not None and not self.language_pairs:
            raise RecipeError(f"pairs: {self.pairs} has no pair of two languages")

    @property
    def tags(self) -> list[str] | None:
        """`languages` in their canonical spelling, each once."""
        return None if self.languages is None else normalize_languages(self.languages)

    @property
    def language_pairs(self) -> list[tuple[str, str]] | None:
        """`pairs` in their canonical spelling."""
        if self.pairs is None:
            return None
        given = self.pairs
        pairs = [(a, b) for a in given["from"] for b in given["to"]] if isinstance(given, dict) else given
        normal = [(normalize_language(a), normalize_language(b)) for a, b in pairs]
        return [(a, b) for a, b in normal if a != b or isinstance(given, list)]

    def loader(self, *, translations: bool = False) -> Callable[..., Dataset | IterableDataset]:
        """What reads the corpus, with `options`."""
        if self.source == WEAK_EMOJI:
            return _load_weak_emoji
        if self.source == EMOJI:
            return load_emoji
        return partial(load_translations if translations else load_captions, self.source)

    def load(self, *, translations: bool = False) -> Dataset | IterableDataset:
        """The caption corpus, or the translation corpus."""
        return self.loader(translations=translations)(**self.options)


def _load_weak_emoji(*, pairs: int = 1, seed: int = 0, **options: Any) -> Dataset:
    return weakly_aligned_emoji(load_emoji(**options), pairs=pairs, seed=seed)


@dataclass(frozen=True)
class ModelSource:
    """A preset with overrides, trained from scratch, or a trained model to go on from.

    Args:
        preset: one of `babelens.configuration.presets.list_presets()`.
        overrides: configuration keys that replace the preset's.
        from_pretrained: a folder or Hub id.
        attn_implementation: `sdpa` (default), `eager`, `flash_attention_2`. On a CPU, `eager` trains short texts
            several times faster.
    """

    preset: str | None = None
    overrides: dict[str, Any] = field(default_factory=dict)
    from_pretrained: str | None = None
    attn_implementation: str | None = None

    def __post_init__(self) -> None:
        if (self.preset is None) == (self.from_pretrained is None):
            raise RecipeError("give either a preset or from_pretrained")


@dataclass(frozen=True)
class TokenizerSource:
    """A vocabulary to train on the corpora's captions, or an existing one (a folder or a Hub id).

    Args:
        vocab_size: number of word pieces to train.
        languages: whose captions the pieces are trained on; default: the languages of the training data.
        lowercase: fold case.
        continuing_subword_prefix: what marks WordPiece's pieces inside of words, by default `##`; with "" a piece is
            the same wherever it stands.
        from_pretrained: a folder or Hub id instead.
    """

    vocab_size: int | None = None
    languages: list[str] | None = None
    lowercase: bool = True
    continuing_subword_prefix: str | None = None
    from_pretrained: str | None = None

    def __post_init__(self) -> None:
        if (self.vocab_size is None) == (self.from_pretrained is None):
            raise RecipeError("give either vocab_size or from_pretrained")
        if self.vocab_size is not None and self.vocab_size < 1:
            raise RecipeError(f"vocab_size is a number of word pieces, not {self.vocab_size}")
        check_languages(self.languages, "languages")
        if self.from_pretrained:
            for key in dataclasses.fields(self):
                if key.name != "from_pretrained" and getattr(self, key.name) != key.default:
                    raise RecipeError(f"{key.name} is for pieces that are trained, with vocab_size")


@dataclass(frozen=True)
class TextModelSource:
    """A BERT to train by masked language modelling on the captions and keywords of the model's languages, or an
    existing text encoder (a folder or a Hub id, with its tokenizer).

    Args:
        preset: whose `text_config` the encoder has.
        training: transformers' `TrainingArguments`, without `output_dir`, and `precision`.
        from_pretrained: a folder or Hub id instead.
    """

    preset: str | None = None
    training: dict[str, Any] = field(default_factory=dict)
    from_pretrained: str | None = None

    def __post_init__(self) -> None:
        if (self.preset is None) == (self.from_pretrained is None):
            raise RecipeError("give either a preset or from_pretrained")


@dataclass(frozen=True)
class DictionarySource:
    """Which rare words have the embedding of a word of another language instead of their own.

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
        max_size: of each language's vocabulary, its most frequent words; default: all.
        min_frequency: leave out words that occur less often.
        vectors: FastText's `.vec` or `.vec.gz` files by language.
        train_vectors: train vectors on the captions of languages that have no file.
        dictionary: map rare words to those of another language; for a model whose other words have embeddings of
            their own.
        max_text_length: words that are read of a text.
    """

    max_size: int | None = None
    min_frequency: int = 1
    vectors: dict[str, str] = field(default_factory=dict)
    train_vectors: bool = True
    dictionary: DictionarySource | None = None
    max_text_length: int = 40

    def __post_init__(self) -> None:
        check_languages(self.vectors, "vectors")
        for name in ("max_size", "min_frequency", "max_text_length"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise RecipeError(f"{name} is a number of words, not {getattr(self, name)}")


@dataclass(frozen=True)
class RegionsSource:
    """Where the regions of RC3's images come from: one of these.

    Args:
        features: a file or folder of computed ones (`open_regions`), or a list of such.
        detector: an object detector of transformers, a folder or a Hub id.
        grid: cells on each side of a raster over what the recipe's `backbone` sees.
    """

    features: str | list[str] | None = None
    detector: str | None = None
    grid: int | None = None

    def __post_init__(self) -> None:
        if sum(value is not None for value in (self.features, self.detector, self.grid)) != 1:
            raise RecipeError("give either features, a detector or a grid")
        if self.grid is not None and self.grid < 1:
            raise RecipeError(f"grid is a number of cells, not {self.grid}")


@dataclass(frozen=True)
class ImageSizes:
    """Side lengths in pixels: images are resized to `resize`, of which `crop` is seen."""

    resize: int = 346
    crop: int = 289

    def __post_init__(self) -> None:
        if not 1 <= self.crop <= self.resize:
            raise RecipeError(f"crop: of {self.resize} pixels, 1 to {self.resize} can be seen, not {self.crop}")


@dataclass(frozen=True)
class Stage:
    """A part of a training run that has its own tasks, arguments and schedule, and goes on from the one before.

    Args:
        name: of its folder of checkpoints.
        tasks: of the recipe's `train`.
        training: what replaces the recipe's `training` in this stage.
        languages: of captions in this stage, in place of those in `train`.
    """

    name: str
    tasks: list[str]
    training: dict[str, Any] = field(default_factory=dict)
    languages: list[str] | None = None

    def __post_init__(self) -> None:
        check_languages(self.languages, "languages")

    @property
    def tags(self) -> list[str] | None:
        """`languages` in their canonical spelling, each once."""
        return None if self.languages is None else normalize_languages(self.languages)


@dataclass(frozen=True)
class Recipe:
    """A training run.

    Args:
        method: such as `mural`.
        model: what to train.
        train: the data of each task.
        validation: captions for the evaluation during training.
        task: what RC3 is fine-tuned on: `visual-entailment`, `visual-question-answering`, `visual-reasoning`,
            `image-text-retrieval` or `translation`. The parts of `train` are then its data, under any names.
        test: the data of a `task` that the report is about, under any names.
        tokenizer, image: the processor; not needed with `model.from_pretrained`.
        training: the trainer's arguments, without `output_dir`.
        stages: the stages of training, in their order; default: one with all tasks.
        multilingual_tokenizer: MLA's second vocabulary; not needed where the model has one.
        text_model: the text encoder of MLA's baselines before they are trained.
        words: SMALR's vocabularies and word vectors.
        backbone: SMALR's vision backbone, or what sees the cells of RC3's `regions.grid`: a folder or Hub id of a
            vision model or of a dual encoder; default: the configuration's, untrained.
        regions: of RC3's images; not needed where all are given as patches.
        report: what to report at the end: `emoji` for the four questions, or nothing.
        unseen_languages: languages for the report that the model was never trained on.
        license: license of the weights as a Hub identifier; default: what follows from the data's, `other` when that
            is unknown.
        license_name: what the license is called, with `license: other`.
    """

    method: str
    model: ModelSource
    train: dict[str, DataSource]
    training: dict[str, Any]
    validation: DataSource | None = None
    task: str | None = None
    test: dict[str, DataSource] = field(default_factory=dict)
    stages: list[Stage] = field(default_factory=list)
    tokenizer: TokenizerSource | None = None
    multilingual_tokenizer: TokenizerSource | None = None
    text_model: TextModelSource | None = None
    words: WordsSource | None = None
    backbone: str | None = None
    regions: RegionsSource | None = None
    image: ImageSizes | None = None
    report: str | None = None
    unseen_languages: list[str] = field(default_factory=list)
    license: str | None = None
    license_name: str | None = None

    def __post_init__(self) -> None:
        if not self.train:
            raise RecipeError("train: there are no data to train on")
        check_languages(self.unseen_languages, "unseen_languages")
        names = [stage.name for stage in self.stages]
        for stage in self.stages:
            if stage.name and not _is_folder_name(stage.name):
                raise RecipeError(
                    f"stages: {stage.name!r} must be a plain folder name, of letters and digits, for its checkpoints"
                    f"; {', '.join(KEPT_FOLDERS)} and checkpoint-1 are taken"
                )
            if not stage.name or names.count(stage.name) > 1:
                raise RecipeError(
                    f"every stage has a name of its own, for its checkpoints, and not two stages {stage.name!r}"
                )
            if not stage.tasks:
                raise RecipeError(f"stage {stage.name!r} has no task")
            for task in stage.tasks:
                if task not in self.train:
                    raise RecipeError(f"stage {stage.name!r} names {task!r}, for which train has no data")


def check_languages(tags: Collection[str] | None, key: str) -> None:
    """Raises a `RecipeError` for what is no language, and for an empty list of languages."""
    if tags is not None and not len(tags) and key in ("languages", "pairs.from", "pairs.to"):
        raise RecipeError(f"{key} is empty: name some, or leave it out")
    for tag in tags or ():
        try:
            normalize_language(tag)
        except LanguageTagError as error:
            raise RecipeError(f"{key}: {error}") from error


def _is_folder_name(name: str) -> bool:
    is_plain = _STAGE_NAME.fullmatch(name) is not None and name == name.strip() and len(name) <= 100
    return is_plain and name not in KEPT_FOLDERS and not _CHECKPOINT_NAME.fullmatch(name)


def load_recipe(name: str | Path, overrides: dict[str, Any] | None = None) -> Recipe:
    """Reads a recipe; `overrides` maps dotted keys to values: `{"training.learning_rate": 1e-3}`.

    Raises:
        RecipeError: for a file that is no recipe, an unknown key, a wrong type.
    """
    path = find_recipe(name)
    content = read_recipe(path)
    try:
        for dotted, value in (overrides or {}).items():
            content = with_key(content, dotted, value)
        return build(Recipe, content)
    except RecipeError as error:
        raise RecipeError(f"{path}: {error}") from error
