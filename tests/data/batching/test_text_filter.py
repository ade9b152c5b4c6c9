"""Alt texts that are too short, too long or of too many images are left out, of streams too."""

import pytest
from datasets import Dataset

from babelens.data import TextFilter, as_caption_corpus
from babelens.data.batching import text_filter
from babelens.training.schema import DataSource, validate
from babelens.utils.errors import CorpusError, RecipeError

SHORT, LONG, LETTERS = "two words", " ".join("w" * 101), "a b " + "c" * 997
TEXTS = [SHORT, "three words here", LONG, " ".join("w" * 100), LETTERS, LETTERS[:-1]]


def corpus_of(rows):
    return as_caption_corpus(
        Dataset.from_list([{"features": [float(n)], "captions": {"en": row}} for n, row in enumerate(rows)])
    )


def spelled(corpus):
    return [[caption["text"] for caption in row["captions"]] for row in corpus]


def test_the_values_of_the_paper_are_the_defaults():
    kept = spelled(TextFilter().apply(corpus_of([[text] for text in TEXTS] + [[SHORT, "a red square"]])))
    assert kept == [["three words here"], [" ".join("w" * 100)], [LETTERS[:-1]], ["a red square"]]
    assert str(TextFilter()) == "texts of 3 to 100 words, 1000 characters at most and 10 images at most"


def test_texts_of_more_than_ten_rows_are_left_out_whole():
    ten, eleven = "a text of ten", "a text of eleven"
    rows = [[ten, eleven, f"own text number {n}"] for n in range(10)] + [[eleven, eleven]]
    kept = spelled(TextFilter().apply(corpus_of(rows)))
    assert kept == [[ten, f"own text number {n}"] for n in range(10)]
    assert spelled(TextFilter(max_images=None).apply(corpus_of(rows))) == rows


def test_a_stream_is_filtered_as_its_rows_are(monkeypatch):
    monkeypatch.setattr(text_filter, "_STREAM_ROWS", 7)
    rows = [[f"a text number {n % 30} {n % 2}", f"of {n % 3} many"] for n in range(200)]
    corpus = corpus_of([*rows, *([SHORT] for _ in range(40))])  # whole batches without a text left
    stream = TextFilter(max_images=6).apply(corpus.to_iterable_dataset(num_shards=4))
    assert stream.features == corpus.features
    assert list(stream) == list(TextFilter(max_images=6).apply(corpus))


def test_what_leaves_nothing_is_refused():
    with pytest.raises(CorpusError, match="leaves no text"):
        TextFilter().apply(corpus_of([["a cat"]]))
    for given, message in (
        ({"min_words": 5, "max_words": 4}, r"train\.image_text\.text_filter"),
        ({"max_images": 0}, "max_images"),
        ({"max_characters": 0}, "max_characters"),
        ({"words": 3}, r"train\.image_text\.text_filter\.words"),
        ({"min_words": "few"}, r"text_filter\.min_words"),
    ):
        with pytest.raises(RecipeError, match=message):
            validate(DataSource, {"source": "photos", "text_filter": given}, "train.image_text")


def test_a_source_is_filtered_when_it_is_read(tmp_path):
    corpus_of([["a cat"], ["a cat on a mat"]]).save_to_disk(tmp_path / "photos")
    source = validate(DataSource, {"source": str(tmp_path / "photos"), "text_filter": {}}, "train.image_text")
    assert spelled(source.load()) == [["a cat on a mat"]] and source.text_filter == TextFilter()
