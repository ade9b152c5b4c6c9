"""IGLUE's tasks from their published files (Bugliarello et al. 2022): fine-tuned in English, tested in others.

    load_xvnli      does the image entail the sentence?            XVNLI; SNLI-VE to fine-tune on
    load_xgqa       a question about the image, 1842 answers        xGQA; GQA to fine-tune on
    load_nlvr2      is the sentence true of the two images?         NLVR2, to fine-tune on
    load_marvl      the same task in five languages                   MaRVL
    load_xflickrco  captions of images, for retrieval               xFlickr&CO; Flickr30K to fine-tune on

Each function reads one file as it is published, and returns a `datasets.Dataset`. Images are files in a folder, which
are opened on access; without a folder there is no column `image`, and `image_id` is the key of the image in the region
features of the benchmark, but for the ending `.jpg`, which their reader adds or leaves out (`processing.regions`).
`label` is a `ClassLabel`: `dataset.features["label"].names` are the answers in order.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from datasets import ClassLabel, Dataset, Image, Value

from ...utils.errors import CorpusError, LanguageTagError
from ...utils.languages import normalize_language
from ..corpus.captions import CaptionRules, RowCount, normalize_row
from ..corpus.text_files import read_json, read_json_lines
from . import CORPUS, TRUTH, Record, identifier_of, image_path, task_dataset, text_of, warn_of

Folder = str | Path | None

ENTAILMENT = ["contradiction", "neutral", "entailment"]

_STRING = Value("string")
_TEXT = {"text": _STRING, "language": _STRING}
_ONE_IMAGE = {"image": Image(), "image_id": _STRING, **_TEXT}
_SIDES = ("left_image", "right_image")
_TWO_IMAGES = {
    **dict.fromkeys(_SIDES, Image()),
    **{f"{side}_id": _STRING for side in _SIDES},
    **_TEXT,
    "label": ClassLabel(names=list(TRUTH)),
    "example_id": _STRING,
}


def load_xvnli(
    file: str | Path,
    *,
    language: str,
    images: Folder = None,
    on_unlabelled: Literal["error", "skip"] = "error",
) -> Dataset:
    """Loads visual entailment: JSON lines with `gold_label`, `sentence2`, `Flikr30kID`, as in SNLI-VE and XVNLI.

    Columns: `image` (`<Flikr30kID>.jpg` in the folder), `image_id` (without `.jpg`), `text` (the hypothesis,
    `sentence2`), `language`, `label` (0 contradiction, 1 neutral, 2 entailment), `pair_id`. The premise is the image;
    its caption, `sentence1`, is not read.

    Args:
        file, language: the file, and the language of its sentences.
        images: the folder of Flickr30K's images.
        on_unlabelled: whether sentences on which the annotators did not agree (`gold_label` is `-`) are an error, or
            are left out with a warning that counts and names them.
    """
    rows, count = [], RowCount(str(file))
    for place, record in _records(file):
        label = record.get("gold_label")
        if label == "-" and on_unlabelled == "skip":
            count.leave_out("without a label on which the annotators agreed", place)
            continue
        image_id = identifier_of(record, "Flikr30kID", place).removesuffix(".jpg")
        row = {"text": text_of(record, "sentence2", place), "language": normalize_language(language)}
        row |= {"label": _label(label, ENTAILMENT, place), "pair_id": identifier_of(record, "pairID", place)}
        rows.append(row | _images(images, {"image": f"{image_id}.jpg"}, [image_id], place))
    count.read = len(rows)
    count.report()
    return task_dataset(rows, _ONE_IMAGE | {"label": ClassLabel(names=ENTAILMENT), "pair_id": _STRING}, file)


def load_answers(file: str | Path) -> list[str]:
    """Returns GQA's answers in the order of their labels, from `trainval_ans2label.json`: `{"yes": 0, "pipe": 1, …}`.

    IGLUE also has them as a pickle, which is not read, because loading a pickle can run any code.
    """
    labels = _json(file)
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
    """Loads visual question answering from a file in the format of GQA or of LXMERT.

        {"201307251": {"question": "Is it overcast?", "answer": "no", "imageId": "n161313", …}, …}
        [{"question_id": "201307251", "sent": "Is it overcast?", "label": {"no": 1.0}, "img_id": "n161313"}, …]

    Columns: `image` (`<imageId>.jpg` in the folder), `image_id`, `text` (the question), `language`, `label` (the
    answer among `answers`), `question_id`. Answers are English in every language of xGQA.

    Args:
        answers: the answers of the model, as returned by `load_answers`; 1842 for GQA.
        file, language: the file, and the language of its questions.
        images: the folder of GQA's images.
        on_unknown_answer: whether a question whose answer is not among `answers` is an error, or is kept with the
            label None and a warning that counts and names it. A model cannot answer it, so that an evaluation must
            count it as wrong.
    """
    known, rows = set(answers), []
    unknown: list[str] = []
    for place, record in _questions(file):
        answer: str | None = text_of(record, "answer", place)
        if answer not in known:
            if on_unknown_answer == "error":
                raise CorpusError(f"{place}: the answer {answer!r} is none of the {len(answers)} known ones")
            unknown.append(place)
            answer = None
        image_id = identifier_of(record, "imageId", place)
        row: dict[str, Any] = {"text": text_of(record, "question", place), "language": normalize_language(language)}
        row |= {"label": answer, "question_id": record["question_id"]}
        rows.append(row | _images(images, {"image": f"{image_id}.jpg"}, [image_id], place))
    warn_of("kept without a label: the answer is not in the vocabulary", unknown)
    return task_dataset(rows, _ONE_IMAGE | {"label": ClassLabel(names=answers), "question_id": _STRING}, file)


def load_nlvr2(file: str | Path, *, language: str = "en", images: Folder = None) -> Dataset:
    """Loads two images and a sentence: NLVR2's JSON lines with `identifier`, `sentence` and `label`.

    Columns: `left_image`, `right_image`, `left_image_id`, `right_image_id`, `text`, `language`, `label` (0 false,
    1 true), `example_id`. The example `dev-850-0-1` is about the images `dev-850-0-img0` and `dev-850-0-img1`.

    Args:
        language: the language of the sentences: English, or that of one of IGLUE's machine translations.
        images: the folder of the images of this split (`….png`). The images of a record with a `directory`, as in
            training, are in a folder of that name in it.
    """
    rows = []
    for place, record in _records(file):
        example = identifier_of(record, "identifier", place)
        folder = f"{record['directory']}/" if "directory" in record else ""
        names = [f"{example.rpartition('-')[0]}-img{side}" for side in (0, 1)]
        row = {"text": text_of(record, "sentence", place), "language": normalize_language(language)}
        row |= {"label": _label(str(record.get("label")).lower(), TRUTH, place), "example_id": example}
        files = {side: f"{folder}{name}.png" for side, name in zip(_SIDES, names, strict=True)}
        rows.append(row | _images(images, files, names, place))
    return task_dataset(rows, _TWO_IMAGES, file)


def load_marvl(file: str | Path, *, images: Folder = None) -> Dataset:
    """Loads two images and a sentence: MaRVL's JSON lines with `caption`, `language`, `left_img`, `right_img`,
    `label`.

    Columns: those of `load_nlvr2`. The image_id of the Indonesian `39-Panci/39-n-5.jpg` is `id/39-n-5`: images in
    different languages have the same names, and their regions a file for each language.

    Args:
        images: the folder of the images of the language, with a folder for each concept.
    """
    rows = []
    for place, record in _records(file):
        files = {side: identifier_of(record, f"{side.partition('_')[0]}_img", place) for side in _SIDES}
        try:
            language = normalize_language(identifier_of(record, "language", place))
        except LanguageTagError as error:
            raise LanguageTagError(f"{place}: {error}") from None
        row = {"text": text_of(record, "caption", place), "language": language}
        label = _label(str(record.get("label")).lower(), TRUTH, place)
        row |= {"label": label, "example_id": identifier_of(record, "id", place)}
        rows.append(row | _images(images, files, [f"{language}/{Path(name).stem}" for name in files.values()], place))
    return task_dataset(rows, _TWO_IMAGES, file)


def load_xflickrco(file: str | Path, *, language: str, images: Folder = None) -> Dataset:
    """Loads a caption corpus from JSON lines with `sentences` and `img_path`: xFlickr&CO, or Flickr30K's training
    data.

    Columns: `image` (`img_path` in the folder), `image_id` (`img_path`), `captions`, for `retrieval_set` and
    `image_text_pairs`.

    Args:
        file, language: the file, and the language of its captions.
        images: the folder of the images of Flickr30K and COCO.
    """
    rules, rows = CaptionRules(language=normalize_language(language)), []
    for place, record in _records(file):
        image_id = identifier_of(record, "img_path", place)
        captions = normalize_row(record.get("sentences"), rules, place)
        rows.append({"captions": captions} | _images(images, {"image": image_id}, [image_id], place))
    return task_dataset(rows, CORPUS, file)


# ---- Files and records ----


def _records(file: str | Path) -> Iterator[Record]:
    return ((f"{file} line {line}", record) for line, record in read_json_lines(Path(file)))


def _json(file: str | Path) -> Any:
    if Path(file).suffix == ".pkl":
        raise CorpusError(f"{file}: pickles are not read, because loading one can run any code; convert it to JSON")
    return read_json(Path(file))


def _questions(file: str | Path) -> Iterator[Record]:
    """Yields the records `{question_id, question, answer, imageId}` of GQA, from either format."""
    content = _json(file)
    if not isinstance(content, dict | list):
        raise CorpusError(f"{file}: expected an object or a list of questions")
    for key, record in content.items() if isinstance(content, dict) else enumerate(content):
        place = f"{file} entry {key}"
        if not isinstance(record, dict):
            raise CorpusError(f"{place}: expected an object with a question, and found {record!r}")
        record = {"question_id": str(key)} | record
        if "sent" in record:
            answers = record.get("label")
            if not isinstance(answers, dict) or len(answers) != 1:
                raise CorpusError(f"{place}: expected a label with one answer, and found {answers!r}")
            record |= {"question": record["sent"], "answer": next(iter(answers)), "imageId": record.get("img_id")}
            record["question_id"] = identifier_of(record, "question_id", place)
        yield place, record


def _images(images: Folder, files: dict[str, str], image_ids: Sequence[str], place: str) -> dict[str, Any]:
    """Returns the ids of the images of a row and, if there is a folder, their paths."""
    row = {f"{column}_id": image_id for column, image_id in zip(files, image_ids, strict=True)}
    return row if images is None else row | {each: image_path(images, name, place) for each, name in files.items()}


def _label(label: Any, known: Sequence[str], place: str) -> str:
    if label not in known:
        raise CorpusError(f"{place}: the label {label!r} is none of {', '.join(known)}")
    return label
