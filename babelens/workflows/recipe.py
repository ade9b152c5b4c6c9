"""Recipes: a training run as a YAML file, from data to a model folder with its card.

A recipe names the method, the model, its data and the training arguments; `recipes/` holds those of the published
experiments and of the emoji benchmark. `extends: NAME` starts from the recipe NAME, seen from the same folder. The
keys here are those of all methods; a method declares its own in its module, in a subclass of `Recipe`. Every key is
checked: one that the method does not read is refused by name, and so is a value that cannot be meant
(`recipe_checks`).
"""

import dataclasses
import inspect
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from datasets import Dataset, IterableDataset

from ..configuration.errors import LanguageTagError, RecipeError
from ..configuration.languages import normalize_language, normalize_languages
from ..data.batching.text_filter import TextFilter
from ..data.corpus.loading import load_captions, load_translations
from ..data.emoji.benchmark import load_emoji
from ..data.emoji.tasks import load_weak_emoji, weakly_aligned_emoji
from ..data.readers.bitext import load_bitext
from ..data.readers.bitext_files import is_bitext
from ..data.readers.published import PUBLISHED
from .recipe_file import RECIPES as RECIPES, as_meant, find_recipe as find_recipe
from .translated_source import TranslatedSources

EMOJI = "emoji"
WEAK_EMOJI = "emoji-weak"

_NO_OPTIONS = ("source", "skipped", "corpus")  # arguments of loaders that a recipe does not give

# A stage's checkpoints lie in a folder of its name, beside what a run keeps under these.
TEXT_MODEL, PROCESSOR = KEPT_FOLDERS = ("text_model", "processor")
_STAGE_NAME = re.compile(r"(?!checkpoint-\d+$)\w([\w .+-]{,98}[\w.+-])?")


@dataclass(frozen=True)
class DataSource:
    """Where captions or translations come from.

    Args:
        source: `emoji`; `emoji-weak`, its names paired with keywords in other languages; a published data set, read
            from its files as they are published (`data.readers.published`): `multi30k`, `flickr30k`, `coco`, `wit`,
            `cc3m`, `cc12m`, `cc300k`, `wikimatrix`, `opus`, or `several` of them; or a source of `load_captions` or
            `load_translations`: a folder, a file, a Hub id. Translations may be files that `load_bitext` reads, such
            as `wikimatrix/*.tsv.gz`, by default as a stream. Where a folder has the name of a published data set, it
            is read if there are no options.
        options: keyword arguments of the loader, such as `streaming: true`; for a stream, the recipe needs
            `max_steps`, and `languages` or `pairs`, which a stream does not tell beforehand. An option that is null is
            left out, such as one of another source in a recipe that this one extends.
        languages: languages of image-text pairs; default: all.
        translate: captions to translate by machine before training, `{model: …, from: en, to: [de, fr]}`: `model` is a
            translation model of transformers, a folder or Hub id, or a file of translations (`.tsv`, `.jsonl`), or a
            mapping with one for each language in `to`. With `everywhere: true`, images that have captions in a
            language get translations into it as well. A list of such mappings translates from several languages. A
            stream is translated while it is read; translations are kept on disk, and made once.
        text_filter: rules for alt texts (`TextFilter`), such as `{min_words: 3, max_words: 100, max_characters: 1000,
            max_images: 10}`, which are the values of keys that are not given: captions that break one are left out,
            before any is translated.
        translations: the task whose data are translations (`text_text`): a caption in `languages` that they translate,
            word for word, gives its image captions in their other languages.
        pairs: language pairs of translations: a list of two-element lists, or {from: [...], to: [...]} for all
            combinations.
        license: SPDX identifier of the data's license, for the card; not needed for the emoji benchmark.
        attribution: the people or the organisation to name on the card.
    """

    source: str
    options: dict[str, Any] = field(default_factory=dict)
    languages: list[str] | None = None
    pairs: list[list[str]] | dict[str, list[str]] | None = None
    license: str = "unknown"
    attribution: str = ""
    translate: dict[str, Any] | list[dict[str, Any]] | None = None
    text_filter: TextFilter | None = None
    translations: str | None = None

    def __post_init__(self) -> None:
        if not self.source:
            raise RecipeError("source is empty: name the folder, file or Hub id of the data")
        given = {name: value for name, value in self.options.items() if value is not None}
        object.__setattr__(self, "options", given)
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
        if self.translate is not None and self.translations is not None:
            raise RecipeError("translations: captions are translated by machine (translate) already; give one of both")
        if self.translate is not None:
            TranslatedSources.of(self.translate)  # checked here, where an error gets the place of the key

    @property
    def tags(self) -> list[str] | None:
        """`languages` in their canonical spelling, each once."""
        return None if self.languages is None else normalize_languages(self.languages)

    @property
    def translated(self) -> TranslatedSources | None:
        """What `translate` describes."""
        return None if self.translate is None else TranslatedSources.of(self.translate)

    @property
    def changes(self) -> list[str]:
        """What is done with the texts, in words."""
        return [str(done) for done in (self.text_filter, self.translated) if done is not None]

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
        """The function that reads the corpus, but for `options`."""
        if self.source in (EMOJI, WEAK_EMOJI):
            return load_emoji if self.source == EMOJI else load_weak_emoji
        if self.source in PUBLISHED and (self.options or not Path(self.source).exists()):
            return PUBLISHED[self.source]
        if translations and is_bitext(self.source):
            return partial(load_bitext, self.source)
        return partial(load_translations if translations else load_captions, self.source)

    def option_types(self, *, translations: bool = False) -> dict[str, Any]:
        """The names that `options` may have, each with the type of its values."""
        functions: list[Any] = [self.loader(translations=translations)]
        if self.source == WEAK_EMOJI:
            functions = [load_emoji, weakly_aligned_emoji]
        parameters = {name: p for function in functions for name, p in inspect.signature(function).parameters.items()}
        return {name: p.annotation for name, p in parameters.items() if name not in _NO_OPTIONS}

    def loader_options(self, *, translations: bool = False) -> dict[str, Any]:
        """`options` as the loader takes them: of `on` and `off`, true and false."""
        kinds = self.option_types(translations=translations)
        return {name: as_meant(kinds.get(name), value) for name, value in self.options.items()}

    def load(self, *, translations: bool = False, **given: Any) -> Dataset | IterableDataset:
        """The caption corpus, or the translation corpus.

        Args:
            translations: whether translations are read.
            given: further arguments of the loader.

        Raises:
            RecipeError: if an option that has no default is missing.
        """
        for name, parameter in inspect.signature(self.loader(translations=translations)).parameters.items():
            is_needed = parameter.kind is not parameter.VAR_KEYWORD and parameter.default is parameter.empty
            if is_needed and name not in self.options:
                raise RecipeError(f"options.{name}: {self.source} needs it")
        corpus = self.loader(translations=translations)(**self.loader_options(translations=translations) | given)
        return corpus if self.text_filter is None else self.text_filter.apply(corpus)


@dataclass(frozen=True)
class ModelSource:
    """A preset with overrides, trained from scratch; two pretrained towers; or a trained model to go on from.

    Args:
        preset: one of `babelens.configuration.presets.list_presets()`.
        image: a pretrained vision backbone, a folder or Hub id, with its image processor; given together with `text`.
        text: a pretrained text encoder, a folder or Hub id, with its tokenizer.
        overrides: configuration keys that replace the preset's; of a model of two towers, such as `projection_dim`,
            `text_pooling`, `text_prompt` and `freeze`.
        from_pretrained: a folder or Hub id.
        fresh_heads: with `from_pretrained`, whether the layers between the towers and the shared space are drawn anew,
            as an option of fine-tuning; for models of two towers.
        fresh_towers: with `image` and `text`, those of the two whose weights are drawn anew, with the sizes, the image
            processor and the tokenizer of the pretrained ones.
        attn_implementation: `sdpa` (default), `eager`, `flash_attention_2`. Training on a CPU in bfloat16 takes
            `eager` in the place of `sdpa`, whose gradient is slow there.
    """

    preset: str | None = None
    image: str | None = None
    text: str | None = None
    overrides: dict[str, Any] = field(default_factory=dict)
    from_pretrained: str | None = None
    fresh_heads: bool = False
    fresh_towers: list[str] = field(default_factory=list)
    attn_implementation: str | None = None

    def __post_init__(self) -> None:
        if (self.image is None) != (self.text is None):
            raise RecipeError("image and text are the two towers of a model: give both")
        if sum(source is not None for source in (self.preset, self.image, self.from_pretrained)) != 1:
            raise RecipeError("give either a preset, or image and text, or from_pretrained")
        if self.fresh_heads and self.from_pretrained is None:
            raise RecipeError("fresh_heads: a new model has no other heads; it is for from_pretrained")
        for name in self.fresh_towers:
            if self.image is None or name not in ("image", "text"):
                raise RecipeError(f"fresh_towers: {name!r} is none of the towers that image and text name")

    @property
    def towers(self) -> tuple[str, str] | None:
        """The pretrained vision backbone and text encoder, where a model is made of them."""
        return None if self.image is None or self.text is None else (self.image, self.text)


@dataclass(frozen=True)
class TokenizerSource:
    """A vocabulary to train on the corpora's captions, or an existing one (a folder or a Hub id).

    Args:
        vocab_size: number of word pieces to train.
        languages: whose captions the pieces are trained on; default: the languages of the training data.
        lowercase: fold case.
        continuing_subword_prefix: the mark of WordPiece's pieces inside of words, by default `##`; with "" a piece
            is the same at the beginning of a word and inside.
        from_pretrained: a folder or Hub id instead.
        coverage: with `from_pretrained`, the share of the running pieces of the corpora's captions to keep, as
            `babelens trim` does; default: all pieces of the tokenizer.
        sample: the number of rows of each stream whose captions are read for the pieces, spread evenly over its
            shards.
    """

    vocab_size: int | None = None
    languages: list[str] | None = None
    lowercase: bool = True
    continuing_subword_prefix: str | None = None
    from_pretrained: str | None = None
    coverage: float | None = None
    sample: int = 1_000_000

    def __post_init__(self) -> None:
        if (self.vocab_size is None) == (self.from_pretrained is None):
            raise RecipeError("give either vocab_size or from_pretrained")
        if self.coverage is not None and not (self.from_pretrained and 0 < self.coverage <= 1):
            raise RecipeError(
                f"coverage={self.coverage} is a share, above 0 and at most 1, of from_pretrained's pieces"
            )
        if self.vocab_size is not None and self.vocab_size < 1:
            raise RecipeError(f"vocab_size must be at least 1 word piece, not {self.vocab_size}")
        if self.sample < 1:
            raise RecipeError(f"sample must be at least 1 row, not {self.sample}")
        check_languages(self.languages, "languages")
        if self.from_pretrained:
            own = ("from_pretrained", "coverage", *(["sample"] if self.coverage is not None else []))
            for key in dataclasses.fields(self):
                if key.name not in own and getattr(self, key.name) != key.default:
                    raise RecipeError(f"{key.name} is for pieces that are trained, with vocab_size")


@dataclass(frozen=True)
class ImageSizes:
    """Side lengths in pixels: images are resized to `resize`, and cropped to `crop` at the centre."""

    resize: int = 346
    crop: int = 289

    def __post_init__(self) -> None:
        if not 1 <= self.crop <= self.resize:
            raise RecipeError(f"crop: must be from 1 to the {self.resize} pixels of resize, not {self.crop}")


@dataclass(frozen=True)
class Stage:
    """A part of a training run that has its own tasks, arguments and schedule, and goes on from the one before.

    Args:
        name: the name of its folder of checkpoints.
        tasks: the tasks that are trained, among those of the recipe's `train`.
        training: arguments that replace those of the recipe's `training` in this stage.
        languages: the languages of captions in this stage, in place of those in `train`.
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

    @property
    def training_key(self) -> str:
        """The recipe's key of the stage's arguments, for error messages."""
        return f"stage {self.name!r}: training" if self.name else "training"


# Marks a key of a recipe that describes a new model: beside `model.from_pretrained` it is refused.
OF_NEW_MODEL = {"of_new_model": True}


@dataclass(frozen=True)
class Recipe:
    """A training run: the keys that the recipes of all methods have. A method that reads more declares a subclass.

    Args:
        method: the name of the method, such as `mural`.
        model: the model that is trained.
        train: the data of each task.
        training: the trainer's arguments, without `output_dir`.
        validation: captions on which the model is evaluated during training and at its end.
        stages: the stages of training, in their order; default: one with all tasks.
        report: the benchmark that is reported at the end: `emoji`, or none.
        unseen_languages: languages for the report that the model was never trained on.
        license: license of the weights as a Hub identifier; default: the strictest of the data's licenses and those of
            the models that training starts from, `other` when one of them is unknown.
        license_name: the name of the license, with `license: other`.
    """

    method: str
    model: ModelSource
    train: dict[str, DataSource]
    training: dict[str, Any]
    validation: DataSource | None = None
    stages: list[Stage] = field(default_factory=list)
    report: str | None = None
    unseen_languages: list[str] = field(default_factory=list)
    license: str | None = None
    license_name: str | None = None
    # The file that the recipe was read from, for error messages.
    file: Path | None = field(default=None, init=False)

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

    @property
    def all_stages(self) -> list[Stage]:
        """The stages; of a recipe that names none, one without a name that has all tasks."""
        return self.stages or [Stage("", list(self.train))]

    @property
    def task_name(self) -> str | None:
        """The task on which a recipe fine-tunes a pre-trained model, where it does."""
        return None

    @classmethod
    def keys_of_new_models(cls) -> list[str]:
        """The keys that describe a new model."""
        return [f.name for f in dataclasses.fields(cls) if f.metadata == OF_NEW_MODEL]

    @classmethod
    def key_names(cls) -> list[str]:
        """All keys that a recipe of the class may have."""
        return [f.name for f in dataclasses.fields(cls) if f.init]


@dataclass(frozen=True)
class DualEncoderRecipe(Recipe):
    """A recipe of a dual encoder that reads word pieces.

    Args:
        tokenizer: the vocabulary of a new model.
        image: the sizes of a new model's images.
    """

    tokenizer: TokenizerSource | None = field(default=None, metadata=OF_NEW_MODEL)
    image: ImageSizes | None = field(default=None, metadata=OF_NEW_MODEL)


def check_languages(tags: Collection[str] | None, key: str) -> None:
    """Raises a `RecipeError` for a tag that is not a language, and for an empty list of languages."""
    if tags is not None and not len(tags) and key in ("languages", "pairs.from", "pairs.to"):
        raise RecipeError(f"{key} is empty: name some, or leave it out")
    for tag in tags or ():
        try:
            normalize_language(tag)
        except LanguageTagError as error:
            raise RecipeError(f"{key}: {error}") from error


def _is_folder_name(name: str) -> bool:
    return _STAGE_NAME.fullmatch(name) is not None and name not in KEPT_FOLDERS
