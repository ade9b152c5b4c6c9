"""Recipes that fine-tune a pre-trained RC3 on a task, and say how well it does in each language of the test data."""

from functools import cached_property
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import AutoProcessor, PreTrainedConfig, PreTrainedModel, ProcessorMixin

from ..configuration.configuration_rc3 import Rc3Config
from ..configuration.errors import RecipeError
from ..configuration.languages import language_id
from ..configuration.pretrained import load_config, load_model, load_processor
from ..data.batching.task_data import TaskData
from ..data.corpus.corpus import captions_of
from ..evaluation.tasks import Results
from ..model_cards.cards import write_card
from ..model_cards.emoji import emoji_sources
from ..model_cards.facts import DataSource as CardSource, Result, training_run
from ..model_cards.licenses import OTHER
from ..model_cards.task_facts import TaskCardFacts
from ..trainers.rc3_tasks import RC3_TASKS, Rc3Task, Rc3TaskTrainer
from .rc3 import Rc3Run
from .rc3_task_data import joined, read_task_data
from .recipe import EMOJI, DataSource, Stage
from .record import corpus_digest

TaskReport = dict[str, Results]  # by test set


class Rc3TaskRun(Rc3Run):
    """A recipe with a `task`: `model.from_pretrained` is trained on all of `train`, and the report is about `test`.

    The answers of a task with labels are those of its data, in their order, unless the model comes from the same task
    and has its own.
    """

    sections = ("task", "test", "regions", "backbone")
    sections_of_new = ()
    starts = (Rc3Config.model_type,)

    @cached_property
    def task(self) -> Rc3Task:
        if self.recipe.task not in RC3_TASKS:
            raise RecipeError(f"task: there is no {self.recipe.task!r}; there are {', '.join(RC3_TASKS)}")
        return RC3_TASKS[self.recipe.task]

    # ---- Data ----

    @cached_property
    def training_data(self) -> TaskData:
        """All of `train` as one."""
        return joined(
            [part for name, source in self.recipe.train.items() for part in self._read("train", name, source)]
        )

    @cached_property
    def test_data(self) -> dict[str, list[TaskData]]:
        """Each test set, in parts that are evaluated separately."""
        return {name: self._read("test", name, source) for name, source in self.recipe.test.items()}

    def _read(self, key: str, name: str, source: DataSource) -> list[TaskData]:
        return read_task_data(self.task.name, source, f"{key}.{name}")

    @cached_property
    def image_languages(self) -> list[str]:
        """Of the texts that are trained on."""
        return _languages_of(self.training_data)

    @property
    def pair_languages(self) -> list[str]:
        return []

    @cached_property
    def captions(self) -> dict[str, list[str]]:
        """The texts that are trained on, by language."""
        found = _texts_of(self.training_data.corpus)
        return {language: found[language] for language in self.image_languages}

    def data_digests(self) -> dict[str, str]:
        return {"train": corpus_digest(self.training_data.corpus)}

    # ---- Parts ----

    @property
    def _trainer_class(self) -> type[Rc3TaskTrainer]:
        return Rc3TaskTrainer

    def _check_tasks(self) -> None:
        if self.recipe.model.from_pretrained is None:
            raise RecipeError(f"model.from_pretrained: {self.task.name} is fine-tuned from a pre-trained RC3")
        if self.recipe.stages:
            raise RecipeError("stages: fine-tuning on a task has one")
        if self.recipe.test or self.recipe.validation:
            self.task.check_measures()

    def make_processor(self) -> ProcessorMixin:
        return load_processor(AutoProcessor, self.start, **self.code)

    def make_model(self, processor: ProcessorMixin) -> PreTrainedModel:
        self._check_languages(processor)
        source = self.recipe.model
        config = load_config(self.start, **self.code)
        labels = {} if self.task.model.__name__ in (config.architectures or []) else self._labels()
        options = {"attn_implementation": source.attn_implementation} | self.code | labels | source.overrides
        return load_model(self.task.model, self.start, part=lambda model: model.base_model, **options)

    def _labels(self) -> dict[str, Any]:
        label = self.training_data.corpus.features.get("label")
        if label is None:
            return {}
        return {"id2label": dict(enumerate(label.names)), "label2id": {name: k for k, name in enumerate(label.names)}}

    def _check_languages(self, processor: ProcessorMixin) -> None:
        """Before anything is trained."""
        everything = [self.training_data, *(part for parts in self.test_data.values() for part in parts)]
        for data in everything:
            for tag in _languages_of(data):
                language_id(tag, processor.languages)

    def stage_data(self, stage: Stage) -> TaskData:
        return self.training_data

    def validation_data(self) -> TaskData | None:
        source = self.recipe.validation
        return None if source is None else joined(read_task_data(self.task.name, source, "validation"))

    # ---- Results ----

    def report(self) -> TaskReport | None:
        """How well the saved model does, by test set and language; in `evaluation/<task>.json` too."""
        if not self.test_data:
            return None
        report = self.evaluate(self.output)
        self._write_json(f"{self.task.name}.json", report)
        return report

    def evaluate(self, model: str | Path, *, batch_size: int | None = None, **loading: Any) -> TaskReport:
        """The numbers of a model of the task, a folder or Hub id, on the recipe's test data.

        Raises:
            TypeError: for a model that was not trained on the task.
        """
        trained = load_config(model, **loading).architectures or []
        if self.task.model.__name__ not in trained:
            raise TypeError(
                f"{model} is {', '.join(trained)}; {self.task.name} is the task of {self.task.model.__name__}"
            )
        task_model = load_model(self.task.model, model, **loading)
        processor = load_processor(AutoProcessor, model, **loading)
        size = batch_size or self._arguments(self.stages[0]).per_device_eval_batch_size
        regions = self.trainer_options()["regions"]
        report: TaskReport = {}
        for name, parts in self.test_data.items():
            report[name] = {}
            for part in parts:
                report[name] |= self.task.evaluate(task_model, processor, part, regions, size)
        return report

    def write_card(self, trainer: Rc3TaskTrainer, report: TaskReport | None) -> Path:
        sources, start = self._card_sources(), self.recipe.model.from_pretrained or ""
        is_unknown = any(source.license == "unknown" for source in sources)
        facts = TaskCardFacts(
            model_name=self.output.resolve().name,
            method=self.recipe.method,
            task=self.task.name,
            model_class=self.task.model.__name__,
            scores=self.task.metrics,
            labels=self._card_labels(trainer.model.config),
            image_languages=self.image_languages,
            unseen_languages=self._unseen_languages() if report else [],
            training_data=sources,
            license=self.recipe.license or (OTHER if is_unknown else None),
            license_name=self.recipe.license_name,
            parameters=trainer.model.num_parameters(),
            base_model=None if Path(start).is_dir() else start,  # what is not on the Hub cannot be linked to
            results=[
                Result(dataset=name, language=language, scores=scores, command=self.command)
                for name, results in (report or {}).items()
                for language, scores in results.items()
            ],
            run=training_run(trainer.args, trainer.state.log_history, command=self.command),
        )
        return write_card(self.output, facts)

    def _card_labels(self, config: PreTrainedConfig) -> list[str]:
        """None where the model says no labels."""
        labels = self._labels() and config.id2label
        return [labels[number] for number in sorted(labels)]

    def _unseen_languages(self) -> list[str]:
        """Those that were tested and not trained on."""
        tested = [tag for parts in self.test_data.values() for part in parts for tag in _languages_of(part)]
        return [tag for tag in dict.fromkeys(tested) if tag not in self.image_languages]

    def _card_sources(self) -> list[CardSource]:
        sources: list[CardSource] = []
        for source in self.recipe.train.values():
            if source.source == EMOJI:
                sources += emoji_sources(source.options.get("vendors", []))
            else:
                given = {"license": source.license, "role": self.task.name, "attribution": source.attribution}
                sources.append(CardSource(name=source.source, **given))
        return list(dict.fromkeys(sources))


def _languages_of(data: TaskData) -> list[str]:
    if data.pairs:
        return list(dict.fromkeys(tag for pair in data.pairs for tag in pair))
    return data.languages or sorted(_texts_of(data.corpus))


def _texts_of(corpus: Dataset) -> dict[str, list[str]]:
    """The texts of a task's data, or of a caption corpus, by language."""
    found: dict[str, list[str]] = {}
    if "captions" in corpus.column_names:
        for caption in captions_of(corpus).combine_chunks().flatten().to_pylist():
            found.setdefault(caption["language"], []).append(caption["text"])
        return found
    for text, language in zip(corpus["text"], corpus["language"], strict=True):
        found.setdefault(language, []).append(text)
    return found
