import pytest
import torch

from babelens.trainers import ridge_solving
from babelens.trainers.ridge_solving import Further, solve_by_held_out, solve_by_similarities


def random_parts(count: int = 60, width: int = 24, rank: int = 5):
    torch.manual_seed(0)
    ngrams, encoded = torch.rand(count, width), torch.randn(count, 6)
    return ngrams, encoded, ngrams @ torch.randn(width, rank) + 0.3 * torch.randn(count, rank)


def random_further(count: int = 20, width: int = 24):
    torch.manual_seed(1)
    return Further((0.5 * torch.rand(count, width)).to_sparse(), torch.randn(count, 5))


def features_of(rows: torch.Tensor):
    return lambda positions: rows[positions]


def ngrams_of(rows: torch.Tensor):
    return lambda positions: rows[positions].to_sparse()


@pytest.mark.parametrize("further", [None, random_further()], ids=["alone", "with further texts"])
def test_each_text_left_out_is_as_solving_without_it(further):
    ngrams, encoded, targets = random_parts()
    found = solve_by_similarities(ngrams_of(ngrams), features_of(encoded), targets, further)
    root = found.encoder_weight**0.5
    whole, right = torch.cat([ngrams, root * encoded], 1).double(), targets.double()
    if further is not None:
        whole = torch.cat([whole, torch.cat([further.ngrams.to_dense(), torch.zeros(20, 6)], 1).double()])
        right = torch.cat([right, further.targets.double()])
    identity = found.strength * torch.eye(whole.shape[1], dtype=torch.float64)

    def plain(rows):
        return torch.linalg.solve(whole[rows].T @ whole[rows] + identity, whole[rows].T @ right[rows])

    everything = torch.arange(len(whole))
    expected = plain(everything)
    torch.testing.assert_close(found.ngrams.double(), expected[:24], rtol=0, atol=1e-4)
    torch.testing.assert_close(found.encoder.double(), root * expected[24:], rtol=0, atol=1e-4)
    assert torch.equal(found.tested, torch.arange(60))
    for row in range(0, 60, 7):
        left_out = whole[row] @ plain(everything != row)
        torch.testing.assert_close(found.predicted[row].double(), left_out, rtol=0, atol=1e-4)
    for solve in (solve_by_similarities, solve_by_held_out):
        assert solve(ngrams_of(ngrams), features_of(encoded), targets, further, 3.0).strength == 3.0


@pytest.mark.parametrize("further", [None, random_further()], ids=["alone", "with further texts"])
def test_a_choice_by_held_out_texts_gives_the_same_map(monkeypatch, further):
    ngrams, encoded, targets = random_parts()
    monkeypatch.setattr(ridge_solving, "CHUNK", 16)
    found = solve_by_held_out(ngrams_of(ngrams), features_of(encoded), targets, further)
    monkeypatch.setattr(ridge_solving, "_STRENGTHS", ((found.strength,), ()))
    monkeypatch.setattr(ridge_solving, "_ENCODER_WEIGHTS", (found.encoder_weight,))
    expected = solve_by_similarities(ngrams_of(ngrams), features_of(encoded), targets, further)
    torch.testing.assert_close(found.ngrams, expected.ngrams, rtol=0, atol=2e-4)
    torch.testing.assert_close(found.encoder, expected.encoder, rtol=0, atol=2e-4)
    assert len(found.tested) == len(found.predicted) == 12


@pytest.mark.parametrize("count", [3, 256, 600])
def test_products_of_sparse_ngrams_are_those_of_dense_ones(count):
    torch.manual_seed(0)
    ngrams = torch.rand(count, 40) * (torch.rand(count, 40) < 0.1)
    found = ridge_solving._similar(ngrams.to_sparse())
    torch.testing.assert_close(found.tril(), (ngrams @ ngrams.T).tril())
