"""The choices of `babelens acquire`: which model learns which language, and from what data."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Literal

import yaml

from ..configuration.configuration_two_tower import TextPooling, declared_pooling
from ..configuration.errors import CorpusError, RecipeError, TrainingSetupError, did_you_mean, suggestion
from ..configuration.languages import normalize_language, normalize_languages
from ..configuration.pretrained import explained, located
from ..configuration.text_towers import declared_text_tower
from ..model_cards.licenses import check_hub_license
from ..trainers.arguments import MlaTrainingArguments
from ..trainers.precision import AUTO, fastest_precision
from .argument_checks import check_arguments
from .data import flattened

# The ways in which a model acquires a language: ridge regression in closed form, an adapter in its own text tower, or
# a student beside it.
Way = Literal["ridge", "adapter", "student"]
# The choices that only one of the two that train has.
VOCABULARIES = ("vocabulary", "new_vocabulary")
ONLY_OF_ADAPTERS = (*VOCABULARIES, "acquirer", "acquirer_size", "train_embedding", "text_tower")
ONLY_OF_STUDENTS = ("text_encoder", "text_pooling", "text_prompt", "freeze_encoder", "train_layers", "native_texts")
RECIPE = "recipe.yaml"
# The choices of the machine at hand, which a recipe does not have.
OF_MACHINE = ("output", "trust_remote_code")


@dataclass(frozen=True)
class WayCosts:
    """What a way to acquire languages costs.

    Args:
        trained_parameters: the number of parameters that are trained.
        added_parameters: the number of parameters that a user downloads beside those of the base.
        unknown_rate: the share of [UNK] in the given texts, in percent of their pieces; of the worst language.
        pieces_per_word: the pieces of a word, on the mean of the given texts; of the worst language. Words are what
            stands between spaces.
        steps: the steps of training on translations.
        seconds_per_step: measured on this machine, in the precision of the training.
        seconds_once: of computing what the frozen layers of a student's text encoder give for all texts; estimated by
            a few texts.
        is_measured: whether whole steps were measured. One that takes more than five seconds is not, and its time is
            estimated by a step of eight texts.
    """

    trained_parameters: int
    added_parameters: int
    unknown_rate: float
    pieces_per_word: float
    steps: int
    seconds_per_step: float
    seconds_once: float
    is_measured: bool

    @property
    def minutes(self) -> float:
        """The time of training on translations."""
        return (self.seconds_once + self.steps * self.seconds_per_step) / 60

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"minutes": self.minutes}


@dataclass
class AcquisitionChoices:
    """The model, the language, the data and the training of one acquisition.

    Args:
        base: folder or Hub id of the model that learns.
        language: BCP-47 tag of the language to acquire; for a student, one or several, separated by commas.
        translations: a source of `load_translations`: pairs of `language` and the native language.
        output: the folder of the result.
        captions: a source of `load_captions`: images with captions in `language`, for language exposure.
        native_language: the language that a plain base model reads; default: English. This and the following
            four are for a plain base model only: a model that has acquired languages has settled them.
        vocabulary: folder or Hub id of a model or a tokenizer: the acquired languages' vocabulary, and first values of
            its table; default: M-BERT's.
        new_vocabulary: train a vocabulary of that many word pieces on the translations instead.
        acquirer: `mlp` (default) or `linear`.
        acquirer_size: width of the hidden layer of `mlp`; default: 256.
        train_embedding: whether the table that the languages share is trained. By default it is while the model has no
            other language, and frozen as soon as one depends on it.
        steps: of native language transfer; by default 20 passes over the translations, at least 500 and at most the
            paper's 117 150.
        exposure_steps: of language exposure; by default a tenth of that.
        text_tower: where a plain base model has the parts of its text tower, as in `MlaConfig`, for a kind that MLA
            does not support by itself.
        text_encoder: folder or Hub id of a student's text encoder. This and the following five are for students only.
        text_pooling: how its texts are pooled; by default as its folder states, or by the mean.
        text_prompt: what stands before every text that the student reads.
        freeze_encoder: whether the text encoder stays as it is, and a projection alone is trained.
        train_layers: number of the encoder's upper layers that are trained beside the projection; the states below
            them are computed once. By default, the whole encoder is trained.
        native_texts: which text encoder reads texts in the native language, the `student` or (default) the `native`
            model.
        license: of the result, a Hub identifier.
        names: whether a language that is solved for, or an adapter's embedding, learns from CLDR's names of emoji too.
        trust_remote_code: run code that comes with `base` or `vocabulary`.
        training: further arguments of `MlaTrainingArguments`.
    """

    way: ClassVar[Way]

    base: str
    language: str
    translations: str
    output: Path
    captions: str | None = None
    native_language: str | None = None
    vocabulary: str | None = None
    new_vocabulary: int | None = None
    acquirer: str | None = None
    acquirer_size: int | None = None
    train_embedding: bool | None = None
    steps: int | None = None
    exposure_steps: int | None = None
    text_tower: dict[str, str] | None = None
    text_encoder: str | None = None
    text_pooling: TextPooling | None = None
    text_prompt: str | None = None
    freeze_encoder: bool | None = None
    train_layers: int | None = None
    native_texts: Literal["student", "native"] | None = None
    license: str = "other"
    trust_remote_code: bool = False
    names: bool = True
    training: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.recipe = self._as_recipe()
        self.languages = normalize_languages(self.named_languages().split(","))
        self.language = self.languages[0]
        self.output = Path(self.output)
        if self.native_language is not None:
            self.native_language = normalize_language(self.native_language)
        check_hub_license(self.license)
        if self.text_tower is not None:
            declared_text_tower(self.text_tower)
        for name in ("new_vocabulary", "acquirer_size", "train_layers", "steps", "exposure_steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise TrainingSetupError(f"{name}={value} must be at least 1")
        if self.vocabulary is not None and self.new_vocabulary is not None:
            raise TrainingSetupError(
                f"vocabulary={str(self.vocabulary)!r} and new_vocabulary={self.new_vocabulary}: one of them can be "
                "taken"
            )
        if self.freeze_encoder and self.train_layers is not None:
            raise TrainingSetupError(
                f"freeze_encoder=True and train_layers={self.train_layers}: a text encoder that stays as it is has no "
                "layers that are trained; one of them can be taken"
            )
        if self.text_encoder is None and (given := self.given(ONLY_OF_STUDENTS)):
            raise TrainingSetupError(
                f"{self.as_given(given)}: choices of a text encoder, and none is named; name one as in "
                "text_encoder='intfloat/multilingual-e5-small'"
            )
        if self.exposure_steps is not None and self.captions is None:
            raise TrainingSetupError(
                f"exposure_steps={self.exposure_steps} is for language exposure, which takes captions"
            )
        try:
            check_arguments(MlaTrainingArguments, self.training, "training")
        except RecipeError as error:
            raise TrainingSetupError(str(error).replace("training.", "", 1)) from error

    def named_languages(self) -> str:
        """The tags of the languages, separated by commas."""
        return self.language

    def _as_recipe(self) -> dict[str, Any]:
        """What was chosen, without what depends on the machine at hand."""
        chosen = {each.name: (getattr(self, each.name), each) for each in fields(self) if each.name not in OF_MACHINE}
        return {"way": self.way} | {
            name: str(value) if isinstance(value, Path) else value
            for name, (value, each) in chosen.items()
            if value not in (each.default, "") and not (value == {} or value is None)
        }

    def write_recipe(self, folder: Path) -> None:
        """Writes what was chosen, by which `babelens acquire --recipe` does the same again."""
        text = yaml.safe_dump(self.recipe, sort_keys=False, allow_unicode=True)
        (folder / RECIPE).write_text(text, encoding="utf-8")

    def absent(self, tag: str, present: Iterable[str]) -> CorpusError:
        """The error about a language that the translations do not have."""
        own = [each for each in present if each.partition("-")[0] == tag.partition("-")[0]]
        hint = suggestion(own[0]) if own else did_you_mean(tag, present)
        return CorpusError(f"{self.translations} has no text in {tag!r}, only in {', '.join(present)}{hint}")

    @property
    def code(self) -> dict[str, Any]:
        """The argument of loaders about code that comes with a model."""
        return {"trust_remote_code": self.trust_remote_code}

    @property
    def seed(self) -> int:
        return self.training.get("seed", 42)  # transformers' default

    @property
    def pooling(self) -> TextPooling:
        """How the texts of the text encoder are pooled: as chosen, or as its folder states, or else by the mean, which
        says most of a text where no state was trained for that; the first state of a plain encoder says little."""
        source = str(self.text_encoder)
        with explained(source, self.code):
            return self.text_pooling or declared_pooling(source, **located(source, **self.code)) or "mean"

    def precision_on(self, device: str) -> str:
        """The precision in which frozen encoders compute on a kind of device: what was chosen, or the fastest."""
        chosen = "bfloat16" if self.training.get("bf16") else self.training.get("precision") or AUTO
        return fastest_precision(device).name if chosen == AUTO else chosen

    @property
    def exposure_rate(self) -> float:
        """The learning rate of language exposure: 3e-6 for the paper's 1e-4 of transfer, and in proportion."""
        return 0.03 * self.training.get("learning_rate", MlaTrainingArguments.learning_rate)

    @staticmethod
    def named(source: str) -> str:
        """A model as a result names it: a folder by its whole path, which any working directory understands."""
        return str(Path(source).resolve()) if Path(source).is_dir() else source

    def given(self, names: Iterable[str]) -> list[str]:
        """Which of these choices were made."""
        return [name for name in names if getattr(self, name) is not None]

    def as_given(self, names: Iterable[str]) -> str:
        """Choices with their values, which errors of the command line show as options."""
        values = {name: getattr(self, name) for name in names}
        return ", ".join(
            f"{name}={value if isinstance(value, int) else str(value)!r}" for name, value in values.items()
        )

    def settings(self) -> dict[str, Any]:
        """The choices on which the trained weights depend, by name; those of the trainer as `training.<name>`."""
        names = ("base", "language", "native_language", "vocabulary", "new_vocabulary", "acquirer", "acquirer_size")
        more = ("train_embedding", "steps", "exposure_steps", "text_tower")
        settings = {name: getattr(self, name) for name in (*names, *more)}
        if len(self.languages) > 1:
            settings["language"] = ",".join(self.languages)
        settings |= {name: getattr(self, name) for name in self.given(ONLY_OF_STUDENTS)}
        return settings | flattened({"training": self.training})
