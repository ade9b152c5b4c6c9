import math
from collections import Counter
from itertools import product

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoProcessor

from babelens.inference.embedder import Embedder
from babelens.inference.onnx.export import export_onnx
from babelens.modeling.modeling_dual_encoder import normalize
from babelens.modeling.modeling_ridge import hashed_ngrams, ngram_weights
from babelens.processing.processing_ridge import code_points, spaced
from babelens.utils.errors import InputError, LanguageTagError, ModelFolderError
from babelens.utils.identity import model_identity
from tests.contracts import LANGUAGES, ConfigContract, ProcessorContract, PublishingContract
from tests.contracts.common import Contract


class TestCharacters(ConfigContract):
    factory = "make_ridge"

    def test_registered_by_its_name(self, config):
        """No recipe trains it, so it is not among the methods."""
        assert type(AutoConfig.for_model("ridge")) is type(config)

    def test_nothing_is_said_to_be_cut_that_is_read_whole(self, model, processor, tmp_path, caplog):
        """Nothing reads the tokens, which would be too many; characters are read whole."""
        processor.max_text_length = 8
        processor.save_pretrained(tmp_path)
        for reads in (processor, AutoProcessor.from_pretrained(tmp_path)):
            Embedder(model, reads).encode_text(["ein Hund im Gras, ganz genau", "ein Hund"], language="de")
            assert "were cut" not in caplog.text
        Embedder(model, processor).encode_text(["ein Hund", "ein Hund " * 100], language="de")
        assert "1 of 2 texts are longer than the 512 characters" in caplog.text


class TestEncoder(ProcessorContract, PublishingContract):
    factory = "make_ridge"
    always_exact = ("maps.",)
    options = {"encoder": True, "glossaries": True}
    pipeline_languages = ["und"] * len(LANGUAGES)  # told no language, they are read by the shared map


class TestGlossaries(Contract):
    factory = "make_ridge"
    options = {"glossaries": True}

    def test_the_prediction_moves_towards_the_native_embedding_of_the_words(self, model, processor):
        """It moves by the weight of the language, between directions of length 1."""
        text, weight = "Ein rotes Auto", model.config.gloss_weights[1]
        found = Embedder(model, processor).encode_text([text], language="de")
        model.config.gloss_weights = []
        alone = torch.from_numpy(Embedder(model, processor).encode_text([text], language="de", normalize=False))
        native = torch.from_numpy(Embedder(model, processor).encode_text(["a red car"], language="en"))
        maps = model.maps
        direction = torch.nn.functional.normalize((alone - maps.mean) @ torch.linalg.pinv(maps.directions))
        gloss = torch.nn.functional.normalize((native - maps.mean) @ maps.directions.T)
        both = torch.nn.functional.normalize(direction + weight * gloss)
        expected = torch.nn.functional.normalize(maps.mean + maps.radius * both @ maps.directions)
        torch.testing.assert_close(torch.from_numpy(found), expected, atol=1e-5, rtol=1e-4)

    def test_a_text_without_a_language_is_of_the_one_that_has_its_words(self, model, processor):
        texts = ("ein rotes Haus", "a red cat", "le chat noir")
        assert [processor._language_and_glossary(text, "und")[0] for text in texts] == ["de", "en", "und"]
        embedder = Embedder(model, processor)
        found = embedder.encode_text(["ein rotes Auto"])
        np.testing.assert_array_equal(found, embedder.encode_text(["ein rotes Auto"], language="de"))

    def test_a_corrected_glossary_is_another_model(self, model, processor, tmp_path):
        """A person who knows the language edits the file; cached embeddings are then computed again."""
        processor.save_pretrained(tmp_path)
        before = AutoProcessor.from_pretrained(tmp_path)
        assert before.glossaries["de"].entries == processor.glossaries["de"].entries
        file = tmp_path / "glossary.tsv"
        file.write_text(file.read_text("utf-8").replace("hund\tdog", "Hund\twolf") + "\n", "utf-8")
        after = AutoProcessor.from_pretrained(tmp_path)
        assert after.glossaries["de"].gloss("ein Hund") == "a wolf"
        assert model_identity(model, before) != model_identity(model, after)
        with file.open("a", encoding="utf-8") as lines:
            lines.write("de\tkatze cat\n")
        with pytest.raises(ModelFolderError, match=r"glossary.tsv, line 7: has 2 columns"):
            AutoProcessor.from_pretrained(tmp_path)

    def test_a_folder_without_its_glossary_is_no_other_model(self, model, processor, tmp_path):
        """It refuses, and does not silently embed otherwise."""
        model.save_pretrained(tmp_path)
        processor.save_pretrained(tmp_path)
        (tmp_path / "glossary.tsv").unlink()
        with pytest.raises(InputError, match=r"glossary\.tsv"):
            Embedder.from_pretrained(tmp_path).encode_text(["ein Hund"], language="de")

    @pytest.mark.slow
    def test_an_onnx_graph_reads_glosses(self, model, processor, tmp_path):
        pytest.importorskip("onnxruntime")
        model.save_pretrained(tmp_path / "model")
        processor.save_pretrained(tmp_path / "model")
        export_onnx(tmp_path / "model", tmp_path / "onnx")
        texts, tags = ["ein Hund", "un chien", "xyzzy", "a red car"], ["de", "fr", "de", "en"]
        graph = Embedder.from_pretrained(tmp_path / "onnx", backend="onnx")
        expected = Embedder(model, processor).encode_text(texts, language=tags)
        np.testing.assert_allclose(graph.encode_text(texts, language=tags), expected, atol=1e-5)


TEXTS = ["he kurī, he kurī!", "一只灰狗", "a灰b", "ⅷ Çà  x", "a", ""]


@pytest.mark.parametrize("cjk", [0, 1, 3])
def test_ngrams_are_weighted_as_a_plain_count_says(cjk):
    rows = 2**20  # so many that no two n-grams of these texts share one
    places, kept = hashed_ngrams(code_points(TEXTS), rows, 2, 4, cjk)
    weights = ngram_weights(places, kept, torch.ones(1, rows))
    found = torch.zeros(len(TEXTS), rows).scatter_add(1, places, weights)
    similar = found @ found.T
    expected = [plain_ngrams(text, cjk) for text in TEXTS]
    for (one, mine), (other, theirs) in product(enumerate(expected), repeat=2):
        cosine = sum(weight * theirs.get(ngram, 0.0) for ngram, weight in mine.items())
        assert similar[one, other].item() == pytest.approx(cosine, abs=1e-6), (one, other)


def plain_ngrams(text: str, cjk: int) -> dict[str, float]:
    """The weights of the n-grams of 2 to 4 characters, or 1 to `cjk`, inside words and of the spaces around them."""
    counts: Counter[str] = Counter()
    for padded in (f" {word} " for word in spaced(text).split()):
        for size, start in product(range(1, 5), range(len(padded))):
            sizes = range(1, cjk + 1) if cjk and set("一只灰狗") & {*padded[start : start + size]} else range(2, 5)
            counts.update([padded[start : start + size]] * (size in sizes and start + size <= len(padded)))
    length = math.sqrt(sum(math.log1p(count) ** 2 for count in counts.values()))
    return {ngram: math.log1p(count) / length for ngram, count in counts.items()}


@torch.no_grad()
def test_each_text_reads_the_map_of_its_language_without_a_copy(make_ridge):
    """Bitwise equal to a copy of the map for each text."""
    maps = make_ridge()[0].maps
    maps.importance.normal_()
    indices = torch.randint(0, len(maps.factors), (150,))
    characters = torch.randint(97, 123, (150, 12))
    copied, found = maps._read(indices, characters, None), maps(indices, characters, None)
    expected = maps.mean + maps.radius * normalize(copied) @ maps.directions
    assert torch.equal(found, expected)


def test_texts_without_a_language_are_read_by_the_shared_map(make_ridge):
    model, processor = make_ridge()
    unstated = model.get_text_features(**processor(text="un chien", return_tensors="pt")).pooler_output
    tagged = model.get_text_features(**processor(text="un chien", language="und", return_tensors="pt")).pooler_output
    french = model.get_text_features(**processor(text="un chien", language="fr", return_tensors="pt")).pooler_output
    assert torch.equal(unstated, tagged) and not torch.equal(unstated, french)
    with pytest.raises(LanguageTagError):
        processor(text="un cane", language="it")
