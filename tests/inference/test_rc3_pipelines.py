import numpy as np
import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoModelForVisualQuestionAnswering, AutoProcessor, pipeline

from babelens.inference import rc3_pipelines
from babelens.inference.cross_encoder import CrossEncoder
from tests.contracts import TEXTS, drawn_images
from tests.support.tiny_cross_encoder import ANSWERS, save_heads

IMAGES = drawn_images(5)
ASKED = TEXTS[:5]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("rc3")
    save_heads(root)
    return root


@pytest.fixture(scope="module")
def answer(folders):
    return pipeline("visual-question-answering", model=str(folders / "answers"))


@pytest.fixture(scope="module")
def translate(folders):
    return pipeline("image-text-to-text", model=str(folders / "translation"))


@pytest.fixture(scope="module")
def probabilities(folders):
    model = AutoModelForVisualQuestionAnswering.from_pretrained(folders / "answers")
    processor = AutoProcessor.from_pretrained(folders / "answers")

    @torch.no_grad()
    def ask(language="de", images=IMAGES, regions=None):
        inputs = processor(images=images, text=ASKED, language=language, regions=regions, return_tensors="pt")
        return model(**inputs).logits.sigmoid()

    return ask


def assert_answers(found: list[list[dict]], expected: torch.Tensor) -> None:
    for answers, row in zip(found, expected, strict=True):
        order = row.argsort(descending=True).tolist()[: len(answers)]
        assert [entry["answer"] for entry in answers] == [ANSWERS[index] for index in order]
        torch.testing.assert_close(torch.tensor([entry["score"] for entry in answers]), row[order])


@pytest.mark.parametrize("batch_size", [1, 2, 8])
def test_questions_about_an_image_each(answer, probabilities, batch_size):
    found = answer(IMAGES, ASKED, language="de", top_k=3, batch_size=batch_size)
    assert_answers(found, probabilities())


def test_items_name_their_languages_and_regions(answer, probabilities):
    languages, rng = ["en", "de", "fr", "th", "zh"], np.random.default_rng(0)
    regions = [None, *(rng.standard_normal((2, 6), dtype=np.float32) for _ in range(4))]
    images = [*IMAGES[:4], None]
    items = (
        {"image": image, "question": question, "language": language, "regions": features}
        for image, question, language, features in zip(images, ASKED, languages, regions, strict=True)
    )
    found = list(answer(items, batch_size=5, top_k=5))
    assert_answers(found, probabilities(languages, images, regions))
    unnamed = {"image": IMAGES[0], "question": ASKED[0], "language": None}
    assert answer(unnamed, language="de") == answer(IMAGES[0], ASKED[0], language="de")


@torch.no_grad()
def written_by_the_model(folders, **options) -> list[str]:
    model = AutoModelForImageTextToText.from_pretrained(folders / "translation")
    processor = AutoProcessor.from_pretrained(folders / "translation")
    inputs = processor(images=IMAGES, text=ASKED, language="de", return_tensors="pt")
    return processor.batch_decode(model.generate(**inputs, language="fr", max_new_tokens=6, **options))


@pytest.mark.parametrize("batch_size", [1, 2, 8])
def test_translations(translate, folders, batch_size):
    languages = {"language": "de", "target_language": "fr"}
    found = translate(IMAGES, ASKED, **languages, max_new_tokens=6, batch_size=batch_size)
    written = written_by_the_model(folders)
    assert len(set(written)) > 1
    assert found == [[{"input_text": text, "generated_text": new}] for text, new in zip(ASKED, written, strict=True)]
    assert translate(IMAGES[1], ASKED[1], **languages, max_new_tokens=6) == found[1]


def test_a_text_without_an_image_in_a_language_of_its_own(translate):
    items = [{"text": ASKED[0], "target_language": tag} for tag in ("fr", "en")]
    found = translate(items, language="de", max_new_tokens=6, batch_size=2)
    unnamed = [{"text": ASKED[0], "language": None, "target_language": None}]
    assert translate(unnamed, language="de", target_language="fr", max_new_tokens=6) == found[:1]
    assert found[1] == translate(text=ASKED[0], language="de", target_language="en", max_new_tokens=6)
    assert translate(text=ASKED[:2], language="de", target_language="en", max_new_tokens=6)[0] == found[1]


@pytest.fixture(scope="module")
def retrieve(folders):
    return pipeline("image-text-retrieval", model=str(folders / "retrieval"), device="cpu")


@pytest.fixture(scope="module")
def scores(folders):
    return CrossEncoder.from_pretrained(folders / "retrieval", device="cpu").score_all(
        TEXTS, drawn_images(7), language="de"
    )


def assert_best_first(found: list[dict], scores: np.ndarray) -> None:
    assert [each["index"] for each in found] == np.argsort(-scores, kind="stable").tolist()
    np.testing.assert_allclose([each["score"] for each in found], np.sort(scores)[::-1], rtol=0, atol=1e-5)


@pytest.mark.parametrize("at_once", [3, 64])
def test_images_by_text_and_texts_by_image(retrieve, scores, monkeypatch, at_once):
    monkeypatch.setattr(rc3_pipelines, "_CANDIDATES_AT_ONCE", at_once)
    assert_best_first(retrieve(TEXTS[1], images=drawn_images(7), language="de"), scores[1])
    assert_best_first(retrieve(drawn_images(7)[4], texts=TEXTS, language="de"), scores[:, 4])


@pytest.mark.parametrize("batch_size", [2, 3])
def test_batches_of_queries_change_nothing(retrieve, batch_size):
    for queries, candidates in ((TEXTS[:5], {"images": drawn_images(7)}), (drawn_images(7)[:5], {"texts": TEXTS})):
        one_by_one = retrieve(queries, **candidates, language="de", top_k=4)
        assert retrieve(queries, **candidates, language="de", top_k=4, batch_size=batch_size) == one_by_one
    assert retrieve(TEXTS[0], images=drawn_images(2), language="de", batch_size=2)[0]["score"]
