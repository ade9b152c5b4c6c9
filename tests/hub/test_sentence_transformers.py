import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import sentence_transformers
from sentence_transformers import SentenceTransformer

from babelens import Embedder
from babelens.inference import CrossEncoder
from babelens.inference.rc3_pipelines import CrossEncoderModule
from babelens.inference.sentence_modules import DualEncoderModule
from babelens.utils.errors import InputError
from babelens.utils.sentence_files import add_prompts
from tests.contracts import LANGUAGES, TEXTS, drawn_images
from tests.support.tiny_cross_encoder import tiny_cross_encoder
from tests.support.tiny_native import saved

TAGGED = [{"text": text, "language": language} for text, language in zip(TEXTS, LANGUAGES, strict=True)]
# Classes of a model's folder are its own copies of babelens' errors, with the builtin bases of these.
WRONG = ValueError


def loaded(folder: Path, **options) -> SentenceTransformer:
    return SentenceTransformer(str(folder), trust_remote_code=True, device="cpu", local_files_only=True, **options)


@pytest.fixture(scope="module", params=["mla", "smalr"])
def folder(request, folder_of) -> Path:
    return folder_of(request.param)


@pytest.fixture
def model(folder) -> SentenceTransformer:
    return loaded(folder)


def expected_texts(folder: Path, **loading) -> np.ndarray:
    return Embedder.from_pretrained(folder, device="cpu", **loading).encode_text(TEXTS, language=LANGUAGES)


def close(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_texts_have_the_embeddings_of_the_embedder(folder, model):
    expected = expected_texts(folder)
    close(model.encode(TAGGED, batch_size=4), expected)
    for text, language, row in zip(TEXTS, LANGUAGES, expected, strict=True):
        close(model.encode(text, prompt_name=language), row)
    close(model.encode(TEXTS[:1], language=LANGUAGES[0]), expected[:1])
    close(model.encode_query(TEXTS[:1], prompt_name="en"), expected[:1])
    close(model.encode_document(TEXTS[:1], prompt="en"), expected[:1])
    assert model.get_embedding_dimension() == expected.shape[1]


def test_images_have_the_embeddings_of_the_embedder(folder, model, tmp_path):
    images = drawn_images(3)
    images[0].getexif()[0x0112] = 6  # lies on its side
    images[1].putalpha(100)
    paths = [tmp_path / f"{index}.png" for index in range(3)]
    for image, path in zip(images, paths, strict=True):
        image.save(path, exif=image.getexif())
    expected = Embedder.from_pretrained(folder, device="cpu").encode_image(images)
    for several in (images, [str(path) for path in paths], [{"image": image} for image in images]):
        close(model.encode(several, batch_size=2), expected)
    close(model.encode([np.asarray(images[2])]), expected[2:])
    close(model.encode(images[0], prompt_name="en"), expected[0])  # as with a default prompt
    assert model.supports("image")


def test_a_language_is_named_and_known(folder_of):
    smalr, mla = loaded(folder_of("smalr")), loaded(folder_of("mla"))
    for ask in (
        lambda: smalr.encode(TEXTS),
        lambda: smalr.encode_query(TEXTS),
        lambda: smalr.encode(TAGGED[:1] + TEXTS[:1]),
    ):
        with pytest.raises(WRONG, match="the model has en, de, fr"):
            ask()
    for given in ({"language": "sw"}, {"prompt_name": "sw"}, {"language": LANGUAGES}):
        with pytest.raises(WRONG):
            mla.encode(TEXTS, **given)


@pytest.mark.parametrize("name", ["liwe", "mla"])
def test_a_language_may_be_left_out_where_one_is_known_or_none_matters(folder_of, name):
    model, text = loaded(folder_of(name)), "a red car"
    expected = Embedder.from_pretrained(folder_of(name), device="cpu").encode_text(text, language="en")
    close(model.encode([text]), expected)
    close(model.encode_query([text]), expected)
    close(model.encode([text, TAGGED[1]])[:1], expected)


def test_a_tag_that_no_prompt_names(folder_of, tmp_path):
    """A model with one vocabulary has the languages of ISO 639-1 as prompts; a card adds its own."""
    folder = shutil.copytree(folder_of("mural"), tmp_path / "mural")
    close(loaded(folder).encode(TEXTS[:1], language="zh-Hant"), expected_texts(folder)[:1])
    add_prompts(folder, ["zh-Hant"])
    close(loaded(folder).encode(TEXTS[:1], prompt_name="zh-Hant"), expected_texts(folder)[:1])
    close(loaded(folder, default_prompt_name="sw").encode(TEXTS), expected_texts(folder))


def test_the_head_of_a_task(make_mural, tmp_path):
    saved(make_mural(), tmp_path)
    expected = Embedder.from_pretrained(tmp_path, device="cpu").encode_text(TEXTS, language="de", task="text_text")
    close(loaded(tmp_path).encode(TEXTS, prompt_name="de", task="text_text"), expected)
    with pytest.raises(ValueError, match="no head for 'clustering'"):
        loaded(tmp_path).encode(TEXTS, prompt_name="de", task="clustering")


def test_saved_by_sentence_transformers_and_loaded_again(folder, model, tmp_path):
    model.prompts["query"] = "de"
    model.save_pretrained(str(tmp_path))
    again = loaded(tmp_path)
    assert again.prompts == model.prompts and again.prompts["query"] == "de"
    np.testing.assert_array_equal(again.encode(TAGGED), model.encode(TAGGED))
    np.testing.assert_array_equal(again.encode_query(TEXTS[1]), model.encode(TEXTS[1], language="de"))
    close(
        Embedder.from_pretrained(tmp_path, device="cpu").encode_text(TEXTS, language=LANGUAGES), model.encode(TAGGED)
    )
    assert {path.name for path in folder.iterdir()} <= {path.name for path in tmp_path.iterdir()}


WITHOUT_PACKAGE = """
import json, sys
import numpy as np
from sentence_transformers import CrossEncoder, SentenceTransformer

*folder_of, judge, texts, image, again, results = sys.argv[1:]
options = {"trust_remote_code": True, "device": "cpu", "local_files_only": True}
found = {"scores": CrossEncoder(judge, **options).predict([("thing 0", image)], prompt_name="de")}
for folder in folder_of:
    model = SentenceTransformer(folder, **options)
    name = folder.rpartition("/")[2]
    found[name + ".texts"] = model.encode(json.loads(texts), batch_size=2)
    found[name + ".image"] = model.encode(image)
model.save_pretrained(again)
model = SentenceTransformer(again, **options)
assert np.array_equal(model.encode(json.loads(texts), batch_size=2), found[name + ".texts"])
assert "babelens" not in sys.modules
np.savez(results, **found)
"""


def test_without_the_package(folder_of, judge, run_without_babelens, tmp_path):
    image = tmp_path / "image.png"
    drawn_images(1)[0].save(image)
    given = [folder_of(name) for name in ["mural", "mla", "mla_student", "smalr", "liwe"]]
    run_without_babelens(
        WITHOUT_PACKAGE, *given, judge, json.dumps(TAGGED), image, tmp_path / "again", tmp_path / "results.npz"
    )
    found = np.load(tmp_path / "results.npz")
    for folder in given:
        close(found[f"{folder.name}.texts"], expected_texts(folder))
        close(found[f"{folder.name}.image"], Embedder.from_pretrained(folder, device="cpu").encode_image(image)[0])
    own = CrossEncoder.from_pretrained(judge, device="cpu")
    same(found["scores"], own.score(["thing 0"], [image], language="de"))


QUERIES = ["thing 0", "a thing of many words, number 10", "ding 20"]


@pytest.fixture(scope="module")
def judge(tmp_path_factory) -> Path:
    return saved(tiny_cross_encoder(QUERIES, ["en", "de"]), tmp_path_factory.mktemp("judge"))


def same(found: np.ndarray, expected: np.ndarray) -> None:
    """Scores are not of unit length as embeddings are; compared as in `CrossEncoder`'s own tests."""
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_a_cross_encoder_has_the_same_scores(judge, tmp_path):
    images = drawn_images(3)
    images[2].save(tmp_path / "image.png")
    own = CrossEncoder.from_pretrained(judge, device="cpu")
    expected = own.score_all(QUERIES, images, language="de")
    theirs = sentence_transformers.CrossEncoder(str(judge), trust_remote_code=True, device="cpu")
    pairs = [(text, image) for text in QUERIES for image in images]
    same(theirs.predict(pairs, prompt_name="de", batch_size=4).reshape(3, 3), expected)
    same(theirs.predict([pair[::-1] for pair in pairs], language="de").reshape(3, 3), expected)
    same(theirs.predict([QUERIES[0], str(tmp_path / "image.png")], prompt_name="de"), expected[0, 2])
    tagged = [({"text": QUERIES[1], "language": tag}, images[1]) for tag in ("en", "de")]
    same(theirs.predict(tagged), own.score([QUERIES[1]] * 2, [images[1]] * 2, language=["en", "de"]))
    ranked = theirs.rank(QUERIES[0], images, prompt_name="de")
    assert [entry["corpus_id"] for entry in ranked] == (-expected[0]).argsort().tolist()
    ranked = theirs.rank(images[0], QUERIES, prompt_name="de")
    same(np.array([entry["score"] for entry in ranked]), np.sort(expected[:, 0])[::-1])


def test_what_is_not_one_kind_of_input_in_one_language_is_refused(make_mla):
    module = DualEncoderModule(*make_mla()).eval()
    image = drawn_images(1)[0]
    for inputs, options in (
        (["a red car"], {"prompt": "de", "language": "de"}),
        (["a red car"], {"language": ["de"]}),
        (["a red car", image], {"language": "en"}),
        ([{"caption": "a red car"}], {"language": "en"}),
        ([{"text": 1}], {"language": "en"}),
        (["a red car"], {"processing_kwargs": {"text": {"max_length": 2}}}),
    ):
        with pytest.raises(InputError):
            module.preprocess(inputs, **options)


def test_a_judge_reads_a_text_with_an_image():
    module, image = CrossEncoderModule(*tiny_cross_encoder(["ein Hund"], ["en", "de"])), drawn_images(1)[0]
    with pytest.raises(InputError, match="pair"):
        module.preprocess([(image, image)], language="de")
