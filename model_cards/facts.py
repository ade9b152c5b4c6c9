"""The facts of a model's card, from its training run and its evaluations."""

import dataclasses
import os
import platform
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import torch
from PIL import Image
from transformers import TrainingArguments

from ..utils.languages import normalize_language, normalize_languages
from .base_models import MULTILINGUAL, TEXT_TOWER, BaseModel, DataSource as DataSource

IMAGE_LANGUAGE = "captioned images"
PAIR_LANGUAGE = "translations only"
UNSEEN_LANGUAGE = "nothing"

PIPELINE_TAG = "zero-shot-image-classification"
EMBEDDING_TAG = "feature-extraction"  # the task of a model that no pipeline for classification takes
RETRIEVAL = "image-text-retrieval"
# The pipelines of RC3's tasks (https://huggingface.co/tasks). The Hub has no name for telling whether a text is true
# of an image: it sorts texts by label. A cross-encoder's scores rank.
PIPELINE_TAGS = {
    "visual-entailment": "text-classification",
    "visual-question-answering": "visual-question-answering",
    "visual-reasoning": "text-classification",
    "image-text-retrieval": "text-ranking",
    "translation": "image-text-to-text",
}
RECALLS = ("t2i_r1", "t2i_r5", "t2i_r10", "i2t_r1", "i2t_r5", "i2t_r10", "mean_recall")

_REPORTED_VERSIONS = ("babelens", "torch", "transformers", "datasets", "tokenizers")
# Settings of a run's output folder, logs and uploads, which do not affect its result.
_UNREPORTED = ("_dir", "logging_", "report_to", "run_name", "disable_tqdm", "save_", "hub_", "push_to_hub")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """The scores on a dataset by language, in percent, and the numbers of what was tested; `note` goes below."""

    dataset: str
    scores: Mapping[str, Mapping[str, Any]]
    command: str
    note: str = ""


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
        metrics: the scores of `results` that the card shows.
        task: what an RC3 was fine-tuned for, if anything, as a `model_class` that chooses from `labels`.
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
    metrics: Sequence[str] = RECALLS
    run: TrainingRun | None = None
    in_pipelines: bool = True
    stages: Sequence[str] = ()
    examples: Sequence[Example] = ()
    license: str | None = None
    license_name: str | None = None
    task: str | None = None
    model_class: str = ""
    labels: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in ("image_languages", "pair_languages", "unseen_languages"):
            object.__setattr__(self, name, normalize_languages(list(getattr(self, name))))
        if not self.languages:
            raise ValueError("a model card needs the languages that the model was trained on")

    @property
    def pipeline_tag(self) -> str:
        if self.task:
            return PIPELINE_TAGS[self.task]
        return PIPELINE_TAG if self.in_pipelines else EMBEDDING_TAG

    @property
    def task_type(self) -> str:
        return self.task or RETRIEVAL

    @property
    def languages(self) -> list[str]:
        """The languages of the training; of a fine-tuned RC3 also others that were tested, known from its start."""
        others = self.unseen_languages if self.task else self.pair_languages
        return list(dict.fromkeys([*self.image_languages, *others]))

    @property
    def read_languages(self) -> list[str]:
        """`languages`, and those that the text encoder of the model brought along."""
        brought = [tag for base in self.base_models if base.role == TEXT_TOWER for tag in base.languages]
        return list(dict.fromkeys([*self.languages, *(tag for tag in brought if tag != MULTILINGUAL)]))

    def training_of(self, language: str) -> str:
        """The kind of training data that a language had; for a task, whether the fine-tuning had it, or had both
        languages of a translation, such as `en-de`."""
        trained = self.image_languages
        if self.task:
            return "yes" if language in {*trained, *(f"{a}-{b}" for a in trained for b in trained)} else "no"
        tag = normalize_language(language)
        if tag in trained:
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
        versions=", ".join(f"{name} {import_module(name).__version__}" for name in _REPORTED_VERSIONS),
        precision=str(getattr(args, "chosen_precision", "")),  # which babelens' own arguments have
    )
