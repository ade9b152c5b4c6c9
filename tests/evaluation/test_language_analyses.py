import numpy as np
import pytest
import torch
from datasets import Dataset

from babelens import Rc3Model
from babelens.data.corpus.loading import load_translations
from babelens.evaluation import analysis
from babelens.utils.errors import CorpusError, InputError
from tests.support.tiny_cross_encoder import tiny_cross_encoder


@pytest.fixture
def random():
    return np.random.default_rng(0)


def families(random, members=("en", "de", "sv"), others=("es", "fr", "it"), n=400):
    shared = random.standard_normal((n, 8))
    found = {}
    for tags in (members, others):
        own = shared + 0.8 * random.standard_normal((n, 8))
        found |= {tag: own + 0.3 * random.standard_normal((n, 8)) for tag in tags}
    return found


def test_svcca_is_the_mean_of_the_canonical_correlations_that_scikit_learn_finds(random):
    from sklearn.cross_decomposition import CCA
    from sklearn.decomposition import PCA

    x = random.standard_normal((120, 6)) * [3, 2, 1, 1, 0.02, 0.01]
    y = x[:, :4] @ random.standard_normal((4, 5)) + random.standard_normal((120, 5))
    kept = [PCA(0.99, svd_solver="full").fit_transform(each) for each in (x, y)]
    count = min(each.shape[1] for each in kept)
    assert [each.shape[1] for each in kept] == [4, 5]
    first, second = CCA(count, max_iter=5000, tol=1e-12).fit_transform(*kept)
    expected = np.mean([np.corrcoef(first[:, i], second[:, i])[0, 1] for i in range(count)])
    assert analysis.svcca(x, y) == pytest.approx(expected, abs=1e-6)


def test_the_tree_and_the_map_group_families(random):
    found = analysis.language_map(families(random))
    similarities = found.similarities
    within = [similarities[i, j] for half in (range(3), range(3, 6)) for i in half for j in half if i != j]
    assert min(within) > similarities[:3, 3:].max() > found.chance
    assert {frozenset(found.order[:3]), frozenset(found.order[3:])} == {
        frozenset(("en", "de", "sv")),
        frozenset(("es", "fr", "it")),
    }
    assert found.tree[-1, 3] == 6 and found.tree[-1, 2] == found.tree[:, 2].max()
    axis = found.coordinates[:, 0]  # the first coordinate separates the families
    assert (axis[:3] > 0).all() != (axis[3:] > 0).all()
    assert (np.sign(axis[:3]) == np.sign(axis[0])).all() and (np.sign(axis[3:]) == np.sign(axis[3])).all()


def test_distance_ratios_are_those_of_the_definition():
    anchor = np.zeros((2, 2))
    found = analysis.distance_ratios(
        {"en": anchor, "de": np.array([[3.0, 4.0], [0.0, 1.0]]), "ja": np.array([[0.0, 2.0], [0.0, 6.0]])},
        {"en": anchor, "de": np.array([[0.0, 10.0], [2.0, 0.0]]), "ja": np.array([[0.0, 1.0], [0.0, 0.0]])},
        ["a", "b"],
        anchor="en",
    )
    assert found.languages == ["de", "ja"] and found.ratios[0].tolist() == [0.5, 0.5]
    assert found.ratios[1, 0] == 2 and np.isnan(found.ratios[1, 1])
    assert found.median == {"de": 0.5, "ja": 2.0} and found.nearer == {"de": 100.0, "ja": 0.0}
    assert analysis.as_json(found)["ratios"] == [[0.5, 0.5], [2.0, None]]


def test_joint_representations_are_the_states_at_cls_of_texts_with_their_images():
    texts = {"en": ["a dog", "two red cats", "a tree"], "de": ["ein Hund", "zwei rote Katzen", "ein Baum"]}
    judge, processor = tiny_cross_encoder([text for each in texts.values() for text in each], ["en", "de"])
    model = Rc3Model(judge.config).eval()
    images = [np.full((16, 16, 3), value, dtype=np.uint8) for value in (10, 120, 250)]
    found = analysis.joint_representations(model, processor, texts, images, batch_size=2)
    assert list(found) == ["en", "de"] and found["de"].shape == (3, 16)
    inputs = processor(text=texts["de"][2], images=images[2], language="de", return_tensors="pt")
    with torch.no_grad():
        expected = model.encode(**inputs).last_hidden_state[:, 0]
    np.testing.assert_allclose(found["de"][2:], expected, atol=1e-5)
    with pytest.raises(InputError, match="there are 2 images"):
        analysis.joint_representations(model, processor, texts, images[:2])


def test_parallel_texts_are_the_first_captions_of_complete_rows(caption_corpus):
    found = analysis.parallel_texts(caption_corpus, ["de", "EN"])
    assert list(found.texts) == ["de", "en"]
    assert found.ids == [f"thing-{n}" for n in range(10)] and found.rows == list(range(10))
    assert found.texts["de"][3] == "ding 30" and found.texts["en"][3] == "thing 30"
    assert analysis.parallel_texts(caption_corpus, ["en", "de"], limit=2).ids == ["thing-0", "thing-5"]


def test_rows_without_a_language_are_left_out():
    corpus = load_translations(
        Dataset.from_list([{"en": "one", "de": "eins", "fr": None}, {"en": "two", "de": "zwei", "fr": "deux"}])
    )
    assert analysis.parallel_texts(corpus, ["fr", "en"]).texts == {"fr": ["deux"], "en": ["two"]}
    assert analysis.parallel_texts(corpus, ["en", "de"]).ids == ["0", "1"]
    with pytest.raises(CorpusError, match="no captions in ja; the corpus has"):
        analysis.parallel_texts(corpus, ["en", "ja"])


ROWS = np.random.default_rng(0).standard_normal((40, 3))
REFUSED = {
    "same texts": lambda: analysis.svcca(ROWS, ROWS[1:]),
    "nothing to compare": lambda: analysis.svcca(ROWS, np.ones_like(ROWS)),
    "too few": lambda: analysis.svcca(ROWS[:4], ROWS[:4]),
    "at least one label": lambda: analysis.label_map(ROWS, [0] * len(ROWS), {}, ["cat"]),
    "does not distinguish de from en": lambda: analysis.distance_ratios(
        {"en": ROWS, "de": ROWS + 1}, {"en": ROWS, "de": ROWS}, [""] * 40, anchor="en"
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_compared_is_refused(message):
    with pytest.raises(InputError, match=message):
        REFUSED[message]()
