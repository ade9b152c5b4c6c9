"""The training texts of a recipe, counted by language."""

from datasets import IterableDataset

from ..configuration.errors import RecipeError
from ..data.corpus.caption_index import CaptionIndex
from ..evaluation.analysis.data_recall import TrainingTexts
from .base import recipe_data
from .recipe import Recipe


def training_texts(recipe: Recipe) -> dict[str, TrainingTexts]:
    """Counts the texts of a recipe in each language that it trains, each text once.

    A text that has an image in one task and none in another counts as a caption.

    Raises:
        RecipeError: for a recipe whose data are streams, or have no captions.
        BabelensError: as reading the data.
    """
    data = recipe_data(recipe)
    captions: dict[str, set[str]] = {}
    translations: dict[str, set[str]] = {}
    taken: dict[str, set[str]] = {}  # task -> its languages in all stages
    for stage in recipe.all_stages:
        for task in stage.tasks:
            tags = None if task in data.translation_tasks else stage.tags
            taken.setdefault(task, set()).update(tags or data.languages_of_task(task))
    for task, languages in taken.items():
        corpus = data.corpora[task]
        if isinstance(corpus, IterableDataset):
            raise RecipeError(f"train.{task}: the texts of a stream cannot be counted before they are read")
        if "captions" not in corpus.column_names:
            raise RecipeError(f"train.{task}: these data have no captions that could be counted")
        index = CaptionIndex(corpus.select_columns("captions").with_format("arrow")[:])
        counted = translations if task in data.translation_tasks else captions
        for language in languages:
            counted.setdefault(language, set()).update(index.texts.take(index.captions_in(language)).to_pylist())
    found = {}
    for language in sorted(captions.keys() | translations.keys()):
        shown, unseen = captions.get(language, set()), translations.get(language, set())
        characters = sum(map(len, shown | unseen))
        found[language] = TrainingTexts(len(shown), len(unseen - shown), characters)
    return found
