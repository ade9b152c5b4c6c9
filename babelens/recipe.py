"""Recipes: a training run as a YAML file, from data to a model folder with its card.

A recipe names the method, the model, its data and the training arguments; `recipes/` holds those of the published
experiments and of the emoji benchmark. `extends: NAME` starts from the recipe NAME, seen from the same folder. Every
key is checked: one that nobody reads is refused by name.
"""

import dataclasses
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from datasets import Dataset, IterableDataset

from .configuration.errors import BabelensError
from .data.emoji import load_emoji
from .data.emoji_weak import weakly_aligned_emoji
from .data.loading import load_captions, load_translations

EMOJI = "emoji"
WEAK_EMOJI = "emoji-weak"
RECIPES = Path(str(files("babelens.recipes")))


class RecipeError(BabelensError, ValueError):
    """A recipe that cannot be run; the message names the file and the key."""


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
        license: SPDX identifier of the data's licence, for the card; the emoji benchmark knows its own.
        attribution: whom to name, for the card.
    """

    source: str
    options: dict[str, Any] = field(default_factory=dict)
    languages: list[str] | None = None
    pairs: list[list[str]] | dict[str, list[str]] | None = None
    license: str = "unknown"
    attribution: str = ""

    @property
    def language_pairs(self) -> list[tuple[str, str]] | None:
        if isinstance(self.pairs, dict):
            return [(a, b) for a in self.pairs["from"] for b in self.pairs["to"] if a != b]
        return [(a, b) for a, b in self.pairs] if self.pairs else None

    def load(self, *, translations: bool = False) -> Dataset | IterableDataset:
        """The caption corpus, or the translation corpus."""
        if self.source == WEAK_EMOJI:
            drawn = {name: value for name, value in self.options.items() if name in ("pairs", "seed")}
            shown = {name: value for name, value in self.options.items() if name not in drawn}
            return weakly_aligned_emoji(load_emoji(**shown), **drawn)
        load = (
            load_emoji
            if self.source == EMOJI
            else partial(load_translations if translations else load_captions, self.source)
        )
        return load(**self.options)


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
            raise RecipeError("model: give either a preset or from_pretrained")


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
            raise RecipeError("tokenizer: give either vocab_size or from_pretrained")
        if self.from_pretrained:
            for key in dataclasses.fields(self):
                if key.name != "from_pretrained" and getattr(self, key.name) != key.default:
                    raise RecipeError(f"tokenizer: {key.name} is for pieces that are trained, with vocab_size")


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
            raise RecipeError("text_model: give either a preset or from_pretrained")


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


@dataclass(frozen=True)
class RegionsSource:
    """Where the regions of RC3's pictures come from: one of these.

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
            raise RecipeError("regions: give either features, a detector or a grid")


@dataclass(frozen=True)
class ImageSizes:
    """Side lengths in pixels: pictures are resized to `resize`, of which `crop` is seen."""

    resize: int = 346
    crop: int = 289


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
        regions: of RC3's pictures; not needed where all are given as patches.
        report: what to report at the end: `emoji` for the four questions, or nothing.
        unseen_languages: languages for the report that the model was never trained on.
        license: licence of the weights as a Hub identifier; default: what follows from the data's, `other` when that
            is unknown.
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
    image: ImageSizes = ImageSizes()
    report: str | None = None
    unseen_languages: list[str] = field(default_factory=list)
    license: str | None = None

    def __post_init__(self) -> None:
        names = [stage.name for stage in self.stages]
        for stage in self.stages:
            if not stage.name or names.count(stage.name) > 1:
                raise RecipeError(
                    f"every stage has a name of its own, for its checkpoints, and not two stages {stage.name!r}"
                )
            if not stage.tasks:
                raise RecipeError(f"stage {stage.name!r} has no task")
            for task in stage.tasks:
                if task not in self.train:
                    raise RecipeError(f"stage {stage.name!r} names {task!r}, for which train has no data")


_NESTED: dict[type, dict[str, type]] = {
    Recipe: {
        "model": ModelSource,
        "tokenizer": TokenizerSource,
        "multilingual_tokenizer": TokenizerSource,
        "text_model": TextModelSource,
        "words": WordsSource,
        "regions": RegionsSource,
        "image": ImageSizes,
        "validation": DataSource,
    },
    WordsSource: {"dictionary": DictionarySource},
}


def find_recipe(name: str | Path) -> Path:
    """A recipe file, by its path or by its name among the package's own, such as `emoji/mural`.

    Raises:
        RecipeError: when there is neither.
    """
    if Path(name).is_file():
        return Path(name)
    shipped = RECIPES / f"{str(name).removeprefix('recipes/').removesuffix('.yaml')}.yaml"
    if shipped.is_file():
        return shipped
    known = sorted(str(path.relative_to(RECIPES).with_suffix("")) for path in RECIPES.rglob("*.yaml"))
    raise RecipeError(f"there is no recipe {str(name)!r}; the package has {', '.join(known)}")


def load_recipe(name: str | Path, overrides: dict[str, Any] | None = None) -> Recipe:
    """Reads a recipe; `overrides` maps dotted keys to values: `{"training.learning_rate": 1e-3}`.

    Raises:
        RecipeError: for a file that is no recipe, an unknown key, a wrong type.
    """
    path = find_recipe(name)
    content = _read(path)
    for dotted, value in (overrides or {}).items():
        *parents, key = dotted.split(".")
        section = content
        for parent in parents:
            section = section.setdefault(parent, {})
        section[key] = value
    try:
        return _build(Recipe, content, "")
    except (RecipeError, TypeError) as error:
        raise RecipeError(f"{path}: {error}") from error


def _read(path: Path) -> Any:
    """The content of a recipe's file, on top of that of the recipe beside it that `extends` names."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise RecipeError(f"{path}: not YAML: {error}") from error
    if not isinstance(content, dict) or "extends" not in content:
        return content
    return merged(_read(find_recipe(path.parent / f"{content.pop('extends')}.yaml")), content)


def merged(settings: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Nested settings with nested changes; lists are replaced as a whole."""
    nested = {
        k: merged(settings[k], v)
        for k, v in changes.items()
        if isinstance(settings.get(k), dict) and isinstance(v, dict)
    }
    return settings | changes | nested


def _build(cls: type, content: Any, where: str) -> Any:
    """A dataclass from a mapping, its dataclass fields and dicts of them built in turn; unknown and missing keys are
    refused."""
    if not isinstance(content, dict):
        raise RecipeError(f"{where or 'the recipe'} must be a mapping, not {content!r}")
    fields = {f.name: f for f in dataclasses.fields(cls)}
    for key in content:
        if key not in fields:
            raise RecipeError(f"unknown key {where}{key}; there are: {', '.join(fields)}")
    for name, f in fields.items():
        if name not in content and f.default is f.default_factory is dataclasses.MISSING:
            raise RecipeError(f"{where}{name} is missing")
    values = dict(content)
    for key, part in _NESTED.get(cls, {}).items():
        if values.get(key) is not None:
            values[key] = _build(part, values[key], f"{where}{key}.")
    if cls is Recipe:
        for key in ("train", "test"):
            values[key] = {
                name: _build(DataSource, source, f"{key}.{name}.") for name, source in values.get(key, {}).items()
            }
        values["stages"] = [
            _build(Stage, stage, f"stages[{number}].") for number, stage in enumerate(values.get("stages") or [])
        ]
    return cls(**values)
