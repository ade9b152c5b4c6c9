"""The model that is solved: its contracts, and its n-grams beside a plain count."""

import math
from collections import Counter

import pytest
import torch
from contracts import LANGUAGES, ConfigContract, ProcessorContract, PublishingContract
from transformers import AutoConfig, AutoProcessor

from babelens.configuration.errors import UnknownLanguageError
from babelens.inference.embedder import Embedder
from babelens.modeling.character_ngrams import hashed_ngrams, ngram_weights
from babelens.processing.processing_ridge import MOST_CHARACTERS, as_characters


class TestCharacters(ConfigContract, ProcessorContract, PublishingContract):
    """Without a text encoder."""

    factory = "make_ridge"
    pipeline_languages = ["und"] * len(LANGUAGES)  # told no language, they are read by the shared map

    def test_registered_by_its_name(self, config):
        """With transformers; no recipe trains it, so that it is not among the methods."""
        assert type(AutoConfig.for_model("ridge")) is type(config)

    def test_long_texts_are_cut(self, processor):
        """By characters, which alone are read."""
        long = processor(text=["ein Hund " * 100, "ein Hund"], language="de", return_tensors="pt")
        assert long["character_ids"].shape == (2, MOST_CHARACTERS) and long["character_ids"][0].all()

    def test_nothing_is_said_to_be_cut_that_is_read_whole(self, model, processor, tmp_path, caplog):
        """Characters are read whole where the tokens, which nothing reads, would be too many."""
        processor.max_text_length = 8
        processor.save_pretrained(tmp_path)
        for reads in (processor, AutoProcessor.from_pretrained(tmp_path)):
            Embedder(model, reads).encode_text(["ein Hund im Gras, ganz genau", "ein Hund"], language="de")
            assert "were cut" not in caplog.text
        Embedder(model, processor).encode_text(["ein Hund", "ein Hund " * 100], language="de")
        assert "1 of 2 texts are longer than the 512 characters" in caplog.text


class TestEncoder(ProcessorContract, PublishingContract):
    """With a text encoder."""

    factory = "make_ridge"
    options = {"encoder": True}
    pipeline_languages = ["und"] * len(LANGUAGES)

    def test_texts_that_are_cut_are_counted(self, model, processor, caplog):
        """Also behind a prompt."""
        processor.max_text_length, processor.text_prompt = 8, "query: "
        Embedder(model, processor).encode_text(["ein Hund im Gras, ganz genau", "a"], language="de")
        assert "1 of 2 texts are longer than the 8 tokens" in caplog.text


TEXTS = ["he kurī, he kurī!", "一只灰狗", "ⅷ Çà  x", "a", ""]


def test_ngrams_are_weighted_as_a_plain_count_says():
    rows = 2**20  # so many that no two n-grams of these texts share one
    characters = torch.nn.utils.rnn.pad_sequence(
        [torch.tensor(as_characters(text)) for text in TEXTS], batch_first=True
    )
    places, kept = hashed_ngrams(characters, rows, 2, 4)
    weights = ngram_weights(places, kept, torch.ones(1, rows))
    found = torch.zeros(len(TEXTS), rows).scatter_add(1, places, weights)
    similar = found @ found.T
    expected = [plain_ngrams(text) for text in TEXTS]
    for one, mine in enumerate(expected):
        for other, theirs in enumerate(expected):
            cosine = sum(weight * theirs.get(ngram, 0.0) for ngram, weight in mine.items())
            assert similar[one, other].item() == pytest.approx(cosine, abs=1e-6), (one, other)


def plain_ngrams(text: str) -> dict[str, float]:
    """The weights of the n-grams of 2 to 4 characters inside of words and of the spaces beside them."""
    counts: Counter[str] = Counter()
    for word in "".join(map(chr, as_characters(text))).split():
        padded = f" {word} "
        for size in (2, 3, 4):
            counts.update(padded[start : start + size] for start in range(len(padded) - size + 1))
    length = math.sqrt(sum(math.log1p(count) ** 2 for count in counts.values()))
    return {ngram: math.log1p(count) / length for ngram, count in counts.items()}


def test_padding_and_company_change_nothing(make_ridge):
    model, processor = make_ridge(encoder=True)
    texts = ["ein rotes Auto", "un chien gris qui dort devant la maison"]
    inputs = processor(text=texts, language=["de", "fr"], return_tensors="pt")
    together = model.get_text_features(**inputs).pooler_output
    for row, (text, language) in enumerate(zip(texts, ("de", "fr"), strict=True)):
        alone = model.get_text_features(**processor(text=text, language=language, return_tensors="pt")).pooler_output
        torch.testing.assert_close(alone[0], together[row], rtol=0, atol=1e-5)


def test_texts_without_a_language_are_read_by_the_shared_map(make_ridge):
    model, processor = make_ridge()
    unstated = model.get_text_features(**processor(text="un chien", return_tensors="pt")).pooler_output
    tagged = model.get_text_features(**processor(text="un chien", language="und", return_tensors="pt")).pooler_output
    french = model.get_text_features(**processor(text="un chien", language="fr", return_tensors="pt")).pooler_output
    assert torch.equal(unstated, tagged) and not torch.equal(unstated, french)
    with pytest.raises(UnknownLanguageError):
        processor(text="un cane", language="it")


def test_native_texts_are_those_of_the_native_model(make_ridge):
    model, processor = make_ridge()
    texts = ["a red car", "a dog"]
    inputs = processor(text=[*texts, "ein Hund"], language=["en", "en", "de"], return_tensors="pt")
    native = processor.native(text=texts, language="en", return_tensors="pt")
    expected = model.native_model.get_text_features(**native).pooler_output
    assert torch.equal(model.get_text_features(**inputs).pooler_output[:2], expected)
