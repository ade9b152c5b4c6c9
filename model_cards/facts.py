"""The facts of a model's card, from its training run and its evaluations."""

import dataclasses
import importlib.metadata
import os
import platform
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from PIL import Image
from transformers import TrainingArguments

from ..data.emoji.build import read_sources
from ..utils.languages import normalize_language, normalize_languages
from .base_models import MULTILINGUAL, TEXT_TOWER, BaseModel, DataSource as DataSource

IMAGE_LANGUAGE = "captioned images"
PAIR_LANGUAGE = "translations only"
UNSEEN_LANGUAGE = "nothing"

PIPELINE_TAG = "zero-shot-image-classification"
EMBEDDING_TAG = "feature-extraction"  # the task of a model that no pipeline for classification takes
RETRIEVAL = "image-text-retrieval"
RECALLS = ("t2i_r1", "t2i_r5", "t2i_r10", "i2t_r1", "i2t_r5", "i2t_r10", "mean_recall")

_REPORTED_VERSIONS = ("babelens", "torch", "transformers", "datasets", "tokenizers")
# Settings of a run's output folder, logs and uploads, which do not affect its result.
_UNREPORTED = ("_dir", "logging_", "report_to", "run_name", "disable_tqdm", "save_", "hub_", "push_to_hub")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """One language's scores on one dataset, in percent, and the numbers of what was tested; `note` goes below the
    table. In a mean over languages, `seen` is the kind of training data that they share."""

    dataset: str
    language: str
    scores: Mapping[str, float]
    command: str
    note: str = ""
    seen: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingRun:
    """How the weights were trained: the command, the arguments that differ from their defaults, time and hardware."""

    command: str
    hyperparameters: Mapping[str, Any]
    steps: int
    seconds: float
    loss: float
    hardware: str
    versions: str
    precision: str = ""

    @property
    def minutes(self) -> str:
        return f"{self.seconds / 60:.1f}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Example:
    """An image, and labels with the probabilities that the model gave them, best first; `language` is the labels'."""

    title: str
    image: Image.Image
    ranking: Sequence[tuple[str, float]]
    file_name: str
    language: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelCardFacts:
    """The facts of a card; the text about the method is in `model_cards/<method>.md`.

    Args:
        image_languages, pair_languages, unseen_languages: languages with captioned images in training, with
            translations only, and evaluated without training data.
        base_models: the models that training started from (`base_model_facts`).
        in_pipelines: whether it classifies images in transformers' pipelines and in an endpoint.
        stages: the names of the stages of training, if there are several; `run` describes the last one.
        license: the license of the weights, as the Hub names it; default: the result of `weights_license`.
    """

    model_name: str
    method: str
    training_data: Sequence[DataSource]
    image_languages: Sequence[str] = ()
    pair_languages: Sequence[str] = ()
    unseen_languages: Sequence[str] = ()
    parameters: int | None = None
    base_models: Sequence[BaseModel] = ()
    results: Sequence[Result] = ()
    run: TrainingRun | None = None
    in_pipelines: bool = True
    stages: Sequence[str] = ()
    examples: Sequence[Example] = ()
    license: str | None = None
    license_name: str | None = None

    def __post_init__(self) -> None:
        for name in ("image_languages", "pair_languages", "unseen_languages"):
            object.__setattr__(self, name, normalize_languages(list(getattr(self, name))))
        if not self.languages:
            raise ValueError("a model card needs the languages that the model was trained on")
        if "/" in self.model_name:
            raise ValueError(f"model_name={self.model_name!r} must not name an owner; `push` adds it")

    @property
    def text(self) -> str:
        return self.method

    @property
    def pipeline_tag(self) -> str:
        return PIPELINE_TAG if self.in_pipelines else EMBEDDING_TAG

    @property
    def task_type(self) -> str:
        return RETRIEVAL

    @property
    def tags(self) -> list[str]:
        return ["babelens", self.method, "vision-language", "multilingual", self.task_type]

    @property
    def metrics(self) -> Sequence[str]:
        return RECALLS

    @property
    def languages(self) -> list[str]:
        return list(dict.fromkeys([*self.image_languages, *self.pair_languages]))

    @property
    def read_languages(self) -> list[str]:
        """The languages that the model was trained on, and those that its text encoder brought along."""
        brought = [tag for base in self.base_models if base.role == TEXT_TOWER for tag in base.languages]
        return list(dict.fromkeys([*self.languages, *(tag for tag in brought if tag != MULTILINGUAL)]))

    @property
    def is_multilingual(self) -> bool:
        return any(base.role == TEXT_TOWER and MULTILINGUAL in base.languages for base in self.base_models)

    def training_of(self, language: str) -> str:
        """The kind of training data that a language had."""
        tag = normalize_language(language)
        if tag in self.image_languages:
            return IMAGE_LANGUAGE
        return PAIR_LANGUAGE if tag in self.pair_languages else UNSEEN_LANGUAGE


def training_run(args: TrainingArguments, log_history: Sequence[Mapping[str, Any]], command: str) -> TrainingRun:
    summary = next((entry for entry in reversed(log_history) if "train_runtime" in entry), None)
    if summary is None:
        raise ValueError("the log holds no finished training run: it has no 'train_runtime'")
    if torch.cuda.is_available():
        hardware = f"{args.world_size} × {torch.cuda.get_device_name()}"
    else:
        processes = f"{args.world_size} process{'es' if args.world_size > 1 else ''}"
        hardware = f"{os.cpu_count()} CPU cores ({platform.machine()}), {processes}"
    defaults = type(args)(output_dir=args.output_dir).to_dict()
    changed = {name: value for name, value in args.to_dict().items() if value != defaults[name]}
    return TrainingRun(
        command=command,
        hyperparameters={n: value for n, value in changed.items() if not any(part in n for part in _UNREPORTED)},
        steps=summary["step"],
        seconds=summary["train_runtime"],
        loss=summary["train_loss"],
        hardware=hardware,
        versions=", ".join(f"{name} {_version(name)}" for name in _REPORTED_VERSIONS),
        precision=str(getattr(args, "chosen_precision", "")),  # which babelens' own arguments have
    )


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:  # babelens, in a checkout on the path
        return "not installed"


def retrieval_results(
    report: Mapping[str, Mapping[str, float]], *, dataset: str, command: str, note: str = ""
) -> list[Result]:
    """Results on one dataset, from the report of `evaluate_retrieval` or the JSON file it was written to."""
    return [
        Result(dataset=dataset, language=normalize_language(language), scores=scores, command=command, note=note)
        for language, scores in report.items()
    ]


# ---- The facts of the card of an RC3 that was fine-tuned on a task, and the Hub's names of these tasks ----

# The Hub has no name for telling whether a text is true of an image: it sorts texts by label. A cross-encoder's
# scores rank.
# https://huggingface.co/tasks
PIPELINE_TAGS = {
    "visual-entailment": "text-classification",
    "visual-question-answering": "visual-question-answering",
    "visual-reasoning": "text-classification",
    "image-text-retrieval": "text-ranking",
    "translation": "image-text-to-text",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskCardFacts(ModelCardFacts):
    """The facts of an RC3 that was fine-tuned on a task: its scores, and the labels that it chooses from.
    `image_languages` are the languages of the fine-tuning, `unseen_languages` the other tested ones."""

    task: str
    model_class: str
    scores: Sequence[str]
    labels: Sequence[str] = ()
    in_pipelines: bool = False

    @property
    def text(self) -> str:
        return f"{self.method}_task"

    @property
    def pipeline_tag(self) -> str:
        return PIPELINE_TAGS[self.task]

    @property
    def task_type(self) -> str:
        return self.task

    @property
    def metrics(self) -> Sequence[str]:
        return self.scores

    @property
    def languages(self) -> list[str]:
        return list(dict.fromkeys([*self.image_languages, *self.unseen_languages]))

    def training_of(self, language: str) -> str:
        """Returns whether the fine-tuning had it; of translations, such as `en-de`, whether it had both."""
        trained = self.image_languages
        pairs = {f"{a}-{b}" for a in trained for b in trained}
        return "yes" if language in trained or language in pairs else "no"


# ---- Models that were trained on the emoji benchmark, or evaluated with it ----

_QUESTIONS = {"unseen_concepts": "Emoji, unseen concepts", "unseen_vendor": "Emoji, unseen vendor"}
_NAMES = ("names", "derived_names")


def emoji_sources(vendors: Collection[str]) -> list[DataSource]:
    """The sources of a model trained on the names of emoji and the images by `vendors` (`"twemoji"`, …)."""
    sources = [
        DataSource(
            name=source["title"],
            license=source["license"],
            role="captions and translations" if key in _NAMES else "images",
            attribution=source["attribution"],
            url=source["url"],
        )
        for key, source in read_sources().items()
        if key in _NAMES or key in vendors
    ]
    return list(dict.fromkeys(sources))  # one package of names after another, both from one source


def emoji_results(report: Mapping[str, Any], *, command: str) -> list[Result]:
    """The answers to the benchmark's four questions, from `EmojiBenchmark.report`."""
    found: list[Result] = []
    for question, answers in report.items():
        dataset = f"{_QUESTIONS[question]} ({answers['vendor']}, {answers['split']} split)"
        note = f"A random ranking has text→image R@10 of {answers['chance']['t2i_r10']:.1f}."
        for group in answers["groups"].values():
            found += retrieval_results(group["languages"], dataset=dataset, command=command, note=note)
    return found
