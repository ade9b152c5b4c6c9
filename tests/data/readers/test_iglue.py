"""IGLUE's tasks from small files of exactly the published formats: what they give, and what they refuse where."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import PIL.Image
import pytest

from babelens.data import load_marvl, load_nlvr2, load_xflickrco, load_xgqa, load_xvnli, retrieval_set
from babelens.utils.errors import CorpusError, LanguageTagError

ENTAILED = {
    "gold_label": "entailment",
    "sentence1": "Une femme montre un gilet de sauvetage.",
    "sentence2": "Une hôtesse est debout.",
    "captionID": "2487069642.jpg#1",
    "pairID": "2487069642.jpg#1r1e",
    "Flikr30kID": "2487069642",
}
CONTRADICTED = ENTAILED | {
    "gold_label": "contradiction",
    "sentence2": "Une femme dort.",
    "Flikr30kID": "17.jpg",
    "pairID": "17.jpg#1r1c",
}
QUESTION = {
    "semantic": [{"operation": "select", "dependencies": [], "argument": "bus (0)"}],
    "question": "Welche Farbe hat dieser Bus?",
    "imageId": "n406334",
    "isBalanced": True,
    "answer": "black",
    "fullAnswer": "The bus is black.",
}
BOTTLES = {
    "validation": {"61": "False"},
    "sentence": "Ada lima botol bir.",
    "left_url": "https://example.org/left.jpg",
    "right_url": "https://example.org/right.jpg",
    "label": "False",
    "synset": "beer bottle",
    "identifier": "dev-850-0-1",
}
POTS = {
    "concept": "39-Panci",
    "language": "id",
    "caption": "Terdapat panci tanpa tutup",
    "left_img": "39-Panci/39-n-5.jpg",
    "right_img": "39-Panci/39-2.jpg",
    "chapter": "Basic actions and technology",
    "id": "id-0",
    "label": True,
}
DOG = {"sentences": ["一只小狗。", "狗。"], "id": "525968880", "img_path": "525968880.jpg"}
KITCHEN = {"sentences": ["厨房。"], "id": 448795, "img_path": "COCO_val2014_000000448795.jpg"}


@pytest.fixture
def lines(tmp_path: Path) -> Callable[..., Path]:
    def write(*records: Any) -> Path:
        file = tmp_path / "test.jsonl"
        texts = [record if isinstance(record, str) else json.dumps(record) for record in records]
        file.write_text("\n".join(texts) + "\n", "utf-8")
        return file

    return write


@pytest.fixture
def whole(tmp_path: Path) -> Callable[[Any], Path]:
    def write(content: Any) -> Path:
        file = tmp_path / "questions.json"
        file.write_text(json.dumps(content), "utf-8")
        return file

    return write


@pytest.fixture
def images(tmp_path: Path) -> Callable[..., Path]:
    """A folder with images of these names, the first of width 1, the second of width 2, and so on."""

    def write(*names: str) -> Path:
        for width, name in enumerate(names, 1):
            path = tmp_path / "images" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            PIL.Image.new("RGB", (width, 9)).save(path)
        return tmp_path / "images"

    return write


class TestXvnli:
    def test_sentences_have_the_labels_of_the_paper(self, lines: Callable[..., Path]) -> None:
        neutral = ENTAILED | {"gold_label": "neutral"}
        dataset = load_xvnli(lines(CONTRADICTED, neutral, ENTAILED), language="FR")
        assert dataset.features["label"].names == ["contradiction", "neutral", "entailment"]
        assert dataset["label"][:] == [0, 1, 2]
        assert dataset[2] == {
            "image_id": "2487069642",
            "text": "Une hôtesse est debout.",
            "language": "fr",
            "label": 2,
            "pair_id": "2487069642.jpg#1r1e",
        }
        assert dataset["image_id"][0] == "17"

    def test_sentences_without_agreement_are_refused_or_skipped(
        self, lines: Callable[..., Path], caplog: pytest.LogCaptureFixture
    ) -> None:
        file = lines(ENTAILED, ENTAILED | {"gold_label": "-"})
        with pytest.raises(CorpusError, match=r"line 2: the label '-' is none of contradiction, neutral, entailment"):
            load_xvnli(file, language="fr")
        assert len(load_xvnli(file, language="fr", on_unlabelled="skip")) == 1
        assert "in 1 rows" in caplog.text and "test.jsonl line 2" in caplog.text

    @pytest.mark.parametrize(
        ("record", "error", "message"),
        [
            (ENTAILED | {"gold_label": "maybe"}, CorpusError, "line 2: the label 'maybe'"),
            (ENTAILED | {"sentence2": " "}, CorpusError, "line 2: 'sentence2' should be a text"),
        ],
    )
    def test_what_is_wrong_is_named_with_its_line(
        self, lines: Callable[..., Path], record: Any, error: type[Exception], message: str
    ) -> None:
        with pytest.raises(error, match=message):
            load_xvnli(lines(ENTAILED, record), language="fr")


class TestXgqa:
    def test_questions_of_gqas_form(self, whole: Callable[[Any], Path], images: Callable[..., Path]) -> None:
        dataset = load_xgqa(
            whole({"202158855": QUESTION}), ["no", "black"], language="de", images=images("n406334.jpg")
        )
        assert dataset[0].pop("image").width == 1
        assert dataset.remove_columns("image")[0] == {
            "image_id": "n406334",
            "text": "Welche Farbe hat dieser Bus?",
            "language": "de",
            "label": 1,
            "question_id": "202158855",
        }
        assert dataset.features["label"].names == ["no", "black"]

    def test_questions_of_lxmerts_form(self, whole: Callable[[Any], Path]) -> None:
        record = {"img_id": "n161313", "label": {"no": 1.0}, "question_id": "201307251", "sent": "Is it overcast?"}
        [row] = load_xgqa(whole([record]), ["yes", "no"], language="en")
        assert row == {
            "image_id": "n161313",
            "text": "Is it overcast?",
            "language": "en",
            "label": 1,
            "question_id": "201307251",
        }
        with pytest.raises(CorpusError, match=r"entry 0: expected a label with one answer, and found \{\}"):
            load_xgqa(whole([record | {"label": {}}]), ["yes", "no"], language="en")

    def test_an_answer_outside_the_vocabulary(
        self, whole: Callable[[Any], Path], caplog: pytest.LogCaptureFixture
    ) -> None:
        file = whole({"7": QUESTION | {"answer": "mauve"}, "8": QUESTION})
        with pytest.raises(CorpusError, match=r"questions\.json entry 7: the answer 'mauve' is none of the 1 "):
            load_xgqa(file, ["black"], language="de")
        dataset = load_xgqa(file, ["black"], language="de", on_unknown_answer="unlabelled")
        assert dataset["label"][:] == [None, 0]
        assert "in 1 rows" in caplog.text and "entry 7" in caplog.text

    def test_what_is_wrong_is_named(self, whole: Callable[[Any], Path], tmp_path: Path) -> None:
        with pytest.raises(CorpusError, match="entry 7: 'question' should be a text, and is None"):
            load_xgqa(whole({"7": {"answer": "black", "imageId": "n1"}}), ["black"], language="de")
        with pytest.raises(CorpusError, match="entry 7: expected an object with a question, and found 'black'"):
            load_xgqa(whole({"7": "black"}), ["black"], language="de")
        with pytest.raises(CorpusError, match="expected an object or a list"):
            load_xgqa(whole(7), ["black"], language="de")
        with pytest.raises(CorpusError, match="pickles are not read"):
            load_xgqa(tmp_path / "trainval_target.pkl", ["black"], language="de")


class TestTwoImages:
    def test_nlvr2_names_its_images_after_the_pair(
        self, lines: Callable[..., Path], images: Callable[..., Path]
    ) -> None:
        folder = images("dev-850-0-img0.png", "dev-850-0-img1.png", "73/train-1-2-img0.png", "73/train-1-2-img1.png")
        training = BOTTLES | {"identifier": "train-1-2-0", "directory": 73, "label": "True"}
        dataset = load_nlvr2(lines(BOTTLES, training), language="id", images=folder)
        assert [image.width for side in ("left", "right") for image in dataset[f"{side}_image"]] == [1, 3, 2, 4]
        assert dataset.remove_columns(["left_image", "right_image"])[0] == {
            "left_image_id": "dev-850-0-img0",
            "right_image_id": "dev-850-0-img1",
            "text": "Ada lima botol bir.",
            "language": "id",
            "label": 0,
            "example_id": "dev-850-0-1",
        }
        assert (dataset["label"][1], dataset.features["label"].names) == (1, ["false", "true"])

    def test_marvl_says_its_language(self, lines: Callable[..., Path], images: Callable[..., Path]) -> None:
        dataset = load_marvl(lines(POTS, POTS | {"label": False}), images=images(POTS["left_img"], POTS["right_img"]))
        assert [dataset[0].pop(f"{side}_image").width for side in ("left", "right")] == [1, 2]
        assert dataset.remove_columns(["left_image", "right_image"])[0] == {
            "left_image_id": "id/39-n-5",
            "right_image_id": "id/39-2",
            "text": "Terdapat panci tanpa tutup",
            "language": "id",
            "label": 1,
            "example_id": "id-0",
        }
        assert dataset["label"][1] == 0
        assert "left_image" not in load_marvl(lines(POTS)).column_names

    @pytest.mark.parametrize(
        ("change", "error", "message"),
        [
            ({"label": "perhaps"}, CorpusError, "line 1: the label 'perhaps' is neither true nor false"),
            ({"right_img": None}, CorpusError, "line 1: 'right_img' should name something"),
            ({"language": "klingon"}, LanguageTagError, "line 1: 'klingon'"),
            ({"caption": ""}, CorpusError, "line 1: 'caption' should be a text"),
        ],
    )
    def test_what_is_wrong_is_named_with_its_line(
        self, lines: Callable[..., Path], change: dict[str, Any], error: type[Exception], message: str
    ) -> None:
        with pytest.raises(error, match=message):
            load_marvl(lines(POTS | change))


class TestXflickrco:
    def test_captions_are_a_corpus_for_retrieval(
        self, lines: Callable[..., Path], images: Callable[..., Path]
    ) -> None:
        folder = images(DOG["img_path"], KITCHEN["img_path"])
        found = retrieval_set(load_xflickrco(lines(DOG, KITCHEN), language="zh", images=folder), "zh")
        assert found.texts == ["一只小狗。", "狗。", "厨房。"]
        assert found.image_ids == ["525968880.jpg", "COCO_val2014_000000448795.jpg"]
        assert found.text_to_images == [[0], [0], [1]]
        assert [image.width for image in found.images] == [1, 2]

    def test_what_is_wrong_is_named_with_its_line(self, lines: Callable[..., Path]) -> None:
        with pytest.raises(CorpusError, match="line 2: a text is empty"):
            load_xflickrco(lines(DOG, KITCHEN | {"sentences": [""]}), language="zh")
        with pytest.raises(CorpusError, match="line 1: 0 texts"):
            load_xflickrco(lines({"img_path": "1.jpg"}), language="zh")
