import json
import os
import pickle

import PIL.Image
import pytest

from babelens.data import load_answers, load_marvl, load_nlvr2, load_xflickrco, load_xgqa, load_xvnli, retrieval_set
from babelens.utils.errors import CorpusError, LanguageTagError

ENTAILED = {"gold_label": "entailment", "sentence2": "Une hôtesse est debout."}
ENTAILED |= {"pairID": "2487069642.jpg#1r1e", "Flikr30kID": "2487069642"}
QUESTION = {"question": "Welche Farbe hat dieser Bus?", "imageId": "n406334", "answer": "black"}
BOTTLES = {"sentence": "Ada lima botol bir.", "label": "False", "identifier": "dev-850-0-1"}
POTS = {"language": "id", "caption": "Terdapat panci tanpa tutup", "id": "id-0", "label": True}
POTS |= {"left_img": "39-Panci/39-n-5.jpg", "right_img": "39-Panci/39-2.jpg"}
DOG = {"sentences": ["一只小狗。", "狗。"], "id": 5, "img_path": "525968880.jpg"}
KITCHEN = {"sentences": ["厨房。"], "id": 4, "img_path": "COCO_val2014_000000448795.jpg"}


@pytest.fixture
def lines(tmp_path):
    def write(*records):
        (tmp_path / "test.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
        return tmp_path / "test.jsonl"

    return write


@pytest.fixture
def images(tmp_path):
    def write(*names):
        for width, name in enumerate(names, 1):
            path = tmp_path / "images" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            PIL.Image.new("RGB", (width, 9)).save(path)
        return tmp_path / "images"

    return write


def test_xvnli_has_the_labels_of_the_paper(lines, caplog):
    neutral, unlabelled = ENTAILED | {"gold_label": "neutral"}, ENTAILED | {"gold_label": "-"}
    contradicted = ENTAILED | {"gold_label": "contradiction", "Flikr30kID": "17.jpg"}
    file = lines(contradicted, neutral, ENTAILED, unlabelled)
    with pytest.raises(CorpusError, match=r"line 4: the label '-'"):
        load_xvnli(file, language="fr")
    dataset = load_xvnli(file, language="FR", on_unlabelled="skip")
    assert "left out 1" in caplog.text and "line 4" in caplog.text
    assert dataset.features["label"].names == ["contradiction", "neutral", "entailment"]
    assert dataset["label"][:] == [0, 1, 2] and dataset["image_id"][0] == "17"
    facts = {"image_id": "2487069642", "language": "fr", "label": 2, "pair_id": "2487069642.jpg#1r1e"}
    assert dataset[2] == facts | {"text": "Une hôtesse est debout."}


def test_xgqa_has_the_form_of_gqa(images, tmp_path, caplog):
    def whole(content):
        (tmp_path / "questions.json").write_text(json.dumps(content), "utf-8")
        return tmp_path / "questions.json"

    dataset = load_xgqa(whole({"20": QUESTION}), ["no", "black"], language="de", images=images("n406334.jpg"))
    expected = {"image_id": "n406334", "text": QUESTION["question"], "language": "de", "label": 1, "question_id": "20"}
    assert dataset[0]["image"].width == 1 and dataset.remove_columns("image")[0] == expected
    file = whole({"7": QUESTION | {"answer": "mauve"}, "8": QUESTION})
    with pytest.raises(CorpusError, match=r"questions\.json entry 7: the answer 'mauve'"):
        load_xgqa(file, ["black"], language="de")
    dataset = load_xgqa(file, ["black"], language="de", on_unknown_answer="unlabelled")
    assert dataset["label"][:] == [None, 0] and "entry 7" in caplog.text


def test_pickles_are_refused(tmp_path):
    class Makes:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "made"),)

    (tmp_path / "trainval_ans2label.pkl").write_bytes(pickle.dumps(Makes()))
    with pytest.raises(CorpusError, match=r"trainval_ans2label\.pkl"):
        load_answers(tmp_path / "trainval_ans2label.pkl")
    assert not (tmp_path / "made").exists()


def test_nlvr2_names_its_images_after_the_pair(lines, images):
    folder = images("dev-850-0-img0.png", "dev-850-0-img1.png", "73/train-1-2-img0.png", "73/train-1-2-img1.png")
    training = BOTTLES | {"identifier": "train-1-2-0", "directory": 73, "label": "True"}
    dataset = load_nlvr2(lines(BOTTLES, training), language="id", images=folder)
    assert [image.width for side in ("left", "right") for image in dataset[f"{side}_image"]] == [1, 3, 2, 4]
    ids = {"left_image_id": "dev-850-0-img0", "right_image_id": "dev-850-0-img1", "example_id": "dev-850-0-1"}
    found = dataset.remove_columns(["left_image", "right_image"])[0]
    assert found == ids | {"text": "Ada lima botol bir.", "language": "id", "label": 0}
    assert (dataset["label"][1], dataset.features["label"].names) == (1, ["false", "true"])


def test_marvl_says_its_language(lines, images):
    dataset = load_marvl(lines(POTS, POTS | {"label": False}), images=images(POTS["left_img"], POTS["right_img"]))
    assert [dataset[0][f"{side}_image"].width for side in ("left", "right")] == [1, 2]
    ids = {"left_image_id": "id/39-n-5", "right_image_id": "id/39-2", "example_id": "id-0"}
    found = dataset.remove_columns(["left_image", "right_image"])[0]
    assert found == ids | {"text": "Terdapat panci tanpa tutup", "language": "id", "label": 1}
    assert dataset["label"][1] == 0 and "left_image" not in load_marvl(lines(POTS)).column_names


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"label": "perhaps"}, CorpusError, "line 1: the label .perhaps"),
        ({"language": "klingon"}, LanguageTagError, "line 1: 'klingon'"),
        ({"caption": ""}, CorpusError, "line 1: 'caption'"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(lines, change, error, message):
    with pytest.raises(error, match=message):
        load_marvl(lines(POTS | change))


def test_xflickrco_is_a_corpus_for_retrieval(lines, images):
    folder = images(DOG["img_path"], KITCHEN["img_path"])
    found = retrieval_set(load_xflickrco(lines(DOG, KITCHEN), language="zh", images=folder), "zh")
    assert found.texts == ["一只小狗。", "狗。", "厨房。"]
    assert found.image_ids == [DOG["img_path"], KITCHEN["img_path"]] and found.text_to_images == [[0], [0], [1]]
    assert [image.width for image in found.images] == [1, 2]
    with pytest.raises(CorpusError, match="line 2: a text is empty"):
        load_xflickrco(lines(DOG, KITCHEN | {"sentences": [""]}), language="zh")
