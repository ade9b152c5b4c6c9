import pytest
import torch

from babelens.processing.image_processing_mural import MuralImageProcessor
from babelens.processing.processing_smalr import SmalrProcessor, frequent_words
from babelens.utils.errors import InputError
from tests.contracts import CAPTIONS, ProcessorContract


@pytest.fixture
def processor(make_smalr):
    return make_smalr.processor()


class TestSmalrProcessor(ProcessorContract):
    factory = "make_smalr"
    max_text_tokens = 40

    def test_long_texts_are_cut(self, processor):
        for language, text in CAPTIONS.items():
            whole = processor(text=" ".join([text] * 50), language=language, max_length=500, return_tensors="pt")
            for length, options in ((40, {}), (9, {"max_length": 9})):
                cut = processor(text=[" ".join([text] * 50), text], language=language, return_tensors="pt", **options)
                assert cut["input_ids"].shape == cut["attention_mask"].shape == (2, length)
                assert torch.equal(cut["input_ids"][0], whole["input_ids"][0, :length])


def test_every_language_numbers_its_own_words(processor):
    found = processor(text=["a red car", "ein schnelles rotes auto"], language=["en", "de"], return_tensors="pt")
    english, german = (processor.vocabularies[language] for language in ("en", "de"))
    assert found["input_ids"].tolist() == [
        [3 + english.index("a"), 3 + english.index("red"), 3 + english.index("car"), 0],
        [3 + german.index("ein"), 2, 3 + german.index("rotes"), 3 + german.index("auto")],
    ]
    assert found["attention_mask"].tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert found["language_ids"].tolist() == [0, 1]
    assert set(found) < set(processor.model_input_names)


@pytest.mark.parametrize("text", ["", "nevermore"])
def test_a_text_without_any_known_word_is_one_unknown_word(processor, text):
    found = processor(text=[text, "a red car"], language="en")
    assert found["input_ids"][0] == [2, 0, 0] and found["attention_mask"][0] == [1, 0, 0]


SAID = ["a red car", "a RED bus", "a blue car, a dog"]


def test_words_come_by_falling_frequency_then_by_code_point():
    assert frequent_words(SAID, "en") == ["a", "car", "red", "blue", "bus", "dog"]
    assert frequent_words(reversed(SAID), "en") == frequent_words(SAID, "en")
    assert frequent_words(SAID, "en", min_frequency=2) == ["a", "car", "red"]
    with pytest.raises(InputError, match="'en' occurs 5 times; the most frequent occurs 4 times"):
        frequent_words(SAID, "en", min_frequency=5)


def test_unknown_words_are_counted_in_percent():
    processor = SmalrProcessor(MuralImageProcessor(), {"EN": ["a", "car", "mask"]})
    assert processor.languages == ["en"]
    assert processor.ids_of("[MASK] a RED", "en") == [5, 3, 2]  # special words cannot be written
    assert processor.unknown_rate(["a red car", "a"], "en") == 25 and processor.unknown_rate([], "en") == 0
