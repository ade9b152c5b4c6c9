import json

import numpy as np
import pytest
from PIL import Image

from babelens import Embedder
from babelens.evaluation import evaluate_retrieval
from babelens.evaluation.retrieval import RetrievalEvaluator
from babelens.inference import EmbeddingJob, ImageIndex, embed_source
from babelens.inference.onnx.export import export_onnx
from babelens.search import build_index, search_index
from babelens.utils.errors import InputError
from tests.support.tiny_native import saved, tiny_clip
from tests.support.tiny_training import shapes_corpus

TEXTS = ["ein Hund", "eine Katze auf dem Dach"]


def first(embeddings, width):
    cut = embeddings[:, :width]
    return cut / np.linalg.norm(cut, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def folder(make_mural, tmp_path_factory):
    return saved(make_mural(), tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def whole(folder):
    return Embedder.from_pretrained(folder).encode_text(TEXTS, language="de")


def test_an_embedder_keeps_the_first_dimensions(folder, whole, make_mural, tmp_path):
    stating = saved(make_mural(truncate_dim=6), tmp_path / "stating")
    image = Image.new("RGB", (40, 40), "red")
    for embedder in (Embedder.from_pretrained(folder, truncate_dim=6), Embedder.from_pretrained(stating)):
        assert embedder.truncate_dim == 6
        np.testing.assert_allclose(embedder.encode_text(TEXTS, language="de"), first(whole, 6), atol=1e-6)
        assert embedder.encode_image(image).shape == (1, 6)
    assert Embedder.from_pretrained(stating, truncate_dim=3).encode_text(TEXTS, language="de").shape == (2, 3)
    with pytest.raises(InputError, match="truncate_dim=999: the embeddings of this MuralModel have"):
        Embedder.from_pretrained(folder, truncate_dim=999).encode_text(TEXTS, language="de")
    with pytest.raises(InputError, match="truncate_dim=0 must be at least 1"):
        Embedder.from_pretrained(folder, truncate_dim=0)


def test_graphs_compute_them_alone(folder, whole, tmp_path):
    assert export_onnx(folder, tmp_path / "onnx", truncate_dim=6).settings.width == 6
    found = Embedder.from_pretrained(tmp_path / "onnx", backend="onnx").encode_text(TEXTS, language="de")
    np.testing.assert_allclose(found, first(whole, 6), atol=1e-4)


def test_the_cache_of_images_knows_how_many(folder, tmp_path):
    photos = tmp_path / "photos"
    photos.mkdir()
    Image.new("RGB", (40, 40), "red").save(photos / "red.png")
    for width in (None, 6, None, 6):
        embedder = Embedder.from_pretrained(folder, truncate_dim=width)
        index = ImageIndex.of_folder(embedder, photos, cache=tmp_path / "cache")
        assert index.embeddings.shape[1] == (width or embedder.model.config.projection_dim)
    assert len(list((tmp_path / "cache").glob("*.npz"))) == 2


def test_an_index_cuts_its_queries(folder, tmp_path):
    photos = tmp_path / "photos"
    photos.mkdir()
    for color in ("red", "green", "blue"):
        Image.new("RGB", (40, 40), color).save(photos / f"{color}.png")
    short = Embedder.from_pretrained(folder, truncate_dim=6)
    embed_source(short, EmbeddingJob(str(photos), tmp_path / "embedded"), model=str(folder))
    index = build_index(tmp_path / "index", tmp_path / "embedded")
    assert index.info.dimension == 6
    by_all, by_short = (
        search_index(index, embedder, TEXTS, language="de") for embedder in (Embedder.from_pretrained(folder), short)
    )
    assert [hit.id for hit in by_all] == [hit.id for hit in by_short]
    np.testing.assert_allclose([hit.score for hit in by_all], [hit.score for hit in by_short], atol=1e-3)


def test_every_width_is_evaluated(make_mural):
    model, processor = make_mural(matryoshka_dims=[4, 2])
    corpus = shapes_corpus()
    found = RetrievalEvaluator(languages=["de"])(model, processor, corpus)
    for width in (4, 2):
        cut = Embedder(model, processor, truncate_dim=width)
        assert found[f"mean_recall_dim_{width}_de"] == evaluate_retrieval(cut, corpus, ["de"])["de"]["mean_recall"]
    assert found["mean_recall"] == evaluate_retrieval(Embedder(model, processor), corpus, ["de"])["de"]["mean_recall"]


@pytest.mark.parametrize("states", [True, False])
def test_a_repository_is_read_as_its_folder(tmp_path, states, monkeypatch):
    """From its download: `config_sentence_transformers.json` states the width, or does not exist."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # AutoModel asks for an adapter otherwise
    commit = "0" * 40
    repository = tmp_path / "models--ada--clip"
    folder = saved(tiny_clip(), repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    if states:
        (folder / "config_sentence_transformers.json").write_text(json.dumps({"truncate_dim": 6}))
    found = Embedder.from_pretrained("ada/clip", cache_dir=tmp_path, local_files_only=True).encode_text(TEXTS)
    assert found.shape == (2, 6 if states else 16)
    np.testing.assert_array_equal(found, Embedder.from_pretrained(folder).encode_text(TEXTS))
