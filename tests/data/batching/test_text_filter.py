from datasets import Dataset

from babelens.data import TextFilter, as_caption_corpus

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


def test_a_stream_is_filtered_as_its_rows_are():
    rows = [[f"a text number {n % 30} {n % 2}", f"of {n % 3} many"] for n in range(200)]
    corpus = corpus_of([*rows, *([SHORT] for _ in range(40))])  # rows without a text left
    stream = TextFilter(max_images=6).apply(corpus.to_iterable_dataset(num_shards=4))
    assert stream.features == corpus.features
    assert list(stream) == list(TextFilter(max_images=6).apply(corpus))
