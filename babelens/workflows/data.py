"""What a recipe's run knows of its data: the corpora of its tasks, and the languages in them."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from datasets import Dataset, IterableDataset

from ..configuration.errors import RecipeError
from ..configuration.tasks import IMAGE_TEXT, TEXT_TEXT, TRIPLET
from ..data.batching.task_data import TaskData
from ..data.batching.views import image_text_pairs, translation_pairs
from ..data.corpus.corpus import captions_of, languages_of
from .recipe import EMOJI, Recipe, Stage
from .record import corpus_digest


@dataclass
class RecipeData:
    """A recipe that is run into `output`.

    Args:
        recipe: what to do.
        output: the model folder; checkpoints lie in `output/checkpoints`, reports in `output/evaluation`.
        command: what was typed, for the card.
        trust_remote_code: run code that comes with the models that the recipe names.
    """

    recipe: Recipe
    output: Path
    command: str
    trust_remote_code: bool = False
    # Whether transformers' pipelines, which read texts with a tokenizer, take the model.
    in_pipelines: ClassVar[bool] = True
    # The tasks whose data are translations, without images.
    translation_tasks: ClassVar[tuple[str, ...]] = (TEXT_TEXT,)
    # The tasks whose data are taken by pairs of languages.
    paired_tasks: ClassVar[tuple[str, ...]] = (TEXT_TEXT, TRIPLET)
    # Which of the recipe's sections are read, and which only for a model that is new.
    sections: ClassVar[tuple[str, ...]] = ()
    sections_of_new: ClassVar[tuple[str, ...]] = ("tokenizer", "image")
    # What `report` may ask for.
    reports: ClassVar[tuple[str, ...]] = (EMOJI,)
    # The types of models that training can go on from; without any, the model says what it cannot start from.
    starts: ClassVar[tuple[str, ...]] = ()
    # Whether the recipe's overrides change a model that training goes on from.
    overrides_start: ClassVar[bool] = False
    # Whether a language may be its own translation: a student reads the native one as well.
    pairs_with_itself: ClassVar[bool] = False

    @property
    def code(self) -> dict[str, Any]:
        """What loaders are told about code that comes with a model."""
        return {"trust_remote_code": self.trust_remote_code}

    @property
    def start(self) -> str:
        """Folder or Hub id of the model that the recipe goes on from, where it says one."""
        start = self.recipe.model.from_pretrained
        assert start is not None
        return start

    @cached_property
    def corpora(self) -> dict[str, Dataset | IterableDataset]:
        """The corpus of each task."""
        return {
            task: source.load(translations=task in self.translation_tasks)
            for task, source in self.recipe.train.items()
        }

    @property
    def readable_languages(self) -> list[str] | None:
        """The languages whose texts the model will read; None for any."""
        return None

    @cached_property
    def streams(self) -> list[str]:
        """The tasks whose corpus is read in passing."""
        return [task for task, corpus in self.corpora.items() if isinstance(corpus, IterableDataset)]

    @cached_property
    def captions(self) -> dict[str, list[str]]:
        """The captions of all tasks' corpora that are no streams, by language; what several rows say counts once."""
        found: dict[str, dict[str, None]] = {}
        for corpus in (corpus for task, corpus in self.corpora.items() if task not in self.streams):
            for caption in captions_of(corpus).combine_chunks().flatten().to_pylist():
                found.setdefault(caption["language"], {}).setdefault(caption["text"])
        return {language: list(found[language]) for language in sorted(found)}

    @cached_property
    def image_languages(self) -> list[str]:
        """Languages with captioned images in training, in any stage."""
        found = (
            stage.tags or self._languages(task)
            for stage in self.stages
            for task in stage.tasks
            if task not in self.translation_tasks
        )
        return list(dict.fromkeys(tag for languages in found for tag in languages))

    @cached_property
    def pair_languages(self) -> list[str]:
        """Languages with translations only."""
        paired = [tag for task in self.recipe.train for tag in self._languages(task)]
        return [tag for tag in dict.fromkeys(paired) if tag not in self.image_languages]

    def _languages(self, task: str) -> list[str]:
        source = self.recipe.train[task]
        if source.language_pairs:
            return list(dict.fromkeys(tag for pair in source.language_pairs for tag in pair))
        if source.languages is None and task in self.streams:
            raise RecipeError(f"train.{task}: a stream does not tell its languages beforehand: name them in languages")
        return source.tags or list(languages_of(self.corpora[task]))

    @property
    def stages(self) -> list[Stage]:
        return self.recipe.stages or [Stage("", list(self.recipe.train))]

    def _task_data(self, task: str, stage: Stage) -> TaskData:
        source = self.recipe.train[task]
        languages = source.tags if task in self.translation_tasks else stage.tags or source.tags
        return TaskData(self.corpora[task], languages, source.language_pairs)

    def count_examples(self, task: str, stage: Stage) -> int | None:
        """How many a task has in a stage; None where that takes the model."""
        data = self._task_data(task, stage)
        if task == IMAGE_TEXT:
            return len(image_text_pairs(data.corpus, data.languages))
        return len(translation_pairs(data.corpus, data.pairs)) if task == TEXT_TEXT else None

    def data_digests(self) -> dict[str, str]:
        """What tells the data that is trained on from any other; streams have none."""
        at_hand = (task for task in self.corpora if task not in self.streams)
        return {f"train.{task}": corpus_digest(self.corpora[task]) for task in at_hand}
