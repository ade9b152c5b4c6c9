import gzip

import numpy as np
import pytest

from babelens.processing.word_vectors import dictionary_words, read_vectors, reduce_vectors, train_vectors
from babelens.utils.errors import InputError

FILE = "4 3\nder 1 0 0\nHund 0 1 0.5 \nhund 9 9 9\nKatze -1 2e-1 3\n"


@pytest.fixture
def vec(tmp_path):
    def write(content: str | bytes, name: str = "cc.de.3.vec"):
        path = tmp_path / name
        content = content if isinstance(content, bytes) else content.encode()
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return write


def test_wanted_words_are_read_in_the_vocabularys_order(vec, caplog):
    found = read_vectors(vec(FILE, "cc.de.3.vec.gz"), ["katze", "maus", "hund"], "de")
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, np.float32([[-1, 0.2, 3], [0, 0, 0], [0, 1, 0.5]]))
    assert "de: 1 of 3 words have no vector, such as maus" in caplog.text


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("2 3\nder 1 0 0\nund 1 0 0 0\n", "line 3: .*; it has 4"),
        ("1 3\nhund 1 nan 0\n", "line 2: the vector has numbers that are NaN"),
        ("1 3\nder 1 0 0\nhund 1 0 0\n", "states 1 words, but there are 2"),
    ],
)
def test_broken_files_are_refused_with_file_and_line(vec, content, complaint):
    with pytest.raises(InputError, match=complaint):
        read_vectors(vec(content), ["hund"], "de")


def test_components_are_those_of_a_singular_value_decomposition():
    rng = np.random.default_rng(0)
    vectors = (rng.normal(size=(40, 12)) * np.linspace(3, 0.1, 12) + 5).astype(np.float32)
    vectors[7] = 0
    found = reduce_vectors(vectors, 5)
    known = np.delete(vectors, 7, 0).astype(np.float64)
    left, scale, axes = np.linalg.svd(known - known.mean(0), full_matrices=False)
    signs = np.sign(axes[np.arange(12), np.abs(axes).argmax(1)])
    assert found.dtype == np.float32
    np.testing.assert_allclose(np.delete(found, 7, 0), (left * scale * signs)[:, :5], rtol=1e-4, atol=1e-5)
    assert not found[7].any()
    with pytest.raises(InputError, match="12 numbers cannot be reduced to 13"):
        reduce_vectors(vectors, 13)


def test_trained_vectors_factorise_mutual_information():
    captions = ["a red car", "a red bus", "a bus", "a dog", "a dog runs runs"]  # no two words in the same captions
    words = ["a", "red", "dog", "car", "bus", "runs"]
    counts = np.zeros((6, 6))
    for caption in captions:
        present = [words.index(word) for word in set(caption.split())]
        counts[np.ix_(present, present)] += 1
    share = counts.sum(0) / counts.sum()
    with np.errstate(divide="ignore"):
        information = np.log(counts / counts.sum() / np.outer(share, share)).clip(min=0)
    left, scale, _ = np.linalg.svd(information)
    found = train_vectors(captions, words, "en", size=4)
    assert found.dtype == np.float32
    expected = left * np.sign(left[np.abs(left).argmax(0), np.arange(6)]) * np.sqrt(scale)
    np.testing.assert_allclose(found[:, :4], expected[:, :4], atol=1e-4)


def test_the_first_known_translation_counts(vec):
    path = vec("Hund\tdog\nhund hound\nkatze cat\nkatze kitty\nrotes Auto\tred car\nroß steed\n")
    found = dictionary_words(path, ["katze", "ross", "maus", "hund"], "de", ["dog", "hound", "kitty", "steed"], "en")
    # folded as vocabularies are: Hund is hund, and Roß is ross
    assert list(found.items()) == [("katze", "kitty"), ("ross", "steed"), ("hund", "dog")]
