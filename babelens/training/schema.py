"""The keys of recipes that all methods share, as pydantic models; a method adds keys in a subclass of `Recipe`."""

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from datasets import Dataset, IterableDataset
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    TypeAdapter,
    ValidationError,
    create_model,
    model_validator,
)
from transformers import TrainingArguments

from ..data.batching.texts import TextFilter
from ..data.corpus.loading import load_captions, load_translations
from ..data.emoji.benchmark import load_emoji, load_weak_emoji, weakly_aligned_emoji
from ..data.readers.bitext import is_bitext, load_bitext
from ..data.readers.published import PUBLISHED
from ..registry import METHODS, imported
from ..utils.errors import RecipeError, did_you_mean
from ..utils.languages import normalize_language
from .recipe_file import find_recipe, read_recipe, with_key

EMOJI = "emoji"
WEAK_EMOJI = "emoji-weak"

_NO_OPTIONS = ("source", "skipped", "corpus")  # arguments of loaders that a recipe cannot set

# A stage's checkpoints are in a folder of its name, next to the folders that a run keeps under these names.
TEXT_MODEL, PROCESSOR = KEPT_FOLDERS = ("text_model", "processor")
_STAGE_NAME = re.compile(r"(?!checkpoint-\d+$)\w([\w .+-]{,98}[\w.+-])?")


# ---- Checking values ----


def validate(kind: Any, value: Any, where: str = "") -> Any:
    """Converts the value of a key to a type or a `Section`; `on` and `no` become booleans if the type is a boolean."""
    is_section = isinstance(kind, type) and issubclass(kind, BaseModel)
    config = None if is_section else ConfigDict(arbitrary_types_allowed=True)
    try:
        return TypeAdapter(kind, config=config).validate_python(value)
    except ValidationError as error:
        raise RecipeError("; ".join(_complaints(error, kind, where))) from error


def _complaints(error: ValidationError, kind: Any, where: str) -> Iterator[str]:
    for found in error.errors():
        key = ".".join([*filter(None, [where]), *map(str, found["loc"])])
        if found["type"] == "extra_forbidden":
            known = _keys_at(kind, found["loc"][:-1])
            yield f"unknown key {key}{did_you_mean(found['loc'][-1], known)}"
        elif found["type"] == "missing":
            yield f"{key} is missing"
        else:
            message = found["msg"].removeprefix("Value error, ")
            yield f"{key}: {message}" if key else message


def _keys_at(kind: Any, path: tuple[Any, ...]) -> list[str]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        fields = kind.model_fields
        return _keys_at(fields[path[0]].annotation, path[1:]) if path and path[0] in fields else list(fields)
    parts = [part for part in get_args(kind) if part not in (str, type(None))]
    return _keys_at(parts[-1], path[1:] if get_origin(kind) in (list, dict) else path) if parts else []


def check_names(names: Iterable[str] | None, known: Iterable[str], key: str) -> None:
    """Raises a `RecipeError` for an unknown name, such as a task's or an option's, with the nearest known one."""
    for name in names or ():
        if name not in known:
            raise RecipeError(f"{key}: there is no {name!r}{did_you_mean(name, known)}; there are: {', '.join(known)}")


# Arguments that the run sets.
_NOT_GIVEN = ("output_dir", "resume_from_checkpoint", "do_train", "do_predict", "local_rank")


def checked_arguments(
    arguments_class: type[TrainingArguments], given: Mapping[str, Any], where: str
) -> dict[str, Any]:
    hints = get_type_hints(arguments_class)  # `HfArgumentParser` may have changed `Field.type`
    names = [field.name for field in dataclasses.fields(arguments_class) if field.init]
    kinds: dict[str, Any] = {name: (hints[name], None) for name in names if name not in _NOT_GIVEN}
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=True, protected_namespaces=())
    made = validate(create_model("Arguments", __config__=config, **kinds), dict(given), where)
    return {name: getattr(made, name) for name in given}


def training_arguments(
    arguments_class: type[TrainingArguments], given: Mapping[str, Any], where: str, **own: Any
) -> TrainingArguments:
    """Returns the trainer's arguments: the recipe's at the key `where`, and the run's own, such as `output_dir`."""
    values = checked_arguments(arguments_class, given, where)
    try:
        return arguments_class(**own, **values)
    except (TypeError, ValueError, ImportError, NotImplementedError) as error:
        raise RecipeError(f"{where}: {' '.join(str(error).split())}") from error


# ---- Types of values ----


def _distinct(tags: list[str]) -> list[str]:
    return list(dict.fromkeys(tags))


def _folder_name(name: str) -> str:
    if not _STAGE_NAME.fullmatch(name) or name in KEPT_FOLDERS:
        raise ValueError(f"{name!r} cannot name a folder of checkpoints: use letters and digits, not {KEPT_FOLDERS}")
    return name


def _combinations(pairs: Any) -> Any:
    """Converts `{from: [...], to: [...]}` to a list of all pairs."""
    if not isinstance(pairs, dict):
        return pairs
    if sorted(pairs) != ["from", "to"]:
        raise ValueError("a mapping of pairs needs the keys from and to")
    sides = [[normalize_language(tag) for tag in validate(list[str], pairs[side], side)] for side in ("from", "to")]
    return [[a, b] for a in sides[0] for b in sides[1] if a != b]


# YAML 1.2 reads `on`, `yes`, `off` and `no` as text; here they are booleans.
Switch = Annotated[bool, Field(strict=False)]
Count = Annotated[int, Field(ge=1)]
Language = Annotated[str, AfterValidator(normalize_language)]
Languages = Annotated[list[Language], Field(min_length=1), AfterValidator(_distinct)]
Pair = Annotated[tuple[Language, Language], Field(strict=False)]
Pairs = Annotated[list[Pair], Field(min_length=1), BeforeValidator(_combinations)]


class Section(BaseModel):
    """A mapping in a recipe: every key is a field, and every value has the type of its field."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


# ---- Sections ----


class DataSource(Section):
    """A source of captions or translations. `source` is `emoji`; `emoji-weak`, its names paired with keywords in other
    languages; a published data set, read from its original files (`data.readers.published`); or a source of
    `load_captions` or `load_translations`: a folder, a file, a Hub id. Translations may be files that `load_bitext`
    reads, such as `wikimatrix/*.tsv.gz`, by default as a stream. A folder with the name of a published data set is
    read if there are no options."""

    source: Annotated[str, Field(min_length=1)]
    # Keyword arguments of the loader; null removes an option of a recipe that this one extends.
    options: Annotated[
        dict[str, Any],
        AfterValidator(lambda options: {name: value for name, value in options.items() if value is not None}),
    ] = {}
    languages: Languages | None = None  # of image-text pairs; default: all
    pairs: Pairs | None = None  # of translations: a list of pairs, or {from: [...], to: [...]} for all combinations
    license: str = "unknown"  # SPDX identifier, for the card; not needed for the emoji benchmark
    attribution: str = ""  # the people or the organisation to name on the card
    text_filter: TextFilter | None = None  # captions that break a rule are left out
    # The task whose data are translations: a caption in `languages` that they translate, word for word, gives its
    # image captions in their other languages.
    translations: str | None = None

    def loader(self, *, translations: bool = False) -> Callable[..., Dataset | IterableDataset]:
        """Returns the function that reads the corpus; it takes `options`."""
        if self.source in (EMOJI, WEAK_EMOJI):
            return load_emoji if self.source == EMOJI else load_weak_emoji
        if self.source in PUBLISHED and (self.options or not Path(self.source).exists()):
            return PUBLISHED[self.source]
        if translations and is_bitext(self.source):
            return partial(load_bitext, self.source)
        return partial(load_translations if translations else load_captions, self.source)

    def loader_options(self, where: str = "options", *, translations: bool = False) -> dict[str, Any]:
        """Converts `options` to the types of the loader's arguments; `where` is their key, for errors."""
        functions: list[Any] = [self.loader(translations=translations)]
        if self.source == WEAK_EMOJI:
            functions = [load_emoji, weakly_aligned_emoji]
        parameters = [each for function in functions for each in inspect.signature(function).parameters.values()]
        kinds = {each.name: each.annotation for each in parameters if each.name not in _NO_OPTIONS}
        check_names(self.options, kinds, where)
        return {name: validate(kinds[name], value, f"{where}.{name}") for name, value in self.options.items()}

    def load(self, *, translations: bool = False, **given: Any) -> Dataset | IterableDataset:
        """Loads the captions or the translations; `given` are other arguments of the loader."""
        loader = self.loader(translations=translations)
        for name, parameter in inspect.signature(loader).parameters.items():
            is_needed = parameter.kind is not parameter.VAR_KEYWORD and parameter.default is parameter.empty
            if is_needed and name not in self.options:
                raise RecipeError(f"options.{name}: {self.source} needs it")
        corpus = loader(**self.loader_options(translations=translations) | given)
        return corpus if self.text_filter is None else self.text_filter.apply(corpus)


class ModelSource(Section):
    """A preset with overrides, trained from scratch; two pretrained towers; or a trained model to continue from."""

    preset: str | None = None  # one of `babelens.presets.list_presets()`
    image: str | None = None  # folder or Hub id of a vision backbone with its image processor; together with `text`
    text: str | None = None  # folder or Hub id of a text encoder with its tokenizer
    overrides: dict[str, Any] = {}  # configuration keys that replace the preset's
    from_pretrained: str | None = None  # folder or Hub id
    # Initialize the layers between the towers and the shared space at random, for fine-tuning a saved model.
    fresh_heads: Switch = False
    # The towers that start with random weights, with the sizes and processors of the pretrained ones.
    fresh_towers: list[Literal["image", "text"]] = []
    # `sdpa` (default), `eager`, `flash_attention_2`. Training on a CPU in bfloat16 uses `eager` instead of `sdpa`,
    # because the gradient of `sdpa` is slow there.
    attn_implementation: str | None = None

    @model_validator(mode="after")
    def _one_start(self) -> "ModelSource":
        if (self.image is None) != (self.text is None):
            raise ValueError("give both image and text")
        if sum(source is not None for source in (self.preset, self.image, self.from_pretrained)) != 1:
            raise ValueError("give exactly one of preset, image and text, or from_pretrained")
        if self.fresh_heads and self.from_pretrained is None:
            raise ValueError("fresh_heads requires from_pretrained")
        if self.fresh_towers and self.image is None:
            raise ValueError("fresh_towers requires image and text")
        return self

    @property
    def towers(self) -> tuple[str, str] | None:
        """The pretrained vision backbone and text encoder, if the model is made of two towers."""
        return None if self.image is None or self.text is None else (self.image, self.text)


class TokenizerSource(Section):
    """A vocabulary to train on the corpora's captions, or an existing one (a folder or a Hub id)."""

    vocab_size: Count | None = None  # number of word pieces to train
    languages: Languages | None = None  # whose captions train the pieces; default: those of the training data
    lowercase: Switch = True
    # The prefix of WordPiece's pieces inside words, by default `##`; with "", a piece is the same in both places.
    continuing_subword_prefix: str | None = None
    from_pretrained: str | None = None
    # With `from_pretrained`, the share of the running pieces in the captions to keep (`babelens trim`); default: all.
    coverage: Annotated[float, Field(gt=0, le=1)] | None = None
    sample: Count = 1_000_000  # rows of each stream to read for the pieces, spread evenly over its shards

    @model_validator(mode="after")
    def _one_source(self) -> "TokenizerSource":
        if (self.vocab_size is None) == (self.from_pretrained is None):
            raise ValueError("give either vocab_size or from_pretrained")
        given = {name for name in self.model_fields_set if getattr(self, name) is not None}
        of_the_other = {"coverage"} if self.vocab_size else {"languages", "lowercase", "continuing_subword_prefix"}
        if wrong := sorted(given & of_the_other):
            raise ValueError(f"{wrong[0]} has no effect with {'vocab_size' if self.vocab_size else 'from_pretrained'}")
        return self


class ImageSizes(Section):
    """Side lengths in pixels: images are resized to `resize`, then cropped to `crop` at the centre."""

    resize: Count = 346
    crop: Count = 289

    @model_validator(mode="after")
    def _crop_fits(self) -> "ImageSizes":
        if self.crop > self.resize:
            raise ValueError(f"crop ({self.crop}) is larger than resize ({self.resize})")
        return self


class Stage(Section):
    """A part of a training run with its own tasks, arguments and schedule; it continues the previous stage."""

    name: Annotated[str, AfterValidator(_folder_name)]  # of its folder of checkpoints
    tasks: Annotated[list[str], Field(min_length=1)]
    training: dict[str, Any] = {}  # replaces the recipe's
    languages: Languages | None = None  # of captions, instead of those in `train`

    @property
    def training_key(self) -> str:
        """The recipe's key of the stage's arguments, for error messages."""
        return f"stages.{self.name}.training" if self.name else "training"


class Recipe(Section):
    """A training run, with the keys of all methods. Methods with other keys declare a subclass."""

    # The keys that describe a new model; they have no effect if training continues from a saved one.
    only_from_scratch: ClassVar[tuple[str, ...]] = ()

    method: str
    model: ModelSource
    train: Annotated[dict[str, DataSource], Field(min_length=1)]  # the data of each task
    training: dict[str, Any]  # the trainer's arguments, without `output_dir`
    validation: DataSource | None = None  # captions to evaluate the model on, during training and at its end
    stages: list[Stage] = []  # in order; default: one with all tasks
    report: str | None = None  # the benchmark to report at the end: `emoji`, or none
    unseen_languages: Annotated[list[Language], AfterValidator(_distinct)] = []  # for the report
    # A Hub identifier; default: the strictest license of the data and of the models that training starts from.
    license: str | None = None
    license_name: str | None = None  # with `license: other`
    _file: Path | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _stages_fit(self) -> "Recipe":
        names = [stage.name for stage in self.stages]
        if len(set(names)) < len(names):
            raise ValueError(f"stages: names are not distinct: {', '.join(names)}")
        for stage in self.stages:
            for task in stage.tasks:
                if task not in self.train:
                    raise ValueError(f"stages.{stage.name}.tasks: train has no data for {task!r}")
        return self

    @property
    def file(self) -> Path | None:
        """The file that the recipe was read from, for error messages."""
        return self._file

    @property
    def all_stages(self) -> list[Stage]:
        """The stages; if the recipe names none, one stage without a name that has all tasks."""
        return self.stages or [Stage.model_construct(name="", tasks=list(self.train))]

    @property
    def task_name(self) -> str | None:
        """The task on which the recipe fine-tunes a pre-trained model, if any."""
        return None


class DualEncoderRecipe(Recipe):
    """A recipe of a dual encoder that reads word pieces; the keys describe a new model."""

    only_from_scratch = ("tokenizer", "image")

    tokenizer: TokenizerSource | None = None
    image: ImageSizes | None = None


# ---- Loading ----


def load_recipe(name: str | Path, overrides: dict[str, Any] | None = None) -> Recipe:
    """Reads a recipe by its path or packaged name. `overrides` have dotted keys, such as `training.learning_rate`."""
    path = find_recipe(name)
    content = read_recipe(name)
    try:
        for dotted, value in (overrides or {}).items():
            content = with_key(content, dotted, value)
        if "method" not in content:
            check_names(content, [*Recipe.model_fields], "keys")
            raise RecipeError(f"method is missing; choose one of {', '.join(METHODS)}")
        recipe_class = builder_of(content["method"], content.get("task")).recipe_class
        # A null key of another method removes an inherited key.
        own = {key: value for key, value in content.items() if value is not None or key in recipe_class.model_fields}
        recipe: Recipe = validate(recipe_class, own)
    except RecipeError as error:
        # Values in a recipe may have line breaks and control characters.
        shown = "".join(char if char.isprintable() else repr(char)[1:-1] for char in str(error))
        raise RecipeError(f"{path}: {shown}") from error
    recipe._file = path
    return recipe


def builder_of(method: object, task: object = None) -> Any:
    """Returns the `ModelBuilder` of a method's recipes, or of recipes that fine-tune its models on a task."""
    check_names([str(method)], METHODS, "method")
    found = METHODS[str(method)]
    if task is None:
        return imported(found.builder)
    if found.task_builder is None:
        others = ", ".join(name for name, other in METHODS.items() if other.task_builder)
        raise RecipeError(f"task: {method} is not fine-tuned on tasks; {others} is")
    builder = imported(found.task_builder)
    check_names([str(task)], builder.task_names, "task")
    return builder
