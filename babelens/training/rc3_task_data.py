"""The data of RC3's tasks as recipes name them: IGLUE's and Multi30K's files, the emoji benchmark's tasks, and
captioned images of one's own.

    source: xvnli                                    # which reader
    options: {file: data/xvnli/{language}.jsonl}     # its arguments; one file for each of
    languages: [ar, es, fr, ru]
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from datasets import Dataset, concatenate_datasets

from ..data.batching.mixture import TaskData
from ..data.corpus.corpus import captions_of
from ..data.corpus.loading import load_captions
from ..data.corpus.sampling import evenly_spread
from ..data.emoji.benchmark import load_emoji
from ..data.emoji.tasks import emoji_entailment, emoji_questions
from ..data.readers.iglue import load_answers, load_marvl, load_nlvr2, load_xflickrco, load_xgqa, load_xvnli
from ..data.readers.multi30k import load_multi30k
from ..utils.errors import RecipeError
from .recipe import EMOJI, DataSource

_LANGUAGE = "{language}"
_TASK_OPTIONS = ("hard_negatives", "seed")  # of the emoji benchmark's tasks; other options are `load_emoji`'s

# Reads a source, in parts that are evaluated separately.
Reader = Callable[[DataSource], list[TaskData]]


def read_task_data(task: str, source: DataSource, where: str) -> list[TaskData]:
    """The data that a source names, in parts: one for each language where it has a file for each.

    Args:
        task: a name of `RC3_TASKS`.
        source: `languages` and `pairs` are those to train on, or to evaluate.
        where: the recipe's key, for errors.

    Raises:
        RecipeError: for a source or options that the task does not have.
        CorpusError and its kin: for data that cannot be used.
    """
    readers = READERS[task]
    reader = readers.get(source.source, readers.get(""))
    if reader is None:
        raise RecipeError(
            f"{where}.source: {task} has no {source.source!r}; it has {', '.join(filter(None, readers))}"
        )
    try:
        return reader(source)
    except TypeError as error:
        raise RecipeError(f"{where}.options: {error}") from error


def joined(parts: list[TaskData]) -> TaskData:
    """All parts as one, to train on."""
    if len(parts) == 1:
        return parts[0]
    chosen = [part.languages for part in parts]
    every = [tag for languages in chosen for tag in languages or []]
    pairs = [pair for part in parts for pair in part.pairs or []]
    return TaskData(
        concatenate_datasets([part.corpus for part in parts]),
        None if None in chosen else list(dict.fromkeys(every)),
        list(dict.fromkeys(pairs)) or None,
    )


def languages_in(data: TaskData) -> list[str]:
    """The languages of a task's data that are trained on or evaluated."""
    if data.pairs:
        return list(dict.fromkeys(tag for pair in data.pairs for tag in pair))
    return data.languages or sorted(texts_of(data.corpus))


def texts_of(corpus: Dataset) -> dict[str, list[str]]:
    """The texts of a task's data, or of a caption corpus, by language."""
    texts: dict[str, list[str]] = {}
    if "captions" in corpus.column_names:
        for caption in captions_of(corpus).combine_chunks().flatten().to_pylist():
            texts.setdefault(caption["language"], []).append(caption["text"])
        return texts
    for text, language in zip(corpus["text"], corpus["language"], strict=True):
        texts.setdefault(language, []).append(text)
    return texts


def _by_language(load: Callable[..., Dataset], source: DataSource, *, says_language: bool) -> list[TaskData]:
    """A part for each language, read from a file of its own; `says_language` is for files that name theirs."""
    named = any(_LANGUAGE in value for value in source.options.values() if isinstance(value, str))
    if source.languages is None and named:
        raise RecipeError(f"options with {_LANGUAGE} need languages")
    if source.languages is None or (not named and len(source.languages) > 1):
        return [TaskData(load(**source.options), source.languages)]
    parts = []
    for language in source.languages:
        options = {
            name: value.replace(_LANGUAGE, language) if isinstance(value, str) else value
            for name, value in source.options.items()
        }
        told = {} if says_language else {"language": language}
        parts.append(TaskData(load(**told | options), [language]))
    return parts


def _xgqa(answers: str, **options: Any) -> Dataset:
    return load_xgqa(answers=load_answers(answers), **options)


def _few(corpus: Dataset, max_images: int | None) -> Dataset:
    """Some of the rows, evenly spread: a cross-encoder reads every text with every image, which takes long."""
    return corpus if max_images is None else corpus.select(evenly_spread(len(corpus), max_images))


def _xflickrco(max_images: int | None = None, **options: Any) -> Dataset:
    return _few(load_xflickrco(**options), max_images)


def _captions(source: DataSource) -> list[TaskData]:
    """A caption corpus: the emoji benchmark, or what `load_captions` takes."""
    options = dict(source.options)
    max_images = options.pop("max_images", None)
    corpus = load_emoji(**options) if source.source == EMOJI else load_captions(source.source, **options)
    return [TaskData(_few(corpus, max_images), source.languages, source.pairs)]


def _multi30k(source: DataSource) -> list[TaskData]:
    if not source.pairs:
        raise RecipeError("pairs: name the languages to translate from and into, such as [[en, de]]")
    languages = list(dict.fromkeys(tag for pair in source.pairs for tag in pair))
    corpus = load_multi30k(languages=languages, **source.options)
    return [TaskData(corpus, None, source.pairs)]


def _emoji_task(make: Callable[..., Dataset], source: DataSource, *, named: bool) -> list[TaskData]:
    """A task of the emoji benchmark's names, or of its images alone."""
    if not source.languages:
        raise RecipeError("the emoji benchmark's tasks need languages")
    loading = dict(source.options)
    max_images = loading.pop("max_images", None)
    own = {name: loading.pop(name) for name in _TASK_OPTIONS if name in loading}
    corpus = load_emoji(**{"languages": source.languages if named else ["en"]} | loading)
    return [TaskData(make(_few(corpus, max_images), source.languages, **own), source.languages)]


# Task -> source -> reader; the source "" stands for any other.
READERS: dict[str, dict[str, Reader]] = {
    "visual-entailment": {
        "xvnli": partial(_by_language, load_xvnli, says_language=False),
        EMOJI: partial(_emoji_task, emoji_entailment, named=True),
    },
    "visual-question-answering": {
        "xgqa": partial(_by_language, _xgqa, says_language=False),
        EMOJI: partial(_emoji_task, emoji_questions, named=False),
    },
    "visual-reasoning": {
        "nlvr2": partial(_by_language, load_nlvr2, says_language=False),
        "marvl": partial(_by_language, load_marvl, says_language=True),
    },
    "image-text-retrieval": {
        "xflickrco": partial(_by_language, _xflickrco, says_language=False),
        EMOJI: _captions,
        "": _captions,
    },
    "translation": {"multi30k": _multi30k, EMOJI: _captions, "": _captions},
}
