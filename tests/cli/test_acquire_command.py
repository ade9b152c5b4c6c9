"""`babelens acquire` from files to an adapter and a model, one language after the other, and after an interruption."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from acquire_command import run_acquire as run
from acquired_languages import later_options, options, sentences, write_tsv
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from tiny_training import shapes_corpus
from transformers import AutoModel, AutoProcessor, AutoTokenizer

from babelens import Embedder, MlaModel
from babelens.modeling.peft_mla import MlaAdapterConfig, load_embedding
from babelens.modeling.peft_mla.embedding import embedding_digest

ENGLISH = ["a small red square", "a big blue dot", "an old green bar"]
GERMAN = ["kleiner Quadrat in rot", "großer Punkt in blau"]


def images():
    return [row["image"] for row in shapes_corpus().select(range(4))]


def features(source):
    """What a model or an adapter says of the same German and English texts and images."""
    embedder = Embedder.from_pretrained(source)
    return {
        "en": embedder.encode_text(ENGLISH, language="en", normalize=False),
        "de": embedder.encode_text(GERMAN, language="de", normalize=False),
        "images": embedder.encode_image(images(), normalize=False),
    }


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert np.array_equal(found[name], value), name


# ---- One language ----


def test_the_adapters_folder(german):
    assert {path.name for path in german.iterdir()} == {
        "README.md",
        "adapter_config.json",
        "adapter_model.safetensors",
        "embedding",
        "model",
        "recipe.yaml",
    }
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {p.name for p in (german / "embedding").iterdir()}
    config = json.loads((german / "adapter_config.json").read_text())
    assert (config["peft_type"], config["language"], config["embedding"]) == ("MLA", "de", "./embedding")
    assert config["train_embedding"] and config["inference_mode"]
    names = load_file(german / "adapter_model.safetensors")
    assert len(names) == 8 and all(".mla_acquirers." in name for name in names)


def test_the_adapters_card(german, brought):
    card = ModelCard.load(german / "README.md")
    assert card.data.library_name == "peft" and card.data.language == ["de"]
    assert "base_model" not in card.data.to_dict() and str(brought) not in card.content  # a folder of this machine
    assert card.data.license == "other"
    assert "44 translations" in card.text and "language exposure" not in card.text
    assert "trained with this language" in card.text and "Of 4 held-out texts" in card.text
    assert "PeftModel" in card.text and "max_length=40" in card.text
    assert re.search(r"Computed in (float32|bfloat16), because ", card.text)


def test_the_assembled_model(german):
    model, processor = AutoModel.from_pretrained(german / "model"), AutoProcessor.from_pretrained(german / "model")
    assert type(model) is MlaModel and model.config.known_languages == ["en", "de"]
    assert (processor.languages, processor.max_text_length) == (["de"], 40)
    inputs = processor(text=["ein Punkt", "a dot"], language=["de", "en"], images=images(), return_tensors="pt")
    assert model(**inputs).logits_per_image.shape == (4, 2)


def test_the_table_begins_as_berts_and_is_trained(brought, german):
    bert = AutoModel.from_pretrained(brought / "bert").get_input_embeddings().weight
    table = load_file(german / "embedding" / "model.safetensors")["table.weight"]
    assert table.shape == bert.shape
    tokenizer = AutoTokenizer.from_pretrained(brought / "bert")
    ids = {number for row in sentences() for number in tokenizer(row["de"])["input_ids"]}
    unread = [number for number in range(len(bert)) if number not in ids and bert[number].any()]  # [PAD] has zeros
    # What no sentence has only decays: it is Bert's still.
    cosines = torch.nn.functional.cosine_similarity(table, bert)
    torch.testing.assert_close(cosines[unread], torch.ones(len(unread)))
    assert (cosines[sorted(ids)] < 1).any()


def test_a_frozen_table_is_berts_to_the_bit(brought):
    assert run(*options(brought, train_embedding=False, output=brought / "frozen")) == 0
    table = load_file(brought / "frozen" / "embedding" / "model.safetensors")["table.weight"]
    assert torch.equal(table, AutoModel.from_pretrained(brought / "bert").get_input_embeddings().weight)
    assert "frozen" in (brought / "frozen" / "README.md").read_text()


def test_english_and_images_are_the_base_models_to_the_bit(brought, german):
    base, found = Embedder.from_pretrained(brought / "clip"), features(german / "model")
    assert np.array_equal(found["en"], base.encode_text(ENGLISH, language="en", normalize=False))
    assert np.array_equal(found["images"], base.encode_image(images(), normalize=False))


def test_the_embedder_takes_the_adapter_as_it_takes_the_model(german):
    assert_same(features(german), features(german / "model"))


def test_peft_alone_takes_the_adapter(brought, german):
    """As the card says."""
    from peft import PeftModel

    model = PeftModel.from_pretrained(AutoModel.from_pretrained(brought / "clip"), german).eval()
    tokenizer = AutoTokenizer.from_pretrained(german, subfolder="embedding")
    tokens = tokenizer(GERMAN, padding=True, truncation=True, max_length=40, return_tensors="pt")
    with torch.no_grad():
        found = model.get_text_features(**{name: tokens[name] for name in ("input_ids", "attention_mask")})
    np.testing.assert_allclose(found.pooler_output.numpy(), features(german)["de"], rtol=1e-5, atol=1e-6)


def test_the_cards_code_runs(brought, german, monkeypatch):
    monkeypatch.chdir(brought)  # the card names the base model by its folder, and not where that is
    blocks = re.findall(r"```python\n(.*?)```", (german / "README.md").read_text(), flags=re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(block.replace('"your-name/german"', repr(str(german))), {})


def test_the_result_as_json(brought, capfd):
    given = options(brought, output=brought / "json", json=True, acquirer="linear", license="cc-by-4.0")
    assert run(*given) == 0
    result = json.loads(capfd.readouterr().out)
    assert result["adapter"] == str(brought / "json") and result["model"] is None
    assert result["held_out"]["pairs"] == 4 and 0 <= result["held_out"]["r1"] <= result["held_out"]["r10"] <= 100
    assert ModelCard.load(brought / "json" / "README.md").data.license == "cc-by-4.0"


def test_samples_show_which_column_is_which(brought, capfd):
    assert run(*options(brought, output=brought / "samples", steps=1)) == 0
    shown = capfd.readouterr().out
    assert "48 translations, such as" in shown
    assert shown.index("kleiner Quadrat in rot") < shown.index("a small red square")


def test_siglip_learns_as_well(brought):
    assert run(*options(brought, base=brought / "siglip", output=brought / "german-siglip", assemble=True)) == 0
    found = features(brought / "german-siglip")
    assert_same(found, features(brought / "german-siglip" / "model"))
    plain = Embedder.from_pretrained(brought / "siglip")
    assert np.array_equal(found["en"], plain.encode_text(ENGLISH, language="en", normalize=False))
    assert np.array_equal(found["images"], plain.encode_image(images(), normalize=False))


def test_a_vocabulary_of_its_own(brought):
    given = options(brought, new_vocabulary=120, vocabulary=None, output=brought / "own", assemble=True)
    assert run(*given) == 0
    model, processor = (loader.from_pretrained(brought / "own" / "model") for loader in (AutoModel, AutoProcessor))
    assert len(processor.multilingual_tokenizer) == model.config.vocab_size <= 120
    assert model.config.embedding_size == 16  # the text tower's
    assert_same(features(brought / "own"), features(brought / "own" / "model"))


# ---- One more ----


def test_what_was_known_stays_bitwise_what_it_was(german, french):
    assert AutoModel.from_pretrained(french / "model").config.known_languages == ["en", "de", "fr"]
    assert_same(features(french / "model"), features(german / "model"))


def test_a_later_adapter_brings_its_acquirers_alone(german, french):
    config = json.loads((french / "adapter_config.json").read_text())
    assert (config["language"], config["train_embedding"]) == ("fr", False)
    assert config["embedding"] == config["base_model_name_or_path"] == str(german / "model")
    assert not (french / "embedding").exists()
    first = json.loads((german / "adapter_config.json").read_text())
    assert config["embedding_digest"] == first["embedding_digest"]


def test_language_exposure_leaves_its_mark(french, brought, german):
    assert "language exposure" in (french / "README.md").read_text()
    given = later_options(
        brought,
        base=german / "model",
        language="fr",
        translations=brought / "french.jsonl",
        output=brought / "transfer",
    )
    assert run(*given) == 0
    weights = [load_file(part / "adapter_model.safetensors") for part in (french, brought / "transfer")]
    assert weights[0].keys() == weights[1].keys()
    assert not any(torch.equal(weights[0][name], weights[1][name]) for name in weights[0] if "weight" in name)


def test_the_embedder_takes_a_later_adapter_as_it_takes_the_model(french):
    embedders = [Embedder.from_pretrained(source) for source in (french, french / "model")]
    for language, texts in {"fr": ["petit carré rouge"], "de": GERMAN, "en": ENGLISH}.items():
        assert np.array_equal(*(embedder.encode_text(texts, language=language) for embedder in embedders)), language
    assert np.array_equal(*(embedder.encode_image(images()) for embedder in embedders))


def test_an_adapter_is_a_base_as_well(brought, german, french):
    given = later_options(
        brought, base=german, language="fr", translations=brought / "french.jsonl", output=brought / "on-adapter"
    )
    assert run(*given) == 0
    found = Embedder.from_pretrained(brought / "on-adapter")
    assert found.model.config.known_languages == ["en", "de", "fr"]
    assert_same(features(brought / "on-adapter"), features(german / "model"))
    adapter = MlaAdapterConfig.from_pretrained(brought / "on-adapter")  # plain PEFT finds the embedding as well
    assert embedding_digest(load_embedding(adapter.embedding).weights) == adapter.embedding_digest


def test_images_are_encoded_once(brought, german, cache):
    """Those that one language was exposed to are found again by the next run on the same model."""
    kept = []
    for name in ("first", "again"):
        given = later_options(
            brought,
            base=german / "model",
            language="fr",
            translations=brought / "french.jsonl",
            captions=brought / "images",
            exposure_steps=1,
            steps=1,
            output=brought / f"exposed-{name}",
        )
        assert run(*given) == 0
        kept.append({file: file.stat().st_mtime_ns for file in cache.iterdir()})
    assert kept[0] and kept[1] == kept[0]


# ---- Resuming ----


def test_other_translations_do_not_go_on_with_a_run(brought, tmp_path, capfd, monkeypatch):
    """Whose vocabulary they would be read with."""
    monkeypatch.setenv("COLUMNS", "1000")
    rows = sentences()
    write_tsv(tmp_path / "german.tsv", ["de", "en"], rows)
    given = options(
        brought,
        translations=tmp_path / "german.tsv",
        vocabulary=None,
        new_vocabulary=120,
        output=tmp_path / "run",
    )
    with monkeypatch.context() as patched:
        patched.setattr("babelens.workflows.acquiring.Acquisition.retrieval", _break_off)
        with pytest.raises(RuntimeError, match="power cut"):
            run(*given)
    write_tsv(tmp_path / "german.tsv", ["de", "en"], [rows[0] | {"de": "etwas anderes"}, *rows[1:]])
    assert run(*given, "--resume") == 1
    assert "translations: the data are not those that the run began with" in capfd.readouterr().err
    write_tsv(tmp_path / "german.tsv", ["de", "en"], rows)
    changed = [*given, "--resume", "--set", "new_vocabulary=110"]
    assert run(*changed) == 1
    assert "new_vocabulary was 120 when the run began, and is 110" in capfd.readouterr().err
    assert run(*given, "--resume") == 0


@pytest.mark.parametrize("place", ["Acquisition.retrieval", "shutil"])
def test_a_run_that_broke_off_goes_on(brought, german, monkeypatch, tmp_path, place):
    """After its training, and after its adapter was saved."""
    broken = tmp_path / "broken"
    given = options(brought, output=broken)
    with monkeypatch.context() as patched:
        failing = SimpleNamespace(rmtree=_break_off) if place == "shutil" else _break_off
        patched.setattr(f"babelens.workflows.acquiring.{place}", failing)
        with pytest.raises(RuntimeError, match="power cut"):
            run(*given)
    if place != "shutil":
        assert not (broken / "adapter_config.json").exists()
    assert run(*given) == 1  # as it stands, nobody said what is to become of it
    assert run(*given, "--resume") == 0
    for name in ("adapter_model.safetensors", "embedding/model.safetensors", "embedding/tokenizer_config.json"):
        assert (broken / name).read_bytes() == (german / name).read_bytes()
    assert not (broken / "checkpoints").exists() and not list(broken.glob(".*"))
    assert run(*given, "--resume") == 1  # it is finished


def _break_off(*arguments):
    raise RuntimeError("power cut")
