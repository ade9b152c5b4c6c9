"""The data of a recipe: the corpora of its tasks, the languages in them, and the examples of each stage."""

from collections.abc import Collection, Iterable
from functools import cached_property
from typing import Any, ClassVar

from datasets import Dataset, IterableDataset

from ..configuration.configuration_two_tower import IMAGE_TEXT, TEXT_TEXT, TRIPLET
from ..data.batching.mixture import TaskData, sample_of_stream
from ..data.batching.texts import add_translations
from ..data.batching.views import image_text_pairs, translation_pairs
from ..data.corpus.corpus import Overlap, captions_of, corpus_overlaps, languages_of
from ..utils.errors import CorpusError, RecipeError
from .schema import Recipe, Stage, builder_of, load_recipe


class RecipeData:
    """Reads the data that a recipe names, on first use."""

    # The tasks whose data are translations, without images.
    translation_tasks: ClassVar[tuple[str, ...]] = (TEXT_TEXT,)
    # The tasks whose data is selected by pairs of languages.
    paired_tasks: ClassVar[tuple[str, ...]] = (TEXT_TEXT, TRIPLET)
    # True if a language may be paired with itself.
    pairs_with_itself: ClassVar[bool] = False
    # True if this pair is two captions of an image rather than a text with itself.
    co_captions: ClassVar[bool] = True

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe

    # ---- Corpora ----

    @cached_property
    def corpora(self) -> dict[str, Dataset | IterableDataset]:
        train = self.recipe.train
        found = {task: source.load(translations=task in self.translation_tasks) for task, source in train.items()}
        for task, source in train.items():
            if source.translations is not None:
                chosen: dict[str, Any] = {"languages": source.languages, "pairs": train[source.translations].pairs}
                try:
                    found[task] = add_translations(found[task], found[source.translations], **chosen)
                except CorpusError as error:
                    raise RecipeError(f"train.{task}.translations: {error}; or set it to null") from error
        return found

    @cached_property
    def streams(self) -> list[str]:
        """The tasks whose corpus is a stream."""
        return [task for task, corpus in self.corpora.items() if isinstance(corpus, IterableDataset)]

    @cached_property
    def captions(self) -> dict[str, list[str]]:
        """The distinct captions of all corpora that are not streams, by language."""
        captions: dict[str, dict[str, None]] = {}
        for corpus in (corpus for task, corpus in self.corpora.items() if task not in self.streams):
            for caption in captions_of(corpus).combine_chunks().flatten().to_pylist():
                captions.setdefault(caption["language"], {}).setdefault(caption["text"])
        return {language: list(captions[language]) for language in sorted(captions)}

    def texts(self, sample: int) -> dict[str, list[str]]:
        """Returns `captions` and the captions of `sample` rows of each stream, spread evenly over its shards."""
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
        source = self.recipe.validation
        return source and source.load()

    @cached_property
    def overlaps(self) -> list[Overlap]:
        """Images and texts of the validation data that are also in the training data. Streams are not compared."""
        if self.validation is None:
            return []
        texts = {task: corpus for task, corpus in self.corpora.items() if task in self.translation_tasks}
        images = {task: corpus for task, corpus in self.corpora.items() if task not in texts}
        return corpus_overlaps(self.validation, images=images, texts=texts)

    # ---- Languages ----

    @cached_property
    def image_languages(self) -> list[str]:
        """The languages that have captioned images in any stage of training."""
        found: list[str] = []
        for stage in self.recipe.all_stages:
            for task in stage.tasks:
                if task not in self.translation_tasks:
                    found += stage.languages or self.languages_of_task(task)
        return list(dict.fromkeys(found))

    @cached_property
    def pair_languages(self) -> list[str]:
        """The languages that have only translations."""
        paired = [tag for task in self.recipe.train for tag in self.languages_of_task(task)]
        return [tag for tag in dict.fromkeys(paired) if tag not in self.image_languages]

    @property
    def readable_languages(self) -> list[str] | None:
        """The languages whose texts the trained model can read; None for any."""
        return None

    def languages_of_task(self, task: str) -> list[str]:
        """Returns the languages of a task's examples. For a stream they are unknown, so the recipe must name them."""
        source = self.recipe.train[task]
        if source.pairs:
            return list(dict.fromkeys(tag for pair in source.pairs for tag in pair))
        streamed = task in self.streams
        if source.languages and (streamed or not source.translations):
            added = self._translated_into(source.languages, source.translations) if source.translations else []
            return list(dict.fromkeys([*source.languages, *added]))
        if streamed:
            raise RecipeError(f"train.{task}: the languages of a stream are not known in advance: name them")
        return list(languages_of(self.corpora[task]))

    def _translated_into(self, tags: list[str], task: str) -> list[str]:
        """Returns the languages into which a task's data translates the languages `tags`."""
        groups: Iterable[Collection[str]] | None = self.recipe.train[task].pairs
        if groups is None:
            rows = captions_of(self.corpora[task]).to_pylist()
            groups = sorted({tuple(sorted({caption["language"] for caption in row})) for row in rows})
        return [tag for group in groups if not {*tags}.isdisjoint(group) for tag in group]

    # ---- Examples ----

    def task_data(self, task: str, stage: Stage) -> TaskData:
        source = self.recipe.train[task]
        # With `translations`, `languages` has already chosen the captions; translations are in other languages.
        languages = None if source.translations is not None else source.languages
        if task not in self.translation_tasks:
            languages = stage.languages or languages
        return TaskData(self.corpora[task], languages, source.pairs)

    def stage_data(self, stage: Stage) -> Any:
        return {task: self.task_data(task, stage) for task in stage.tasks}

    def count_examples(self, task: str, stage: Stage) -> int | None:
        """Counts the examples of a task in a stage; None if only the model can count them."""
        data = self.task_data(task, stage)
        if task == IMAGE_TEXT:
            return len(image_text_pairs(data.corpus, data.languages))
        if task == TEXT_TEXT:
            return len(translation_pairs(data.corpus, data.pairs, co_captions=self.co_captions))
        return None


class MuralData(RecipeData):
    pairs_with_itself = True  # two captions of an image


def recipe_data(name: str) -> RecipeData:
    """Returns the data of a recipe, as its method reads it."""
    recipe = load_recipe(name)
    data: RecipeData = builder_of(recipe.method, recipe.task_name).data_class(recipe)
    return data
