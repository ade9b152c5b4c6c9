"""Languages learned in closed form: equal to solving without each sentence, to the normal equations, and to a plain
ridge regression; what was learned before stays as it is."""

import numpy as np
import pytest
import torch

from babelens.configuration.errors import CorpusError
from babelens.data.emoji.translations import NameTranslations
from babelens.inference.embedder import Embedder
from babelens.modeling.modeling_ridge import RidgeModel
from babelens.processing.processing_ridge import RidgeProcessor
from babelens.trainers import ridge

COLORS = ["red", "green", "blue", "black", "white"]
THINGS = ["car", "dog", "cat", "tree", "house", "boat"]
SENTENCES = [f"a {color} {thing}" for color in COLORS for thing in THINGS]
# A language whose words are those of English, reversed.
MIRRORED = [sentence[::-1] for sentence in SENTENCES]
SPELLED = [sentence.replace("a", "ä").upper() for sentence in SENTENCES]


@pytest.fixture
def learner(make_ridge):
    """A tiny model without languages, and its processor."""
    tiny, processor = make_ridge()
    model = RidgeModel.from_models(tiny.native_model, ngram_rows=256, rank=8, shortest_ngram=2, longest_ngram=3)
    read = processor.native
    return model, RidgeProcessor(read.image_processor, read.tokenizer, max_text_length=64, max_native_length=64)


def random_parts(count: int = 60, width: int = 24, rank: int = 5):
    torch.manual_seed(0)
    features, beside = torch.rand(count, width), torch.randn(count, 6)
    return features, beside, features @ torch.randn(width, rank) + 0.3 * torch.randn(count, rank)


def test_each_sentence_left_out_is_as_solving_without_it():
    features, beside, targets = random_parts()
    map_, strength, weight, tested, left_out = ridge._solve_dual(
        lambda rows: features[rows], lambda rows: beside[rows], targets
    )
    whole = torch.cat([features, weight**0.5 * beside], 1).double()
    identity = strength * torch.eye(whole.shape[1], dtype=torch.float64)
    for row in range(0, 60, 7):
        rest = torch.arange(60) != row
        solved = torch.linalg.solve(whole[rest].T @ whole[rest] + identity, whole[rest].T @ targets[rest].double())
        torch.testing.assert_close(left_out[row].double(), whole[row] @ solved, rtol=0, atol=1e-4)
    expected = torch.linalg.solve(whole.T @ whole + identity, whole.T @ targets.double())
    expected[24:] *= weight**0.5
    torch.testing.assert_close(map_.double(), expected, rtol=0, atol=1e-4)
    assert torch.equal(tested, torch.arange(60))


def test_many_sentences_are_solved_by_normal_equations_to_the_same_map(monkeypatch):
    features, beside, targets = random_parts()
    monkeypatch.setattr(ridge, "_CHUNK", 16)
    map_, strength, weight, tested, predicted = ridge._solve_primal(
        lambda rows: features[rows], lambda rows: beside[rows], targets
    )
    monkeypatch.setattr(ridge, "_STRENGTHS", (strength,))
    monkeypatch.setattr(ridge, "_ENCODER_WEIGHTS", (weight,))
    expected = ridge._solve_dual(lambda rows: features[rows], lambda rows: beside[rows], targets)[0]
    torch.testing.assert_close(map_, expected, rtol=0, atol=2e-4)
    assert len(tested) == len(predicted) == 12


class Teacher:
    """Stands in for the native model: a sentence is the sum of its words, which a random tiny CLIP does not know."""

    def __init__(self, *given, **options) -> None:
        self.model, self.processor = given or (None, None)
        rng = np.random.default_rng(0)
        self.words = {word: rng.normal(size=16) for word in [*COLORS, *THINGS, "a"]}

    def encode_text(self, texts, *, language):
        unknown = np.random.default_rng(1).normal(size=16)
        sums = [sum(self.words.get(word, unknown) for word in text.split()) for text in texts]
        return np.stack([each / np.linalg.norm(each) for each in sums]).astype(np.float32)


def test_a_language_finds_what_it_was_not_solved_with(learner, monkeypatch, tmp_path):
    model, processor = learner
    monkeypatch.setattr(ridge, "Embedder", Teacher)
    results = ridge.learn(model, processor, {"de": (MIRRORED, SENTENCES)}, cache_dir=str(tmp_path))
    assert results["de"].pairs == results["de"].tested == 30
    assert results["de"].r10 > 2 * results["de"].chance
    assert results["de"].r10_low <= results["de"].r10 <= results["de"].r10_high
    assert results["de"].warning("de") is None
    embedder = Embedder(model, processor)
    found = embedder.encode_text(MIRRORED, language="de") @ Teacher().encode_text(SENTENCES, language="en").T
    assert (found.argmax(1) == np.arange(30)).mean() > 0.8
    # A single language is also the one of texts whose language is not stated.
    unstated = embedder.encode_text(MIRRORED, language="und")
    np.testing.assert_array_equal(unstated, embedder.encode_text(MIRRORED, language="de"))


def test_what_was_learned_before_stays_bitwise_the_same(learner, tmp_path):
    model, processor = learner
    ridge.learn(model, processor, {"de": (MIRRORED, SENTENCES)})
    before = {tag: Embedder(model, processor).encode_text(MIRRORED, language=tag) for tag in ("de", "en", "und")}
    model.save_pretrained(tmp_path)
    model = RidgeModel.from_pretrained(tmp_path)
    ridge.learn(model, processor, {"fr": (SPELLED, SENTENCES), "cs": (MIRRORED, SENTENCES)})
    assert model.config.languages == processor.languages == ["de", "fr", "cs"]
    for tag, expected in before.items():
        np.testing.assert_array_equal(Embedder(model, processor).encode_text(MIRRORED, language=tag), expected)


def test_sentences_that_do_not_belong_together_are_told_in_words(learner):
    model, processor = learner
    shuffled = [MIRRORED[row] for row in np.random.default_rng(1).permutation(30)]
    result = ridge.learn(model, processor, {"de": (shuffled, SENTENCES)})["de"]
    assert "hardly translate each other" in (result.warning("de") or "")


@pytest.mark.parametrize("texts", [MIRRORED[:5], MIRRORED[:1] * 30])
def test_too_few_sentences_are_refused(learner, texts):
    with pytest.raises(CorpusError, match="at least 10"):
        ridge.learn(*learner, {"de": (texts, SENTENCES[: len(texts)])})


def test_a_map_is_rounded_to_8_bits_of_each_direction(learner):
    model, _ = learner
    model.maps.add(1)
    torch.manual_seed(0)
    wanted = torch.randn(256, 8) * torch.logspace(-3, 3, 8)
    model.maps.set(1, torch.ones(256), wanted, None)
    found = model.maps.ngrams[1].float() * model.maps.factors[1]
    assert ((found - wanted).abs() <= wanted.abs().amax(0) / 127 / 2 * 1.001).all()


def test_names_beside_sentences_are_further_rows_of_the_regression():
    """Of less weight; each sentence is still predicted by a map that was solved without it."""
    features, encoded, targets = random_parts()
    torch.manual_seed(1)
    names, read, wanted = 0.5 * torch.rand(20, 24), 0.5 * torch.randn(20, 6), torch.randn(20, 5)
    beside = ridge._Beside(names, read, wanted)
    map_, strength, weight, _, left_out = ridge._solve_dual(
        lambda rows: features[rows], lambda rows: encoded[rows], targets, beside
    )
    whole = torch.cat([torch.cat([features, names]), weight**0.5 * torch.cat([encoded, read])], 1).double()
    right = torch.cat([targets, wanted]).double()
    identity = strength * torch.eye(whole.shape[1], dtype=torch.float64)
    expected = torch.linalg.solve(whole.T @ whole + identity, whole.T @ right)
    scaled = expected.clone()
    scaled[24:] *= weight**0.5
    torch.testing.assert_close(map_.double(), scaled, rtol=0, atol=1e-4)
    for row in (0, 31, 59):
        rest = torch.arange(80) != row
        solved = torch.linalg.solve(whole[rest].T @ whole[rest] + identity, whole[rest].T @ right[rest])
        torch.testing.assert_close(left_out[row].double(), whole[row] @ solved, rtol=0, atol=1e-4)


def test_a_language_learns_words_from_names_that_no_sentence_has(learner, monkeypatch, tmp_path):
    model, processor = learner
    monkeypatch.setattr(ridge, "Embedder", Teacher)
    known = [row for row in SENTENCES if "boat" not in row]
    names = NameTranslations("de", 0.2, [([word[::-1] for word in THINGS], THINGS)])
    learned = {"de": ([row[::-1] for row in known], known)}
    results = ridge.learn(model, processor, learned, names={"de": names}, cache_dir=str(tmp_path))
    assert results["de"].names == "de"
    sentences = [row for row in SENTENCES if row.startswith("a red")]
    found = Embedder(model, processor).encode_text([row[::-1] for row in sentences], language="de")
    similar = found @ Teacher().encode_text(sentences, language="en").T
    assert sentences[similar[-1].argmax()] == "a red boat"
