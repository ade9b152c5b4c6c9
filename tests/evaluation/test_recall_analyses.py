"""What languages find together, what was forgotten, and recall beside training texts: answers known beforehand."""

import json

import numpy as np
import pytest

from babelens.configuration.errors import ComparisonError
from babelens.evaluation.analysis import (
    TrainingTexts,
    as_json,
    forgetting,
    language_agreement,
    recall_by_data,
)
from babelens.evaluation.comparison import RunResults
from babelens.evaluation.query_ranks import QueryRanks
from babelens.evaluation.retrieval import evaluate_retrieval


def ranks_of(ranks, images=None, digest="same"):
    """The ranks of texts, each about the image of its own index or of `images`."""
    text_to_image = np.array(ranks, dtype=np.int32)
    image_of_text = np.arange(len(ranks)) if images is None else np.array(images)
    return QueryRanks(text_to_image, np.ones(4, dtype=np.int32), image_of_text, "queries", digest)


def test_agreement_counts_what_all_one_and_no_language_finds():
    ranks = {"en": ranks_of([1, 2, 50, 50]), "de": ranks_of([3, 50, 50, 50]), "sw": ranks_of([5, 50, 4, 50])}
    found = language_agreement(ranks, k=5, image_ids=["a", "b", "c", "d"])
    assert found.in_all == ["a"] and found.in_none == ["d"] and found.by_count == [1, 2, 0, 1]
    assert found.found_alone == {"en": ["b"], "de": [], "sw": ["c"]}
    assert found.found == {"en": 50.0, "de": 25.0, "sw": 50.0}
    assert found.shared.tolist() == [[100, 50, 50], [100, 100, 100], [50, 50, 100]]
    assert sum(found.expected_by_count) == pytest.approx(4)
    assert found.expected_by_count[0] == pytest.approx(4 * 0.5 * 0.75 * 0.5)


def test_an_image_is_found_by_its_best_caption_and_asked_in_all_languages():
    ranks = {"en": ranks_of([9, 1, 9], images=[0, 0, 2]), "de": ranks_of([1, 9, 1], images=[0, 2, 3])}
    found = language_agreement(ranks, k=1)
    assert found.n_images == 2 and found.n_searched == 4  # image 1 has no caption, and image 3 none in English
    assert found.in_all == ["0"] and found.in_none == ["2"]


def test_a_language_that_finds_nothing_shares_nothing():
    found = language_agreement({"en": ranks_of([1, 1]), "de": ranks_of([9, 9])}, k=1)
    assert as_json(found)["shared"] == [[100.0, 0.0], [None, None]]


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        ({"en": ranks_of([1])}, "two or more"),
        ({"en": ranks_of([1]), "de": ranks_of([1], digest="other")}, "en and de search different images"),
        ({"en": ranks_of([1], images=[0]), "de": ranks_of([1], images=[1])}, "no image has captions in all of en, de"),
    ],
)
def test_ranks_that_cannot_be_compared_are_refused(ranks, message):
    with pytest.raises(ComparisonError, match=message):
        language_agreement(ranks)


@pytest.fixture
def evaluated(caption_corpus, color_embedder):
    """The results of a model that makes these mistakes."""

    def evaluate(name, mistakes):
        ranks = {}
        scores = evaluate_retrieval(color_embedder(mistakes), caption_corpus, ["en", "de"], ranks=ranks)
        return RunResults(
            name,
            {("captions", language): numbers for language, numbers in scores.items()},
            {("captions", language): each for language, each in ranks.items()},
        )

    return evaluate


def test_what_was_forgotten_is_the_difference_to_the_first_model(evaluated):
    mistakes = {f"thing {10 * n}": 10 * (9 - n) for n in range(10)}
    models = {"before": [evaluated("before", {})], "after": [evaluated("after", mistakes)]}
    found = forgetting(models, metric="t2i_r1")
    assert found.languages == ["en", "de"] and found.models == ["before", "after"]
    assert found.scores.tolist() == [[100, 0], [100, 100]] and found.differences.tolist() == [[-100], [0]]
    assert found.forgotten == ["en"] and found.tests[0][0].stars == "***" and not found.tests[1][0].stars
    assert (found.mean_before, found.mean_after) == (100, 50)
    assert json.loads(json.dumps(as_json(found)))["tests"][0][0]["value"] == -100


def test_results_without_ranks_are_compared_without_a_test():
    scores = [{("validation", "de"): {"t2i_r1": value}} for value in (40.0, 39.0)]
    models = {name: [RunResults(name, each)] for name, each in zip(("a", "b"), scores, strict=True)}
    found = forgetting(models, metric="t2i_r1")
    assert found.forgotten == ["de"] and found.tests == [[None]] and found.test_set == "validation"
    with pytest.raises(ComparisonError, match="no test set 'other' in all of the results; there are validation"):
        forgetting(models, metric="t2i_r1", test_set="other")
    with pytest.raises(ComparisonError, match="two models or more"):
        forgetting({"a": models["a"]})


def test_means_of_languages_are_no_languages():
    scores = {("emoji", "de"): {"t2i_r1": 1.0}, ("emoji", "fr"): {"t2i_r1": 3.0}}
    groups = {"emoji": {"mean, image pairs": ["de", "fr"]}}
    models = {name: [RunResults(name, scores, {}, groups)] for name in ("a", "b")}
    assert forgetting(models, metric="t2i_r1").languages == ["de", "fr"]


def test_the_rank_correlation_with_training_texts():
    amounts = {"en": TrainingTexts(captions=1000), "de": TrainingTexts(10, 500), "sw": TrainingTexts(translations=20)}
    found = recall_by_data(amounts, {"en": 90.0, "de": 60.0, "sw": 30.0, "yo": 5.0})
    assert found.correlation == pytest.approx(1) and found.trained_correlation == pytest.approx(1)
    assert found.captions == [1000, 10, 0, 0] and found.translations == [0, 500, 20, 0]
    turned = recall_by_data(amounts, {"en": 5.0, "de": 30.0, "sw": 60.0, "yo": 90.0})
    assert turned.correlation == pytest.approx(-1)


def test_as_many_texts_in_all_languages_have_no_correlation():
    amounts = dict.fromkeys(("en", "de", "fr"), TrainingTexts(captions=10))
    found = recall_by_data(amounts, {"en": 1.0, "de": 2.0, "fr": 3.0})
    assert found.correlation is found.p is found.trained_correlation is None
    with pytest.raises(ComparisonError, match="at least 3 languages"):
        recall_by_data(amounts, {"en": 1.0, "de": 2.0})
