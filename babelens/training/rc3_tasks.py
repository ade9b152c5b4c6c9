"""Recipes that fine-tune a pre-trained RC3 on a task, and report its metrics in each language of the test data. The
data are IGLUE's and Multi30K's files, the emoji benchmark's tasks, or your own captioned images: `source` names the
reader (`xvnli`), and `options` its arguments, such as `{file: data/xvnli/{language}.jsonl}`, a file per language."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any

from datasets import Dataset, concatenate_datasets
from transformers import AutoProcessor, PreTrainedModel, ProcessorMixin

from ..configuration.configuration_rc3 import Rc3Config
from ..data.batching.mixture import TaskData
from ..data.corpus.corpus import Overlap, captions_of, corpus_overlaps, evenly_spaced
from ..data.corpus.loading import load_captions
from ..data.emoji.benchmark import emoji_entailment, emoji_questions, load_emoji
from ..data.readers.coco import load_multi30k
from ..data.readers.iglue import load_answers, load_marvl, load_nlvr2, load_xflickrco, load_xgqa, load_xvnli
from ..evaluation.results import Results as Measured
from ..evaluation.tasks import Ranks, Results
from ..model_cards.facts import DataSource as CardSource, ModelCardFacts, Result
from ..trainers.arguments import Rc3TaskTrainingArguments
from ..trainers.base import BabelensTrainer
from ..trainers.rc3_tasks import RC3_TASKS, Rc3Task, Rc3TaskTrainer, TranslationTask
from ..utils.errors import ModelKindError, RecipeError
from ..utils.language_matching import language_id
from ..utils.pretrained import load_config, load_model, load_processor
from .data import RecipeData
from .rc3 import REGION_SIZES, Rc3Builder, RegionsRecipe, load_regions
from .results import Reporting, emoji_sources
from .schema import EMOJI, DataSource, Stage

TaskReport = dict[str, Results]  # by test set


class Rc3TaskRecipe(RegionsRecipe):
    """A recipe that fine-tunes `model.from_pretrained` on all parts of `train`, which may have any names."""

    task: str | None = None  # a key of `RC3_TASKS`
    test: dict[str, DataSource] = {}  # the data to report on, under any names

    @property
    def task_name(self) -> str | None:
        return self.task

    @property
    def rc3_task(self) -> Rc3Task:
        """The model and the metrics of the task."""
        return RC3_TASKS[str(self.task)]


# ---- Reading data: in parts that are evaluated separately, one for each language that has its own file ----

Reader = Callable[[DataSource], list[TaskData]]
_LANGUAGE = "{language}"


def _by_language(load: Callable[..., Dataset], source: DataSource, *, says_language: bool = False) -> list[TaskData]:
    """Reads a part for each language from its own file; set `says_language` for files that name their language."""
    texts = {name: value for name, value in source.options.items() if isinstance(value, str)}
    named = any(_LANGUAGE in value for value in texts.values())
    if source.languages is None and named:
        raise RecipeError(f"options with {_LANGUAGE} need languages")
    if source.languages is None or (not named and len(source.languages) > 1):
        return [TaskData(load(**source.options), source.languages)]
    parts = []
    for tag in source.languages:
        options = source.options | {name: value.replace(_LANGUAGE, tag) for name, value in texts.items()}
        parts.append(TaskData(load(**({} if says_language else {"language": tag}) | options), [tag]))
    return parts


def _xgqa(answers: str, **options: Any) -> Dataset:
    return load_xgqa(answers=load_answers(answers), **options)


def _few(corpus: Dataset, max_images: int | None) -> Dataset:
    """Selects evenly spread rows: a cross-encoder reads every text with every image, which is slow."""
    return corpus if max_images is None else corpus.select(evenly_spaced(len(corpus), max_images))


def _xflickrco(max_images: int | None = None, **options: Any) -> Dataset:
    return _few(load_xflickrco(**options), max_images)


def _captions(source: DataSource) -> list[TaskData]:
    """Reads a caption corpus: the emoji benchmark, or a source of `load_captions`."""
    options = dict(source.options)
    max_images = options.pop("max_images", None)
    corpus = load_emoji(**options) if source.source == EMOJI else load_captions(source.source, **options)
    return [TaskData(_few(corpus, max_images), source.languages, source.pairs)]


def _multi30k(source: DataSource) -> list[TaskData]:
    if not source.pairs:
        raise RecipeError("pairs: name the languages to translate from and into, such as [[en, de]]")
    languages = list(dict.fromkeys(tag for pair in source.pairs for tag in pair))
    return [TaskData(load_multi30k(languages=languages, **source.options), None, source.pairs)]


def _emoji_task(make: Callable[..., Dataset], source: DataSource, *, named: bool) -> list[TaskData]:
    """A task on the names of the emoji benchmark, or only on its images."""
    if not source.languages:
        raise RecipeError("the emoji benchmark's tasks need languages")
    loading = dict(source.options)
    max_images = loading.pop("max_images", None)
    seed = loading.pop("seed", 0)
    corpus = load_emoji(**{"languages": source.languages if named else ["en"]} | loading)
    return [TaskData(make(_few(corpus, max_images), source.languages, seed=seed), source.languages)]


# Task -> source -> reader; the source "" is any other source.
READERS: dict[str, dict[str, Reader]] = {
    "visual-entailment": {
        "xvnli": partial(_by_language, load_xvnli),
        EMOJI: partial(_emoji_task, emoji_entailment, named=True),
    },
    "visual-question-answering": {
        "xgqa": partial(_by_language, _xgqa),
        EMOJI: partial(_emoji_task, emoji_questions, named=False),
    },
    "visual-reasoning": {
        "nlvr2": partial(_by_language, load_nlvr2),
        "marvl": partial(_by_language, load_marvl, says_language=True),
    },
    "image-text-retrieval": {"xflickrco": partial(_by_language, _xflickrco), "": _captions},
    "translation": {"multi30k": _multi30k, "": _captions},
}


def _joined(parts: list[TaskData]) -> TaskData:
    chosen = [part.languages for part in parts]
    every = [tag for languages in chosen for tag in languages or []]
    pairs = [pair for part in parts for pair in part.pairs or []]
    return TaskData(
        concatenate_datasets([part.corpus for part in parts]),
        None if None in chosen else list(dict.fromkeys(every)),
        list(dict.fromkeys(pairs)) or None,
    )


def _texts_of(corpus: Dataset) -> dict[str, list[str]]:
    texts: dict[str, list[str]] = {}
    if "captions" in corpus.column_names:
        for caption in captions_of(corpus).combine_chunks().flatten().to_pylist():
            texts.setdefault(caption["language"], []).append(caption["text"])
        return texts
    for text, language in zip(corpus["text"], corpus["language"], strict=True):
        texts.setdefault(language, []).append(text)
    return texts


def _languages_in(data: TaskData) -> list[str]:
    if data.pairs:
        return list(dict.fromkeys(tag for pair in data.pairs for tag in pair))
    return data.languages or sorted(_texts_of(data.corpus))


class Rc3TaskData(RecipeData):
    """The data of a task. Training joins the parts of `train`; each part of `test` is evaluated separately."""

    recipe: Rc3TaskRecipe
    pair_languages: list[str] = []
    streams: list[str] = []

    def _read(self, key: str, source: DataSource) -> list[TaskData]:
        task = self.recipe.rc3_task.name
        readers = READERS[task]
        reader = readers.get(source.source, readers.get(""))
        if reader is None:
            raise RecipeError(f"{key}.source: {task} has no {source.source!r}; it has {', '.join(readers)}")
        try:
            return reader(source)
        except TypeError as error:
            raise RecipeError(f"{key}.options: {error}") from error

    @cached_property
    def training(self) -> TaskData:
        """All parts of `train` as one."""
        parts = (self._read(f"train.{name}", source) for name, source in self.recipe.train.items())
        return _joined([*chain.from_iterable(parts)])

    @cached_property
    def tests(self) -> dict[str, list[TaskData]]:
        return {name: self._read(f"test.{name}", source) for name, source in self.recipe.test.items()}

    @cached_property
    def validation(self) -> TaskData | None:
        source = self.recipe.validation
        return None if source is None else _joined(self._read("validation", source))

    @cached_property
    def overlaps(self) -> list[Overlap]:
        if self.validation is None:
            return []
        data = {"train": self.training.corpus}
        is_text_task = isinstance(self.recipe.rc3_task, TranslationTask)
        return corpus_overlaps(self.validation.corpus, images=data, texts=data if is_text_task else {})

    @cached_property
    def image_languages(self) -> list[str]:
        return _languages_in(self.training)

    @cached_property
    def unseen_languages(self) -> list[str]:
        """The languages of the test data that are not in the training data."""
        tested = (_languages_in(part) for part in chain.from_iterable(self.tests.values()))
        return [tag for tag in dict.fromkeys(chain.from_iterable(tested)) if tag not in self.image_languages]

    @cached_property
    def captions(self) -> dict[str, list[str]]:
        texts = _texts_of(self.training.corpus)
        return {language: texts[language] for language in self.image_languages}

    @cached_property
    def labels(self) -> dict[str, Any]:
        """The label keys of the configuration, with the data's labels in order; empty for a task without labels."""
        label = self.training.corpus.features.get("label")
        if label is None:
            return {}
        return {"id2label": dict(enumerate(label.names)), "label2id": {name: k for k, name in enumerate(label.names)}}

    def stage_data(self, stage: Stage) -> TaskData:
        return self.training


# ---- The parts of a run ----


class Rc3TaskReporting(Reporting):
    recipe: Rc3TaskRecipe
    data: Rc3TaskData

    def report(self) -> TaskReport | None:
        """Evaluates the saved model by test set and language; returns None if the recipe has no test data."""
        return self._evaluate(self.data.tests, self.results) if self.recipe.test else None

    def _evaluate(self, sets: Mapping[str, list[TaskData]], results: Measured) -> TaskReport:
        default: Any = Rc3TaskTrainingArguments.per_device_eval_batch_size
        size: int = self.recipe.training.get("per_device_eval_batch_size", default)
        return evaluate_task(self.recipe, sets, self.output, results, batch_size=size, **self.builder.code)

    def report_results(self, report: TaskReport) -> list[Result]:
        return [Result(dataset=name, scores=scores, command=self.command) for name, scores in report.items()]

    def validation_results(self, trainer: BabelensTrainer) -> list[Result]:
        """Evaluates the saved model with the task's metrics on the recipe's `validation` data."""
        source, data = self.recipe.validation, self.data.validation
        if source is None or data is None:
            return []
        report = self._evaluate({f"Validation data ({source.source})": [data]}, Measured(""))
        return [replace(result, note=self.validation_note(trainer)) for result in self.report_results(report)]

    def card_facts(self, trainer: BabelensTrainer, report: TaskReport | None) -> ModelCardFacts:
        task = self.recipe.rc3_task
        labels = self.data.labels and trainer.model.config.id2label
        return ModelCardFacts(
            **self.common_facts(trainer),
            task=task.name,
            model_class=task.model.__name__,
            metrics=task.metrics,
            labels=[labels[index] for index in sorted(labels)],
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


class Rc3TaskBuilder(Rc3Builder):
    """Builds the model of a task from a pre-trained RC3; labels come from the data, unless it has them already."""

    recipe_class = Rc3TaskRecipe
    data_class = Rc3TaskData
    reporting_class = Rc3TaskReporting
    task_names = tuple(RC3_TASKS)
    starts = (Rc3Config.model_type,)
    trainer_class = Rc3TaskTrainer
    tasks: list[str] = []
    recipe: Rc3TaskRecipe
    data: Rc3TaskData  # type: ignore[assignment]  # its languages are the languages of its parts

    def make_model(self, processor: ProcessorMixin) -> PreTrainedModel:
        for data in [self.data.training, *chain.from_iterable(self.data.tests.values())]:
            for tag in _languages_in(data):
                language_id(tag, processor.languages)  # refuses a language before anything is trained
        source, task = self.recipe.model, self.recipe.rc3_task
        config = load_config(self.start, **self.code)
        labels = {} if task.model.__name__ in (config.architectures or []) else self.data.labels
        options = self.attention | self.code | labels | source.overrides
        return load_model(task.model, self.start, part=lambda model: model.base_model, **options)

    def check_tasks(self) -> None:  # the parts of `train` may have any names
        task = self.recipe.rc3_task
        if self.recipe.model.from_pretrained is None:
            raise RecipeError(f"model.from_pretrained: {task.name} is fine-tuned from a pre-trained RC3")
        if self.recipe.stages:
            raise RecipeError("stages: fine-tuning on a task has one")
        if self.recipe.test or self.recipe.validation:
            task.check_measures()


def evaluate_task(
    recipe: Rc3TaskRecipe,
    sets: Mapping[str, list[TaskData]],
    model: str | Path,
    results: Measured,
    *,
    batch_size: int = 64,
    **loading: Any,
) -> TaskReport:
    """Evaluates a model, by its folder or Hub id, on a task, whose recipe names the regions of the images; returns
    its results in percent, by data set and language. `sets` are data sets by name, such as `Rc3TaskData.tests`;
    `results` receives the same numbers, and the ranks of single queries, which translation has not."""
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
            reading: dict[str, Any] = {"regions": regions, "batch_size": batch_size, "ranks": found}
            scores = task.evaluate(task_model, processor, part, **reading)
            report[name] |= scores
            results.add(scores, found, dataset=name)
    return report
