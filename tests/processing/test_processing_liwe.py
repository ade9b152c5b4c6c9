import pytest
import torch

from babelens.processing.processing_liwe import LiweProcessor, frequent_characters
from babelens.processing.word_tokenizers import split_words
from tests.contracts import LANGUAGES, TEXTS, ProcessorContract


class TestLiweProcessor(ProcessorContract):
    factory = "make_liwe"
    max_text_tokens = 40

    def test_one_text_is_a_batch_of_one_and_padding_is_masked(self, processor):
        together = processor(text=TEXTS, language=LANGUAGES, return_tensors="pt")
        assert together["input_ids"].shape == (*together["attention_mask"].shape, 12)
        for i, (text, language) in enumerate(CAPTIONS_OF):
            alone = processor(text=text, language=language, return_tensors="pt")
            length = together["attention_mask"][i].sum()
            assert alone["input_ids"].shape == (1, length, 12)
            assert torch.equal(together["input_ids"][i, :length], alone["input_ids"][0])
            assert not together["input_ids"][i, length:].any()

    def test_long_texts_are_cut(self, processor):
        long = " ".join([TEXTS[1]] * 50)
        whole = processor(text=long, language="de", max_length=500, return_tensors="pt")
        cut = processor(text=[long, TEXTS[1]], language="de", return_tensors="pt", max_length=9)
        assert cut["attention_mask"].shape == (2, 9)
        assert torch.equal(cut["input_ids"][0], whole["input_ids"][0, :9])


CAPTIONS_OF = list(zip(TEXTS, LANGUAGES, strict=True))


@pytest.fixture
def processor(make_liwe):
    return make_liwe()[1]


def spelled(processor: LiweProcessor, word: list[int]) -> str:
    return "".join("#" if number == 1 else processor.characters[number - 2] for number in word if number)


def test_words_come_back_from_their_characters(processor):
    for text, language in CAPTIONS_OF:
        (words,) = processor(text=text, language=language)["input_ids"]
        assert [spelled(processor, word) for word in words] == [word[:12] for word in split_words(text, language)]


def test_unknown_characters_are_not_padding(processor):
    (words,) = processor(text="aŁß", language="pl")["input_ids"]
    assert spelled(processor, words[0]) == "a#ss"  # folded
    assert processor.unknown_rate(["aŁß"], "pl") == 25
    assert processor.unknown_rate([], "pl") == 0


@pytest.mark.parametrize("text", ["", " ", "!?", "❤️"])
def test_a_text_without_any_word_is_one_unknown_character(processor, text):
    found = processor(text=[text, "a red car"], language="en", return_tensors="pt")
    assert found["input_ids"][0].nonzero().tolist() == [[0, 0]] and found["input_ids"][0, 0, 0] == 1
    assert found["attention_mask"][0].tolist() == [1, 0, 0]


def test_characters_by_falling_frequency():
    texts = {"en": ["a cab", "Abba!"], "de": ["ö"]}
    assert frequent_characters(texts) == "abcö"
    assert frequent_characters(texts, min_frequency=2) == "ab"
