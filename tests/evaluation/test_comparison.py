from dataclasses import replace

import numpy as np
import pytest

from babelens.data.batching.views import retrieval_set
from babelens.evaluation.comparison import compare, image_contributions, paired_bootstrap, spread, without_ranks
from babelens.evaluation.ranking import QueryRanks, RetrievalRanks, read_ranks, write_ranks
from babelens.evaluation.results import Results
from babelens.evaluation.retrieval import evaluate_retrieval
from babelens.inference.embedder import Embedder
from babelens.utils.errors import InputError

METRICS = ["t2i_r1", "t2i_r5", "t2i_r10", "i2t_r1", "i2t_r5", "i2t_r10", "mean_recall"]


def run_of(name, seed, *, bias=0.0, n_images=60, texts_per_image=3, languages=("de", "fr"), queries="same"):
    run = Results(name)
    for index, language in enumerate(languages):
        random = np.random.default_rng([seed, index])
        image_of_text = np.repeat(np.arange(n_images), texts_per_image)
        text_ranks = random.geometric(0.1 + bias, len(image_of_text))
        image_ranks = random.geometric(0.1 + bias, n_images)
        found = RetrievalRanks(text_ranks, image_ranks)
        ranks = QueryRanks(text_ranks, image_ranks, image_of_text, f"{queries} {language}", "images")
        run.add({language: found.recalls()}, {language: ranks}, dataset="captions")
    return run


def test_the_ranks_give_the_recalls_again(clip_parts, caption_corpus, tmp_path):
    """Even for an image without a text, texts of several images, and ranks that were saved."""
    ranks = {}
    recalls = evaluate_retrieval(Embedder(*clip_parts), caption_corpus, ["en", "de"], ranks=ranks)
    assert recalls == evaluate_retrieval(Embedder(*clip_parts), caption_corpus, ["en", "de"])
    write_ranks(tmp_path / "x.ranks.npz", {f"captions/{language}": each for language, each in ranks.items()})
    read = read_ranks(tmp_path / "x.ranks.npz")
    assert list(read) == ["captions/en", "captions/de"]
    for language, numbers in recalls.items():
        again = read[f"captions/{language}"]
        for metric in METRICS:
            assert image_contributions([again], metric).sum() == pytest.approx(numbers[metric])
        queries = retrieval_set(caption_corpus, language)
        assert (
            again.queries
            == ranks[language].queries
            == QueryRanks.of(queries, RetrievalRanks(again.text_to_image, again.image_to_text)).queries
        )
    assert read["captions/en"].queries != read["captions/de"].queries
    assert read["captions/en"].images == read["captions/de"].images


def test_damaged_ranks_are_refused(tmp_path):
    file = tmp_path / "x.ranks.npz"
    write_ranks(file, {"captions/de": run_of("a", 0).ranks["captions/de"]})
    for content in (file.read_bytes()[:-30], b"PK nothing"):
        file.write_bytes(content)
        with pytest.raises(InputError, match=r"x\.ranks\.npz is damaged"):
            read_ranks(file)


def test_rows_of_seeds():
    rows = {
        "weak": [run_of(f"weak/seed-{seed}", seed) for seed in (1, 2, 3)],
        "strong": [run_of(f"strong/seed-{seed}", 10 + seed, bias=0.2) for seed in (1, 2, 3)],
    }
    scores = compare(rows)
    by_place = {(score.language, score.row, score.metric): score for score in scores}
    assert list(dict.fromkeys(score.language for score in scores)) == ["de", "fr", "mean"]
    assert list(dict.fromkeys(score.metric for score in scores)) == METRICS
    for (language, row, metric), score in by_place.items():
        if language != "mean":
            assert score.values == [run.scores["captions", language][metric].value for run in rows[row]]
        assert (score.difference is None) == (row == "weak")
        if score.difference:
            gain = score.mean - by_place[language, "weak", metric].mean
            assert score.difference.value == pytest.approx(gain)
            assert score.difference.low < gain < score.difference.high
    mean = by_place["mean", "strong", "t2i_r1"]
    assert mean.values == [
        np.mean([run.scores["captions", tag]["t2i_r1"].value for tag in ("de", "fr")]) for run in rows["strong"]
    ]
    assert mean.difference.stars == "***"
    # Two languages say more than one.
    one = by_place["de", "strong", "t2i_r1"].difference
    assert mean.difference.high - mean.difference.low < one.high - one.low
    assert str(mean) == f"{spread(mean.values)} ***" and " ± " in str(mean)


def with_images_of_their_own(run, n_images):
    other = run_of(run.name, int(run.name), bias=int(run.name) / 10, n_images=n_images, languages=["it", "fr"])
    run.scores["captions", "fr"] = other.scores["captions", "fr"]
    run.ranks["captions/fr"] = replace(other.ranks["captions/fr"], images="other images")
    return [run]


def test_the_mean_of_languages_with_images_of_their_own_draws_within_each():
    few, many = (with_images_of_their_own(run_of(str(n), n, bias=n / 10), 25) for n in (0, 1))
    found = {score.language: score for score in compare({"a": few, "b": many}, ["t2i_r5"]) if score.difference}
    first = np.mean([few[0].scores["captions", language]["t2i_r5"].value for language in ("de", "fr")])
    assert found["mean"].difference.value == pytest.approx(found["mean"].mean - first)
    keys, each = [("captions", "de"), ("captions", "fr")], []
    for key in keys:
        before, after = (image_contributions([run[0].ranks["/".join(key)]], "t2i_r5") for run in (few, many))
        each.append(after - before)
    assert [len(one) for one in each] == [60, 25]
    random = np.random.default_rng(5)
    drawn = sum(one[random.integers(0, len(one), (20_000, len(one)))].sum(1) for one in each) / 2
    low, high = np.percentile(drawn, [2.5, 97.5])
    width = high - low
    assert found["mean"].difference.low == pytest.approx(low, abs=0.05 * width)
    assert found["mean"].difference.high == pytest.approx(high, abs=0.05 * width)


def test_other_queries_are_refused():
    one = [run_of("one", 0)]
    with pytest.raises(InputError, match="queries of t2i_r1 is 180 and 177"):
        compare({"one": one, "other": [run_of("other", 0, n_images=59)]})
    with pytest.raises(InputError, match="different queries"):
        compare({"one": one, "other": [run_of("other", 0, queries="others")]})
    with pytest.raises(InputError, match="in common"):
        compare({"one": one, "other": [run_of("other", 0, languages=["sw"])]})
    with pytest.raises(InputError, match="r10"):
        compare({"one": one}, ["r10"])


def test_without_ranks_there_are_means_and_no_differences():
    old = run_of("old", 0)
    old.ranks.clear()
    rows = {"new": [run_of("new", 1)], "old": [old]}
    assert without_ranks(rows) == ["old"]
    assert all(score.difference is None for score in compare(rows))
    for metric, names in {"accuracy": ["task"], "r1": ["task"], "bleu": []}.items():
        run = Results("task")
        run.add({"en": {metric: 70.0, "n": 9}}, dataset="xvnli")
        assert without_ranks({"task": [run]}) == names


def test_the_accuracy_of_labels_is_compared_image_by_image():
    labels = np.random.default_rng(0).integers(1, 3, (2, 40))
    images = [f"image {row // 2}" for row in range(40)]
    runs = {}
    for name, ranks in zip("ab", labels, strict=True):
        found = QueryRanks.of_labels([f"text {row}" for row in range(40)], images, ranks)
        runs[name] = [Results(name)]
        runs[name][0].add(
            {"en": {"accuracy": 100 * float((ranks == 1).mean()), "n": 40}}, {"en": found}, dataset="xvnli"
        )
    first, second = compare(runs)
    each = ((labels[1] == 1).astype(float) - (labels[0] == 1)).reshape(20, 2).sum(1) * 100 / 40
    assert second.difference == paired_bootstrap(each)
    assert second.difference.value == pytest.approx(second.mean - first.mean)
