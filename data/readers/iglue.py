"""IGLUE's tasks from their published files (Bugliarello et al. 2022): fine-tuned in English (on SNLI-VE, GQA, NLVR2
and Flickr30K), tested in others (XVNLI, xGQA, MaRVL, and xFlickr&CO for retrieval).

Images are files in the folder `images`, opened on access; without a folder, there is no column `image`. `image_id` is
the key of the image in the benchmark's region features, but for the ending `.jpg`, which their reader adds or leaves
out (`processing.regions`). `label` is a `ClassLabel`, whose `names` are the answers in order.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from datasets import ClassLabel, Dataset

from ...utils.errors import CorpusError, LanguageTagError
from ...utils.languages import normalize_language
from ..corpus.corpus import CaptionRules, RowCount, enumeration, normalize_row
from ..corpus.files import read_json, read_json_lines
from . import TRUTH, Folder, caption_row, image_path, task_dataset, value_of

ENTAILMENT = ["contradiction", "neutral", "entailment"]
_SIDES = ("left_image", "right_image")

logger = logging.getLogger(__name__)


def load_xvnli(
    file: str | Path, *, language: str, images: Folder = None, on_unlabelled: Literal["error", "skip"] = "error"
) -> Dataset:
    """Loads visual entailment: JSON lines with `gold_label`, `sentence2`, `Flikr30kID`, as in SNLI-VE and XVNLI. The
    premise is the image; its caption, `sentence1`, is not read. Columns: `image` (`<Flikr30kID>.jpg` in the folder of
    Flickr30K's images), `image_id` (without `.jpg`), `text` (the hypothesis), `language`, `label` (0 contradiction, 1
    neutral, 2 entailment), `pair_id`. Sentences on which the annotators did not agree (`gold_label` is `-`) are an
    error; with `on_unlabelled="skip"`, they are left out, and a warning counts and names them."""
    rows, count = [], RowCount(str(file))
    for place, record in read_json_lines(file):
        if record.get("gold_label") == "-" and on_unlabelled == "skip":
            count.leave_out("without a label on which the annotators agreed", place)
            continue
        image_id = value_of(record, "Flikr30kID", place).removesuffix(".jpg")
        row = _row(record, "sentence2", language, place, images, image=(image_id, f"{image_id}.jpg"))
        row["label"] = _label(record, "gold_label", ENTAILMENT, place)
        rows.append(row | {"pair_id": value_of(record, "pairID", place)})
        count.read += 1
    count.report()
    return task_dataset(rows, file, label=ClassLabel(names=ENTAILMENT))


def load_answers(file: str | Path) -> list[str]:
    """Returns GQA's answers in the order of their labels, from `trainval_ans2label.json`: `{"yes": 0, "pipe": 1, …}`.
    IGLUE's pickle of them is not read, because loading a pickle can run any code."""
    labels = read_json(Path(file))
    if not isinstance(labels, dict) or sorted(map(str, labels.values())) != sorted(map(str, range(len(labels)))):
        raise CorpusError(f"{file}: expected an object that gives every answer a label of its own, 0, 1, 2, …")
    return sorted(labels, key=lambda answer: int(labels[answer]))


def load_xgqa(
    file: str | Path,
    answers: list[str],
    *,
    language: str,
    images: Folder = None,
    on_unknown_answer: Literal["error", "unlabelled"] = "error",
) -> Dataset:
    """Loads visual question answering (1842 answers) from a file in the format of GQA.

        {"201307251": {"question": "Is it overcast?", "answer": "no", "imageId": "n161313", …}, …}

    Columns: `image` (`<imageId>.jpg` in the folder of GQA's images), `image_id`, `text`, `language`, `label` (one of
    `answers`, English in every language of xGQA), `question_id`. A question with another answer is an error; with
    `on_unknown_answer="unlabelled"`, its label is None, which an evaluation counts as wrong, and a warning names it.
    """
    known, rows, unknown = set(answers), [], list[str]()
    for question, record in read_json(Path(file), dict).items():
        place = f"{file} entry {question}"
        answer: str | None = value_of(record, "answer", place)
        if answer not in known:
            if on_unknown_answer == "error":
                raise CorpusError(f"{place}: the answer {answer!r} is none of the {len(answers)} known ones")
            unknown.append(place)
            answer = None
        image_id = value_of(record, "imageId", place)
        row = _row(record, "question", language, place, images, image=(image_id, f"{image_id}.jpg"))
        rows.append(row | {"label": answer, "question_id": question})
    if unknown:
        logger.warning("%d answers are not in the vocabulary, so not labels: %s", len(unknown), enumeration(unknown))
    return task_dataset(rows, file, label=ClassLabel(names=answers))


def load_nlvr2(file: str | Path, *, language: str = "en", images: Folder = None) -> Dataset:
    """Loads two images and a sentence: NLVR2's JSON lines with `identifier`, `sentence` and `label`. Columns:
    `left_image`, `right_image`, `left_image_id`, `right_image_id`, `text`, `language`, `label` (0 false, 1 true),
    `example_id`. The example `dev-850-0-1` has the images `dev-850-0-img0.png` and `dev-850-0-img1.png`, in the folder
    of the record's `directory`, as in training, if it has one."""
    rows = []
    for place, record in read_json_lines(file):
        example = value_of(record, "identifier", place)
        folder, name = f"{record['directory']}/" if "directory" in record else "", f"{example.rpartition('-')[0]}-img"
        sides = {side: (f"{name}{k}", f"{folder}{name}{k}.png") for k, side in enumerate(_SIDES)}
        row = _row(record, "sentence", language, place, images, **sides)
        rows.append(row | {"label": _label(record, "label", TRUTH, place), "example_id": example})
    return task_dataset(rows, file, label=ClassLabel(names=list(TRUTH)))


def load_marvl(file: str | Path, *, images: Folder = None) -> Dataset:
    """Loads two images and a sentence from MaRVL's JSON lines, with the columns of `load_nlvr2`. The image_id of the
    Indonesian `39-Panci/39-n-5.jpg` (the folder is a concept's) is `id/39-n-5`: images in different languages have the
    same names, and their regions a file for each language."""
    rows = []
    for place, record in read_json_lines(file):
        try:
            language = normalize_language(value_of(record, "language", place))
        except LanguageTagError as error:
            raise LanguageTagError(f"{place}: {error}") from None
        names = [value_of(record, key, place) for key in ("left_img", "right_img")]
        sides = {side: (f"{language}/{Path(name).stem}", name) for side, name in zip(_SIDES, names, strict=True)}
        row = _row(record, "caption", language, place, images, **sides)
        row["label"] = _label(record, "label", TRUTH, place)
        rows.append(row | {"example_id": value_of(record, "id", place)})
    return task_dataset(rows, file, label=ClassLabel(names=list(TRUTH)))


def load_xflickrco(file: str | Path, *, language: str, images: Folder = None) -> Dataset:
    """Loads a caption corpus from JSON lines with `sentences` and `img_path`: xFlickr&CO, or Flickr30K's training
    data. Columns: `image` (`img_path` in the folder), `image_id` (`img_path`), `captions`."""
    rules, rows = CaptionRules(language=normalize_language(language)), []
    for place, record in read_json_lines(file):
        captions = normalize_row(record.get("sentences"), rules, place)
        rows.append(caption_row(images, value_of(record, "img_path", place), captions, place))
    return task_dataset(rows, file)


def _row(
    record: dict[str, Any], key: str, language: str, place: str, images: Folder, **files: tuple[str, str]
) -> dict[str, Any]:
    """Returns the text of a record, and the ids and any paths of its images; `files` has (id, file name) by column."""
    row: dict[str, Any] = {}
    if images is not None:
        row |= {column: image_path(images, name, place) for column, (_, name) in files.items()}
    row |= {f"{column}_id": image_id for column, (image_id, _) in files.items()}
    return row | {"text": value_of(record, key, place), "language": normalize_language(language)}


def _label(record: dict[str, Any], key: str, known: Sequence[str], place: str) -> str:
    label = str(record.get(key)).lower()
    if label not in known:
        raise CorpusError(f"{place}: the label {label!r} is none of {', '.join(known)}")
    return label
