"""Multi30K (Elliott et al. 2016), from the files of its repository: Flickr30K's images with translations of a sentence
in several languages (its task 1), and with five descriptions each in English and in German (its task 2).

    train.en.gz  train.de.gz  train.fr.gz       one sentence in each line, plain or compressed; the lines correspond
    train.1.en.gz  …  train.5.de.gz             the descriptions of task 2, five files for each language
    train.txt or train_images.txt               the file name of the image of each line

Other splits are `val`, `test_2016_flickr`, `test_2017_flickr`, `test_2017_mscoco`, `test_2018_flickr`; of task 2 there
are `train`, `val` and `test_2016`.
"""

from pathlib import Path

from datasets import Dataset, Image, Value

from ...utils.errors import CorpusError
from ...utils.languages import normalize_languages
from ..corpus.corpus import CAPTIONS
from ..corpus.text_files import read_texts
from .task_files import image_path, task_dataset

_SPLITS = {"validation": "val", "test": "test_2016_flickr"}


def load_multi30k(
    folder: str | Path,
    split: str = "train",
    languages: list[str] | tuple[str, ...] = ("en", "de", "fr", "cs"),
    *,
    described: list[str] | tuple[str, ...] = (),
    images: str | Path | None = None,
) -> Dataset:
    """A caption corpus with one sentence in each language for each image, for `triplets`; or with five descriptions.

    Columns: `image` (if `images` is given), `image_id` (the file name of the image), `captions`.

    Args:
        folder: the folder of the files above; or the folder `task1` of the repository, in which the sentences are in
            `raw` and the names of the images in `image_splits`; or the folder that holds `task1` and `task2`.
        split: the split, as in the names of the files; `validation` and `test` are `val` and `test_2016_flickr`.
        languages: the languages to read.
        described: those of them in which the five descriptions of task 2 are read instead of the sentence of task 1.
            The retrieval of the papers has `["en", "de"]` here, beside one sentence in French and Czech. Descriptions
            in two languages are no translations of each other: `triplets` and `translation_pairs` are for languages
            that are not named here.
        images: the folder of the images. In `test_2017_mscoco`, the number of the caption follows their names after a
            `#`, and is left out.

    Raises:
        CorpusError: if files are missing or have different numbers of lines, the two tasks have different images, a
            sentence is empty, or an image is not in the folder.

    Examples:
        >>> corpus = load_multi30k(
        ...     "data", "test_2016_flickr", ["en", "de", "fr", "cs"], described=["en", "de"], images="flickr30k"
        ... )
    """
    split = _SPLITS.get(split, split)
    tags = normalize_languages(list(languages))
    five = normalize_languages(list(described)) if described else []
    if absent := [tag for tag in five if tag not in tags]:
        raise CorpusError(f"described: {', '.join(absent)} is not among the languages {', '.join(tags)}")
    one = [tag for tag in tags if tag not in five]
    tasks = []
    if one or not five:
        tasks.append(_Sentences(folder, "task1", split, {tag: [tag] for tag in one}))
    if five:
        files = {tag: [f"{number}.{tag}" for number in range(1, 6)] for tag in five}
        tasks.append(_Sentences(folder, "task2", split.removesuffix("_flickr"), files))
    names_file = tasks[0].names_file
    rows = []
    for line, image_id in enumerate(tasks[0].image_ids):
        texts: dict[str, list[str]] = {}
        for task in tasks:
            texts |= task.texts_of(line if task is tasks[0] else task.line_of(image_id))
        row = {
            "image_id": image_id,
            "captions": [{"language": tag, "text": text} for tag in tags for text in texts[tag]],
        }
        if images is not None:
            row["image"] = image_path(images, image_id, f"{names_file} line {line + 1}")
        rows.append(row)
    return task_dataset(rows, {"image": Image(), "image_id": Value("string"), "captions": CAPTIONS}, names_file)


class _Sentences:
    """The sentences of a split of one of the two tasks, line by line, with the names of their images. `files` has the
    endings of the files of each language."""

    def __init__(self, folder: str | Path, task: str, split: str, files: dict[str, list[str]]) -> None:
        names = [f"{split}.txt", f"{split}_images.txt"]
        self.names_file = _found(folder, names, "image_splits", task)
        self.image_ids = [name.strip().partition("#")[0] for name in read_texts(self.names_file)]
        self._columns = {
            tag: [
                read_texts(_found(folder, [f"{split}.{ending}", f"{split}.{ending}.gz"], "raw", task))
                for ending in endings
            ]
            for tag, endings in files.items()
        }
        for tag, columns in self._columns.items():
            for lines in columns:
                if len(lines) != len(self.image_ids):
                    raise CorpusError(
                        f"{folder}: {split} has {len(lines)} sentences in {tag} and {len(self.image_ids)} images"
                    )
        self._lines = {image_id: line for line, image_id in enumerate(self.image_ids)}

    def texts_of(self, line: int) -> dict[str, list[str]]:
        return {tag: [column[line].strip() for column in columns] for tag, columns in self._columns.items()}

    def line_of(self, image_id: str) -> int:
        if image_id not in self._lines:
            raise CorpusError(f"{self.names_file} does not name {image_id!r}, which has sentences in task1")
        return self._lines[image_id]


def _found(folder: str | Path, names: list[str], subfolder: str, task: str) -> Path:
    for place in (Path(folder), Path(folder) / task):
        for path in (place / within / name for within in ("", subfolder) for name in names):
            if path.is_file():
                return path
    raise CorpusError(f"{folder}: there is no {' or '.join(names)}, here or in {subfolder}, nor in {task}")
