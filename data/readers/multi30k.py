"""Multi30K (Elliott et al. 2016), from the files of its repository: Flickr30K's images with translations of a sentence
(its task 1), and with five descriptions each in English and in German (its task 2).

    train.en.gz  train.de.gz  train.fr.gz       one sentence in each line, plain or compressed; the lines correspond
    train.1.en.gz  …  train.5.de.gz             the descriptions of task 2, five files for each language
    train.txt or train_images.txt               the file name of the image of each line

Other splits: `val`, `test_2016_flickr`, `test_2017_flickr`, `test_2017_mscoco`, `test_2018_flickr`; in task 2,
`train`, `val` and `test_2016`.
"""

from pathlib import Path

from datasets import Dataset

from ...utils.errors import CorpusError
from ...utils.languages import normalize_languages
from ..corpus.text_files import read_texts
from . import CORPUS, aligned_texts, caption_row, captions_in, find_file, task_dataset

_SPLITS = {"validation": "val", "test": "test_2016_flickr"}


def load_multi30k(
    folder: str | Path,
    split: str = "train",
    languages: list[str] | tuple[str, ...] = ("en", "de", "fr", "cs"),
    *,
    described: list[str] | tuple[str, ...] = (),
    images: str | Path | None = None,
) -> Dataset:
    """Loads a caption corpus with one sentence in each language for each image, for `triplets`; or with five
    descriptions. Columns: `image` (if `images` is given), `image_id` (the file name of the image), `captions`.

    Args:
        folder: of the files above; or the repository's `task1`, with sentences in `raw` and the names of the images in
            `image_splits`; or the folder that holds `task1` and `task2`.
        split: as in the names of the files; `validation` and `test` are `val` and `test_2016_flickr`.
        described: languages with the five descriptions of task 2 instead of the sentence of task 1. The papers
            evaluate retrieval with `["en", "de"]` here, and one sentence in French and Czech. Descriptions are not
            translations of each other: use `triplets` and `translation_pairs` for the other languages.
    """
    split = _SPLITS.get(split, split)
    tags = normalize_languages(list(languages))
    five = normalize_languages(list(described)) if described else []
    if absent := [tag for tag in five if tag not in tags]:
        raise CorpusError(f"described: {', '.join(absent)} is not among the languages {', '.join(tags)}")
    one = [tag for tag in tags if tag not in five]
    tasks = []
    if five:
        files = {tag: [f"{number}.{tag}" for number in range(1, 6)] for tag in five}
        tasks.append(_sentences(folder, "task2", split.removesuffix("_flickr"), files))
    if one or not five:
        tasks.append(_sentences(folder, "task1", split, {tag: [tag] for tag in one}))
    rows = []
    names_file, last = tasks[-1]
    for image_id in last:
        texts: dict[str, list[str]] = {}
        for file, by_image in tasks:
            if image_id not in by_image:
                raise CorpusError(f"{file} does not name {image_id!r}, which has sentences in task1")
            texts |= by_image[image_id]
        rows.append(caption_row(images, image_id, captions_in({tag: texts[tag] for tag in tags}), str(names_file)))
    return task_dataset(rows, CORPUS, names_file)


def _sentences(
    folder: str | Path, task: str, split: str, files: dict[str, list[str]]
) -> tuple[Path, dict[str, dict[str, list[str]]]]:
    """Returns the file of a split's images, and image -> language -> sentences; `files`: language -> endings."""
    names_file = find_file(folder, *(f"{task}/image_splits/{split}{ending}" for ending in (".txt", "_images.txt")))
    # In `test_2017_mscoco`, the number of the caption follows the name of the image.
    names = [name.strip().partition("#")[0] for name in read_texts(names_file)]
    found: dict[str, dict[str, list[str]]] = {name: {tag: [] for tag in files} for name in names}
    for tag, ending in ((tag, ending) for tag, endings in files.items() for ending in endings):
        texts = aligned_texts(find_file(folder, f"{task}/raw/{split}.{ending}"), names)
        for name, text in zip(names, texts, strict=True):
            found[name][tag].append(text)
    return names_file, found
