"""Recipes that fine-tune a pre-trained RC3 on a task, and report its measures in each language of the test data."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from transformers import AutoProcessor, PreTrainedConfig, PreTrainedModel, ProcessorMixin

from ..configuration.configuration_rc3 import Rc3Config
from ..data.batching.mixture import TaskData
from ..data.corpus.overlap import Overlap, corpus_overlaps
from ..evaluation.query_ranks import QueryRanks
from ..evaluation.results import measurements
from ..evaluation.tasks import Ranks, Results
from ..model_cards.facts import DataSource as CardSource, Result, TaskCardFacts, emoji_sources
from ..trainers.base import BabelensTrainer
from ..trainers.rc3_arguments import Rc3TaskTrainingArguments
from ..trainers.rc3_tasks import RC3_TASKS, EvaluatedModel, Rc3Task, Rc3TaskTrainer, TranslationTask
from ..utils.errors import ModelKindError, RecipeError
from ..utils.languages import language_id
from ..utils.pretrained import load_config, load_model, load_processor
from .data import RecipeData
from .loading import Workflow
from .rc3 import REGION_SIZES, Rc3Builder, Rc3Training, RegionsRecipe, load_regions
from .rc3_task_data import joined, languages_in, read_task_data, texts_of
from .recipe import EMOJI, DataSource, Stage
from .reporting import Reporting

TaskReport = dict[str, Results]  # by test set


class Rc3TaskRecipe(RegionsRecipe):
    """A recipe of fine-tuning: `model.from_pretrained` is trained on all parts of `train`, under any names.

    Args:
        task: `visual-entailment`, `visual-question-answering`, `visual-reasoning`, `image-text-retrieval` or
            `translation`.
        test: the data that the report is about, under any names.
    """

    task: str | None = None
    test: dict[str, DataSource] = {}

    @property
    def task_name(self) -> str | None:
        return self.task

    @property
    def rc3_task(self) -> Rc3Task:
        """The model and the measures of the task."""
        return RC3_TASKS[str(self.task)]


class Rc3TaskData(RecipeData):
    """The data of a task. All parts of `train` are trained on together; the parts of `test` are evaluated apart."""

    recipe: Rc3TaskRecipe

    @cached_property
    def training(self) -> TaskData:
        """All parts of `train` as one."""
        return joined(
            [part for name, source in self.recipe.train.items() for part in self._read(f"train.{name}", source)]
        )

    @cached_property
    def tests(self) -> dict[str, list[TaskData]]:
        """Each test set, in parts that are evaluated separately."""
        return {name: self._read(f"test.{name}", source) for name, source in self.recipe.test.items()}

    @cached_property
    def validation(self) -> TaskData | None:
        source = self.recipe.validation
        return None if source is None else joined(self._read("validation", source))

    @cached_property
    def overlaps(self) -> list[Overlap]:
        if self.validation is None:
            return []
        data = {"train": self.training.corpus}
        is_text_task = isinstance(self.recipe.rc3_task, TranslationTask)
        return corpus_overlaps(self.validation.corpus, images=data, texts=data if is_text_task else {})

    def _read(self, key: str, source: DataSource) -> list[TaskData]:
        return read_task_data(self.recipe.rc3_task.name, source, key)

    @cached_property
    def image_languages(self) -> list[str]:
        """The languages of the texts that are trained on."""
        return languages_in(self.training)

    @property
    def pair_languages(self) -> list[str]:
        return []

    @cached_property
    def unseen_languages(self) -> list[str]:
        """The languages that are tested and not trained on."""
        tested = [tag for parts in self.tests.values() for part in parts for tag in languages_in(part)]
        return [tag for tag in dict.fromkeys(tested) if tag not in self.image_languages]

    @cached_property
    def captions(self) -> dict[str, list[str]]:
        """The texts that are trained on, by language."""
        texts = texts_of(self.training.corpus)
        return {language: texts[language] for language in self.image_languages}

    @cached_property
    def labels(self) -> dict[str, Any]:
        """The configuration's keys of labels, with the data's labels in order; none for a task without labels."""
        label = self.training.corpus.features.get("label")
        if label is None:
            return {}
        return {"id2label": dict(enumerate(label.names)), "label2id": {name: k for k, name in enumerate(label.names)}}

    @property
    def streams(self) -> list[str]:
        return []

    def stage_data(self, stage: Stage) -> TaskData:
        return self.training


class Rc3TaskBuilder(Rc3Builder):
    """Builds the model of a task from a pre-trained RC3. Its labels are those of the data, unless it was trained on
    the same task before and has labels already."""

    starts = (Rc3Config.model_type,)
    recipe: Rc3TaskRecipe
    data: Rc3TaskData  # type: ignore[assignment]  # whose languages are those of its parts

    def make_processor(self) -> ProcessorMixin:
        return load_processor(AutoProcessor, self.start, **self.code)

    def make_model(self, processor: ProcessorMixin) -> PreTrainedModel:
        self._check_languages(processor)
        source, task = self.recipe.model, self.recipe.rc3_task
        config = load_config(self.start, **self.code)
        labels = {} if task.model.__name__ in (config.architectures or []) else self.data.labels
        options = {"attn_implementation": source.attn_implementation} | self.code | labels | source.overrides
        return load_model(task.model, self.start, part=lambda model: model.base_model, **options)

    def _check_languages(self, processor: ProcessorMixin) -> None:
        """Before anything is trained."""
        everything = [self.data.training, *(part for parts in self.data.tests.values() for part in parts)]
        for data in everything:
            for tag in languages_in(data):
                language_id(tag, processor.languages)


class Rc3TaskTraining(Rc3Training):
    """Trains on the task, in one stage."""

    recipe: Rc3TaskRecipe

    trainer_class = Rc3TaskTrainer

    @property
    def tasks(self) -> list[str]:
        """None: the parts of `train` have any names."""
        return []

    def check_tasks(self) -> None:
        task = self.recipe.rc3_task
        if self.recipe.model.from_pretrained is None:
            raise RecipeError(f"model.from_pretrained: {task.name} is fine-tuned from a pre-trained RC3")
        if self.recipe.stages:
            raise RecipeError("stages: fine-tuning on a task has one")
        if self.recipe.test or self.recipe.validation:
            task.check_measures()


class Rc3TaskReporting(Reporting):
    """Reports the task's own measures on the test data."""

    recipe: Rc3TaskRecipe
    data: Rc3TaskData

    reports = ()

    def report(self) -> TaskReport | None:
        """The results of the saved model by test set and language. None for a recipe without test data."""
        if not self.recipe.test:
            return None
        ranks: dict[str, QueryRanks] = {}
        report = self._evaluate(self.data.tests, ranks)
        for name, results in report.items():
            self.measured += measurements(results, dataset=name, command=self.command)
        self.ranks |= ranks
        return report

    def _evaluate(self, sets: Mapping[str, list[TaskData]], ranks: dict[str, QueryRanks] | None = None) -> TaskReport:
        default: Any = Rc3TaskTrainingArguments.per_device_eval_batch_size
        size: int = self.recipe.training.get("per_device_eval_batch_size", default)
        code = {"trust_remote_code": self.trust_remote_code}
        return evaluate_task(self.recipe, sets, self.output, batch_size=size, ranks=ranks, **code)

    def report_results(self, report: TaskReport) -> list[Result]:
        return [
            Result(dataset=name, language=language, scores=scores, command=self.command)
            for name, results in report.items()
            for language, scores in results.items()
        ]

    def validation_results(self, trainer: BabelensTrainer) -> list[Result]:
        """The task's measures of the saved model on the recipe's `validation` data."""
        source, data = self.recipe.validation, self.data.validation
        if source is None or data is None:
            return []
        results = self.report_results(self._evaluate({f"Validation data ({source.source})": [data]}))
        return [replace(result, note=self.validation_note(trainer)) for result in results]

    def card_facts(self, trainer: BabelensTrainer, report: TaskReport | None) -> TaskCardFacts:
        task = self.recipe.rc3_task
        return TaskCardFacts(
            **self.common_facts(trainer),
            task=task.name,
            model_class=task.model.__name__,
            scores=task.metrics,
            labels=self._card_labels(trainer.model.config),
            unseen_languages=self.data.unseen_languages if report else [],
            parameters=trainer.model.num_parameters(),
            results=[*self.report_results(report or {}), *self.validation_results(trainer)],
        )

    def card_sources(self) -> list[CardSource]:
        sources: list[CardSource] = []
        for source in self.recipe.train.values():
            if source.source == EMOJI:
                sources += emoji_sources(source.options.get("vendors", []))
            else:
                given = {"license": source.license, "attribution": source.attribution}
                sources.append(CardSource(name=source.source, role=self.recipe.rc3_task.name, **given))
        return list(dict.fromkeys(sources))

    def _card_labels(self, config: PreTrainedConfig) -> list[str]:
        """The model's labels in their order; none for a task without labels."""
        labels = self.data.labels and config.id2label
        return [labels[index] for index in sorted(labels)]


def evaluate_task(
    recipe: Rc3TaskRecipe,
    sets: Mapping[str, list[TaskData]],
    model: str | Path,
    *,
    batch_size: int,
    ranks: dict[str, QueryRanks] | None = None,
    **loading: Any,
) -> TaskReport:
    """The results of a model of a task.

    Args:
        recipe: a recipe of the task, which names the regions of the images.
        sets: the data by name, such as `Rc3TaskData.tests`.
        model: folder or Hub id of the model.
        batch_size: examples that are computed at a time.
        ranks: a dictionary to which the ranks of the single queries are added, by set and language, such as
            `xvnli/fr`; none of translations.
        loading: arguments of loaders, such as `trust_remote_code`.

    Returns:
        The task's measures in percent, by name of the set and by language.

    Raises:
        ModelKindError: for a model that was not trained on the task.
    """
    task = recipe.rc3_task
    config = load_config(model, **loading)
    trained = config.architectures or []
    if task.model.__name__ not in trained:
        raise ModelKindError(f"{model} is {', '.join(trained)}; {task.name} is the task of {task.model.__name__}")
    task_model = load_model(task.model, model, **loading)
    processor = load_processor(AutoProcessor, model, **loading)
    regions = load_regions(recipe, {name: getattr(config, name) for name in REGION_SIZES}, **loading)
    report: TaskReport = {}
    for name, parts in sets.items():
        report[name] = {}
        for part in parts:
            found: Ranks = {}
            report[name] |= task.evaluate(EvaluatedModel(task_model, processor, regions, batch_size, found), part)
            if ranks is not None:
                ranks |= {f"{name}/{language}": each for language, each in found.items()}
    return report


WORKFLOW = Workflow(
    recipe=Rc3TaskRecipe,
    data=Rc3TaskData,
    builder=Rc3TaskBuilder,
    training=Rc3TaskTraining,
    reporting=Rc3TaskReporting,
    tasks=tuple(RC3_TASKS),
)
