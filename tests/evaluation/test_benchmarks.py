import numpy as np
import pytest
from scipy.stats import spearmanr

from babelens.data.benchmarks import benchmark_names
from babelens.evaluation import benchmarks as module, evaluate_retrieval, load_benchmark
from babelens.evaluation.benchmarks import sampled_spearman
from babelens.inference.embedder import Embedder
from babelens.utils.errors import CorpusError
from tests.support.published_layouts import BENCHMARKS


@pytest.fixture
def embedder(clip_parts):
    return Embedder(*clip_parts)


@pytest.fixture
def loaded(tmp_path):
    def load(name, languages=None):
        BENCHMARKS[name](tmp_path / name)
        return load_benchmark(name, tmp_path / name, languages)

    return load


@pytest.mark.parametrize("name", benchmark_names())
def test_every_benchmark_is_evaluated_beside_the_figures_of_papers(name, loaded, embedder, monkeypatch):
    monkeypatch.setattr(module, "FOLD", 2)
    benchmark = loaded(name)
    ranks = {}
    report = benchmark.evaluate(embedder, ranks=ranks)
    assert report["benchmark"] == name
    if name != "cxc":
        assert list(report["results"]) == [name]
        assert tuple(report["results"][name]) == benchmark.languages
        assert set(ranks) == {f"{name}/{language}" for language in benchmark.languages}
        assert all(0 <= numbers["mean_recall"] <= 100 for numbers in report["results"][name].values())
    assert ("all" in report["means"]) == (len(benchmark.languages) > 1)
    assert len(report["published"]) == len(benchmark.facts.figures)
    for table in report["published"]:
        assert len(table["ours"]) == len(table["columns"]) > 0
        assert all(len(values) == len(table["columns"]) for values in table["rows"].values())


def test_languages_search_all_images(loaded, embedder):
    benchmark = loaded("xtd", ["ko", "de"])
    report = benchmark.evaluate(embedder)
    assert report["results"]["xtd"] == evaluate_retrieval(embedder, benchmark.data, ["ko", "de"])
    ours = report["results"]["xtd"]["ko"]["t2i_r10"]
    (table,) = report["published"]
    assert table["columns"] == ["ko"] and table["ours"] == [ours]  # the paper has no figure in German
    assert table["rows"]["MURAL-LARGE"] == [88.1]
    means = [report["results"]["xtd"][language]["t2i_r1"] for language in ("ko", "de")]
    assert report["means"]["all"]["t2i_r1"] == np.mean(means)


def test_beside_mlas_figures_recall_is_counted_as_mla_counts_it(loaded, embedder, monkeypatch):
    benchmark = loaded("multi30k", ["de"])
    encoded = []
    encode = embedder.encode_text
    monkeypatch.setattr(
        embedder, "encode_text", lambda texts, **options: encoded.append(texts) or encode(texts, **options)
    )
    tables = {table["source"]: table for table in benchmark.evaluate(embedder)["published"]}
    assert len(encoded) == 1  # for both rankings
    (of_mla,) = (table for table in tables.values() if table["ranking"] == "mla")
    assert of_mla["rows"]["MLA, ViT-B-32"] == [78.7] and "best of their captions" in of_mla["note"]
    for table in tables.values():
        numbers = evaluate_retrieval(embedder, benchmark.data, "de", protocol=table["ranking"])["de"]
        assert table["ours"] == [numbers["mean_recall"]]


def test_folds_are_searched_alone(loaded, embedder, monkeypatch):
    benchmark = loaded("coco-1k")
    with pytest.raises(CorpusError, match="coco-1k has 4 images, which cannot be split"):
        benchmark.evaluate(embedder)
    monkeypatch.setattr(module, "FOLD", 2)
    ranks = {}
    (numbers,) = benchmark.evaluate(embedder, ranks=ranks)["results"]["coco-1k"].values()
    folds = [evaluate_retrieval(embedder, benchmark.data.select(rows), "en")["en"] for rows in ((0, 1), (2, 3))]
    for metric in ("t2i_r1", "i2t_r1", "mean_recall"):
        assert numbers[metric] == np.mean([fold[metric] for fold in folds])
    assert (numbers["n_images"], numbers["n_texts"], numbers["n_folds"]) == (4, 8, 2)
    joined = ranks["coco-1k/en"]
    assert joined.image_of_text.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert 100 * np.mean(joined.text_to_image <= 1) == numbers["t2i_r1"]
    assert joined.text_to_image.max() <= 2


class KnownEmbedder:
    def __init__(self, images: np.ndarray, texts: np.ndarray) -> None:
        self.images, self.texts = images, texts

    def encode_image(self, images):
        assert len(images) == len(self.images)
        return self.images

    def encode_text(self, texts, *, language):
        assert len(texts) == len(self.texts) and language == "en"
        return self.texts


def best_rank(scores: np.ndarray, right: list[int]) -> int:
    return 1 + int(np.sum(np.delete(scores, right) >= scores[right].max()))


def test_cxc_counts_all_positives_and_no_item_finds_itself(loaded):
    rng = np.random.default_rng(0)
    images, texts = rng.normal(size=(4, 6)), rng.normal(size=(8, 6))
    images, texts = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (images, texts))
    benchmark = loaded("cxc")
    ranks = {}
    results = benchmark.evaluate(KnownEmbedder(images, texts), ranks=ranks)["results"]
    positives = [[0, 1], [0], [1], [1], [2], [2], [3], [3]]
    inverse = [[text for text, right in enumerate(positives) if image in right] for image in range(4)]
    of_texts = [best_rank(row, right) for row, right in zip(texts @ images.T, positives, strict=True)]
    of_images = [best_rank(row, right) for row, right in zip(images @ texts.T, inverse, strict=True)]
    both = results["image-text"]["en"]
    assert both["t2i_r1"] == 100 * np.mean(np.array(of_texts) <= 1)
    assert (both["t2i_mean_rank"], both["i2t_mean_rank"]) == (np.mean(of_texts), np.mean(of_images))
    assert ranks["image-text/en"].text_to_image.tolist() == of_texts
    assert ranks["image-text/en"].image_of_text.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    near = texts @ texts.T
    np.fill_diagonal(near, -2)
    neighbors = [[1, 2], [0], [0, 3], [2], [5], [4], [7], [6]]
    expected = [
        best_rank(np.delete(row, t), [r - (r > t) for r in right])
        for t, (row, right) in enumerate(zip(near, neighbors, strict=True))
    ]
    assert results["text-text"]["en"]["mean_rank"] == np.mean(expected) and results["text-text"]["en"]["n"] == 8
    assert results["image-image"]["en"]["n"] == 2  # the others have no positive
    assert [results[kind]["en"]["n"] for kind in ("sts", "sis", "sits")] == [5, 4, 5]


def test_spearman_is_sampled_over_half_of_the_queries():
    rng = np.random.default_rng(1)
    queries = np.repeat(np.arange(40), 3)
    ratings = rng.uniform(0, 5, len(queries))
    scores = ratings + rng.normal(size=len(queries))
    mean, std = sampled_spearman(queries, ratings, scores, samples=400)
    drawn = []
    for _ in range(400):  # written as the paper describes it, with other draws
        chosen = rng.permutation(40)[:20]
        items = [rng.choice(np.flatnonzero(queries == query)) for query in chosen]
        drawn.append(spearmanr(ratings[items], scores[items])[0])
    assert mean == pytest.approx(np.mean(drawn), abs=0.03) and std == pytest.approx(np.std(drawn), abs=0.02)
    assert sampled_spearman(queries, ratings, scores, samples=400) == (mean, std)
    assert sampled_spearman(queries, ratings, 3 * ratings - 1, samples=5) == (pytest.approx(1), pytest.approx(0))
    assert np.isnan(sampled_spearman(queries, ratings, np.ones(len(queries)), samples=5)[0])
