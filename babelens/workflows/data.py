"""The data of a recipe: the corpora of its tasks, the languages in them, and the examples of each stage."""

import hashlib
import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset, Image, IterableDataset

from ..configuration.errors import ChangedRunError, CorpusError, RecipeError
from ..configuration.strict_config import IMAGE_TEXT, TEXT_TEXT, TRIPLET
from ..data.batching.added_translations import add_translations
from ..data.batching.mixture import TaskData
from ..data.batching.streams import sample_of_stream
from ..data.batching.views import image_text_pairs, translation_pairs
from ..data.corpus.corpus import captions_of, languages_of
from ..data.corpus.overlap import Overlap, corpus_overlaps
from .recipe import Recipe, Stage
from .recipe_file import abbreviated


class RecipeData:
    """Reads the data that a recipe names; each corpus is read when it is first asked for.

    Args:
        recipe: the recipe.
    """

    # The tasks whose data are translations, without images.
    translation_tasks: ClassVar[tuple[str, ...]] = (TEXT_TEXT,)
    # The tasks whose data are taken by pairs of languages.
    paired_tasks: ClassVar[tuple[str, ...]] = (TEXT_TEXT, TRIPLET)
    # Whether a language may be its own translation.
    pairs_with_itself: ClassVar[bool] = False

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self._loaded: dict[str, Dataset | IterableDataset] = {}

    # ---- Corpora ----

    @cached_property
    def corpora(self) -> dict[str, Dataset | IterableDataset]:
        """The corpus of each task."""
        return {task: self._corpus(task) for task in self.recipe.train}

    def _corpus(self, task: str) -> Dataset | IterableDataset:
        if task not in self._loaded:
            self._loaded[task] = self._load(task)
        return self._loaded[task]

    def _load(self, task: str) -> Dataset | IterableDataset:
        source = self.recipe.train[task]
        corpus = source.load(translations=task in self.translation_tasks)
        if source.translations is not None:
            pairs = self.recipe.train[source.translations].language_pairs
            try:
                return add_translations(corpus, self._corpus(source.translations), languages=source.tags, pairs=pairs)
            except CorpusError as error:
                raise RecipeError(f"train.{task}.translations: {error}; or set it to null") from error
        if source.translated is not None:
            return source.translated.apply(corpus, f"train.{task}", only=self._named_languages(task))
        return corpus

    def _named_languages(self, task: str) -> set[str] | None:
        """The languages that the recipe names for a task, in any stage; None where it takes those of the data."""
        source, stages = self.recipe.train[task], [stage for stage in self.recipe.all_stages if task in stage.tasks]
        if source.language_pairs is not None:
            return {tag for pair in source.language_pairs for tag in pair}
        named = [source.tags if task in self.translation_tasks else stage.tags or source.tags for stage in stages]
        return None if None in named else {tag for tags in named for tag in tags or ()}

    @cached_property
    def streams(self) -> list[str]:
        """The tasks whose corpus is a stream."""
        return [task for task, corpus in self.corpora.items() if isinstance(corpus, IterableDataset)]

    @cached_property
    def captions(self) -> dict[str, list[str]]:
        """The captions of all corpora that are no streams, by language; a caption of several rows is listed once."""
        captions: dict[str, dict[str, None]] = {}
        for corpus in (corpus for task, corpus in self.corpora.items() if task not in self.streams):
            for caption in captions_of(corpus).combine_chunks().flatten().to_pylist():
                captions.setdefault(caption["language"], {}).setdefault(caption["text"])
        return {language: list(captions[language]) for language in sorted(captions)}

    def texts(self, sample: int) -> dict[str, list[str]]:
        """The captions of all corpora, by language, as `captions`; of each stream those of a sample of its rows.

        Args:
            sample: the number of rows of each stream, spread evenly over its shards.
        """
        if not self.streams:
            return self.captions
        texts = {language: dict.fromkeys(captions) for language, captions in self.captions.items()}
        for task in self.streams:
            languages = self.languages_of_task(task)
            for row in sample_of_stream(self.corpora[task].select_columns("captions"), sample):
                for caption in row["captions"]:
                    if caption["language"] in languages:
                        texts.setdefault(caption["language"], {}).setdefault(caption["text"])
        return {language: list(texts[language]) for language in sorted(texts)}

    @cached_property
    def validation(self) -> Dataset | None:
        """The data on which the model is evaluated during training; None when the recipe names none."""
        source = self.recipe.validation
        if source is None or source.translated is None:
            return source and source.load()
        return source.translated.apply(source.load(), "validation")

    @cached_property
    def overlaps(self) -> list[Overlap]:
        """What of the validation data is in the training data: of its images, and of its texts in the data of text
        tasks. A stream is not compared."""
        if self.validation is None:
            return []
        texts = {task: corpus for task, corpus in self.corpora.items() if task in self.translation_tasks}
        images = {task: corpus for task, corpus in self.corpora.items() if task not in texts}
        return corpus_overlaps(self.validation, images=images, texts=texts)

    def digests(self) -> dict[str, str]:
        """The digest of each corpus that is no stream, by the recipe's key: other data have other digests."""
        at_hand = (task for task in self.corpora if task not in self.streams)
        return {f"train.{task}": corpus_digest(self.corpora[task]) for task in at_hand}

    # ---- Languages ----

    @cached_property
    def image_languages(self) -> list[str]:
        """The languages that have captioned images in any stage of training."""
        of_stages = (
            stage.tags or self.languages_of_task(task)
            for stage in self.recipe.all_stages
            for task in stage.tasks
            if task not in self.translation_tasks
        )
        return list(dict.fromkeys(tag for languages in of_stages for tag in languages))

    @cached_property
    def pair_languages(self) -> list[str]:
        """The languages that have translations only."""
        paired = [tag for task in self.recipe.train for tag in self.languages_of_task(task)]
        return [tag for tag in dict.fromkeys(paired) if tag not in self.image_languages]

    @property
    def readable_languages(self) -> list[str] | None:
        """The languages whose texts the trained model can read; None for any."""
        return None

    def languages_of_task(self, task: str) -> list[str]:
        """The languages of a task's examples.

        Raises:
            RecipeError: for a stream whose languages the recipe does not name.
        """
        source = self.recipe.train[task]
        if source.language_pairs:
            return list(dict.fromkeys(tag for pair in source.language_pairs for tag in pair))
        streamed = task in self.streams
        if source.tags and (streamed or not source.translations):
            added = self._translated_into(source.tags, source.translations) if source.translations else []
            return list(dict.fromkeys([*source.tags, *added]))
        if streamed:
            raise RecipeError(f"train.{task}: a stream does not tell its languages beforehand: name them in languages")
        return list(languages_of(self.corpora[task]))

    def _translated_into(self, tags: list[str], task: str) -> list[str]:
        """The languages into which the translations of a task translate some languages."""
        groups: Iterable[Collection[str]] | None = self.recipe.train[task].language_pairs
        if groups is None:
            rows = captions_of(self.corpora[task]).to_pylist()
            groups = sorted({tuple(sorted({caption["language"] for caption in row})) for row in rows})
        return [tag for group in groups if not {*tags}.isdisjoint(group) for tag in group]

    # ---- Examples ----

    def task_data(self, task: str, stage: Stage) -> TaskData:
        """The corpus of a task in a stage, with the languages that are taken of it."""
        source = self.recipe.train[task]
        # With `translations`, `languages` has chosen the captions already; translations are in other languages.
        languages = None if source.translations is not None else source.tags
        if task not in self.translation_tasks:
            languages = stage.tags or languages
        return TaskData(self.corpora[task], languages, source.language_pairs)

    def stage_data(self, stage: Stage) -> Any:
        """The `train_dataset` of the trainer in a stage."""
        return {task: self.task_data(task, stage) for task in stage.tasks}

    def count_examples(self, task: str, stage: Stage) -> int | None:
        """The number of examples that a task has in a stage; None where only the model can count them."""
        data = self.task_data(task, stage)
        if task == IMAGE_TEXT:
            return len(image_text_pairs(data.corpus, data.languages))
        return len(translation_pairs(data.corpus, data.pairs, co_captions=True)) if task == TEXT_TEXT else None


# ---- The record of a run's beginning, kept beside its checkpoints: its settings, and digests of its data ----
#
# A run that is resumed is compared with it: other data would be read with a vocabulary that was made for the
# first, or would train another model.

logger = logging.getLogger(__name__)

RECORD = "run.json"
_IMAGES = 1000  # at most, of a corpus, that are read for its digest


@dataclass(frozen=True)
class RunRecord:
    """The settings and data with which a run began.

    Args:
        settings: the settings by dotted keys.
        data: the digests of the data by name.
    """

    settings: Mapping[str, Any]
    data: Mapping[str, str]

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        content = {"settings": self.settings, "data": self.data}
        (folder / RECORD).write_text(json.dumps(content, indent=1, default=str), encoding="utf-8")

    def check(self, folder: Path, *, may_change: Callable[[str], bool] = lambda key: False) -> None:
        """Compares this record with that of the run in `folder`.

        Args:
            folder: the run's folder of checkpoints.
            may_change: whether a setting may have changed; a warning names each that has.

        Raises:
            ChangedRunError: when data have changed, or settings that may not change.
        """
        path = folder / RECORD
        if not path.is_file():  # of an earlier version
            logger.warning("%s does not say with what data the run began: it is taken to be the same", folder)
            return
        began = json.loads(path.read_text(encoding="utf-8"))
        settings = json.loads(json.dumps(self.settings, default=str))
        advice = f"Bring back what it was, or begin anew in another folder than {folder.parent}"
        for name in sorted(began["data"].keys() | self.data.keys()):
            if began["data"].get(name) != self.data.get(name):
                raise ChangedRunError(f"{name}: the data are not those that the run began with. {advice}")
        for key in sorted(began["settings"].keys() | settings.keys()):
            then, now = began["settings"].get(key), settings.get(key)
            if then == now:
                continue
            if not may_change(key):
                raise ChangedRunError(
                    f"{key} was {abbreviated(then)} when the run began, and is {abbreviated(now)}. {advice}"
                )
            logger.warning("%s was %s when the run began, and goes on as %s", key, abbreviated(then), abbreviated(now))


def flattened(settings: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Nested mappings as one mapping with dotted keys; an empty mapping is a value."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        key = f"{where}.{name}" if where else str(name)
        flat |= flattened(value, key) if isinstance(value, Mapping) and value else {key: value}
    return flat


def corpus_digest(corpus: Dataset) -> str:
    """The digest of a corpus: of all texts, identifiers and labels, and of up to 1000 images, evenly spread; the same
    however the corpus is stored."""
    digest = _Digest()
    images = [name for name, feature in corpus.features.items() if isinstance(feature, Image)]
    others = [name for name in corpus.column_names if name not in images]
    table = corpus.select_columns(others).with_format("arrow")[:]
    for name in others:
        for chunk in table[name].chunks:
            digest.add_array(name, chunk)
    rows: Sequence[int] = np.linspace(0, len(corpus) - 1, min(len(corpus), _IMAGES), dtype=int).tolist()
    for name in images:
        stored = corpus.select_columns(name).select(rows).cast_column(name, Image(decode=False))
        for cell in stored[name]:
            digest.add(name, _encoded(cell))
    return digest.hexdigest()


def file_digest(path: str | Path) -> str:
    """The SHA-256 digest of a file."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _encoded(cell: Mapping[str, Any] | None) -> bytes:
    """The bytes of an image as it is stored; none for one that cannot be read, which is refused when it is used."""
    if cell is None:
        return b""
    if cell["bytes"] is not None:
        return cell["bytes"]
    try:
        return Path(cell["path"]).read_bytes()
    except OSError:
        return b""


class _Digest:
    """The digest of Arrow arrays by their values: chunks and slices make no difference."""

    def __init__(self) -> None:
        self.parts: dict[str, Any] = {}

    def add(self, part: str, content: bytes | memoryview) -> None:
        self.parts.setdefault(part, hashlib.sha256()).update(content)

    def add_array(self, part: str, array: pa.Array) -> None:
        self.add(f"{part} valid", array.is_valid().to_numpy(zero_copy_only=False).tobytes())
        if pa.types.is_struct(array.type):
            for field, values in zip(array.type, array.flatten(), strict=True):
                self.add_array(f"{part}.{field.name}", values)
        elif pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
            self._add_numbers(f"{part} length", pc.list_value_length(array))
            self.add_array(f"{part}[]", array.flatten())
        elif pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
            self._add_numbers(f"{part} length", pc.binary_length(array))
            self.add(part, "".join(array.drop_null().to_pylist()).encode("utf-8", "surrogatepass"))
        elif pa.types.is_primitive(array.type):
            self._add_numbers(part, array)
        else:
            self.add(part, repr(array.to_pylist()).encode())

    def _add_numbers(self, part: str, numbers: pa.Array) -> None:
        self.add(part, pc.drop_null(numbers).to_numpy(zero_copy_only=False).astype(np.float64).tobytes())

    def hexdigest(self) -> str:
        lines = (f"{part} {hashing.hexdigest()}\n" for part, hashing in sorted(self.parts.items()))
        return hashlib.sha256("".join(lines).encode()).hexdigest()
