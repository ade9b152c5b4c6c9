"""`babelens acquire` from files to an adapter and a model, one language after the other, on tiny models in the Hub's
format."""

import json
import re
import shutil
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from acquire_command import as_arguments, run_acquire as run
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from tiny_native import saved, tiny_bert, tiny_clip, tiny_siglip
from tiny_training import COLORS, SHAPES, shapes_corpus
from transformers import AutoModel, AutoProcessor, AutoTokenizer, PreTrainedTokenizerFast

from babelens import Embedder, MlaModel
from babelens.cli.main import main
from babelens.configuration.errors import ModelFolderError, ModelMismatchError, TrainingSetupError
from babelens.modeling.peft_mla import MlaAdapterConfig, load_embedding
from babelens.modeling.peft_mla.embedding import embedding_digest
from babelens.workflows.acquiring import Acquisition

SIZES = {"small": ("kleiner", "petit"), "big": ("großer", "grand"), "old": ("alter", "vieux")}
ENGLISH = ["a small red square", "a big blue dot", "an old green bar"]
GERMAN = ["kleiner Quadrat in rot", "großer Punkt in blau"]


def sentences():
    """48 things in English, German and French."""
    return [
        {
            "en": f"a {size} {color} {shape}",
            "de": f"{german} {form} in {farbe}",
            "fr": f"{french} {forme} {couleur}",
        }
        for size, (german, french) in SIZES.items()
        for color, (farbe, couleur, _) in COLORS.items()
        for shape, (form, forme) in SHAPES.items()
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Models, translations and captions as people bring them."""
    folder = tmp_path_factory.mktemp("brought")
    for name, parts in {"clip": tiny_clip(), "siglip": tiny_siglip(), "bert": tiny_bert()}.items():
        saved(parts, folder / name)
    rows = sentences()
    write_tsv(folder / "german.tsv", ["de", "en"], rows)  # the native language second
    (folder / "french.jsonl").write_text("\n".join(json.dumps({k: row[k] for k in ("en", "fr")}) for row in rows))
    (folder / "images").mkdir()
    metadata = []
    for row in shapes_corpus():
        row["image"].save(folder / "images" / f"{row['image_id']}.png")
        french = next(caption["text"] for caption in row["captions"] if caption["language"] == "fr")
        metadata.append({"file_name": f"{row['image_id']}.png", "captions": {"fr": french}})
    (folder / "images" / "metadata.jsonl").write_text("\n".join(map(json.dumps, metadata)))
    return folder


def write_tsv(file, languages, rows):
    lines = ["\t".join(languages), *("\t".join(row[tag] for tag in languages) for row in rows)]
    file.write_text("\n".join(lines) + "\n")


def options(folder, **changes):
    """The arguments of a quick run, some changed; `None` leaves one out, `True` is a flag."""
    given = {
        "base": folder / "clip",
        "language": "de",
        "translations": folder / "german.tsv",
        "vocabulary": folder / "bert",
        "output": folder / "output",
        "steps": 5,
        "batch_size": 8,
        "acquirer_size": 8,
        "learning_rate": 1e-2,
    } | changes
    return as_arguments(given)


def later_options(folder, **changes):
    """Of a language that is not the first: what that one settled is left out."""
    return options(folder, **{"vocabulary": None, "acquirer_size": None} | changes)


@pytest.fixture(scope="module")
def german(folder):
    """CLIP learned German."""
    assert run(*options(folder, output=folder / "german", assemble=True)) == 0
    return folder / "german"


@pytest.fixture(scope="module")
def french(folder, german):
    """And then French, with images."""
    given = later_options(
        folder,
        base=german / "model",
        language="FR",
        translations=folder / "french.jsonl",
        captions=folder / "images",
        exposure_steps=2,
        output=folder / "french",
        assemble=True,
    )
    assert run(*given) == 0
    return folder / "french"


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
    }
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {p.name for p in (german / "embedding").iterdir()}
    config = json.loads((german / "adapter_config.json").read_text())
    assert (config["peft_type"], config["language"], config["embedding"]) == ("MLA", "de", "./embedding")
    assert config["train_embedding"] and config["inference_mode"]
    names = load_file(german / "adapter_model.safetensors")
    assert len(names) == 8 and all(".mla_acquirers." in name for name in names)


def test_the_adapters_card(german, folder):
    card = ModelCard.load(german / "README.md")
    assert card.data.library_name == "peft" and card.data.language == ["de"]
    assert card.data.base_model_relation == "adapter" and card.data.license == "other"
    assert "46 translations" in card.text and "language exposure" not in card.text
    assert "trained with this language" in card.text and "Of 2 held-out texts" in card.text
    assert "PeftModel" in card.text and "max_length=40" in card.text
    assert re.search(r"Computed in (float32|bfloat16), because ", card.text)


def test_the_assembled_model(german):
    model, processor = AutoModel.from_pretrained(german / "model"), AutoProcessor.from_pretrained(german / "model")
    assert type(model) is MlaModel and model.config.known_languages == ["en", "de"]
    assert (processor.languages, processor.max_text_length) == (["de"], 40)
    inputs = processor(text=["ein Punkt", "a dot"], language=["de", "en"], images=images(), return_tensors="pt")
    assert model(**inputs).logits_per_image.shape == (4, 2)


def test_the_table_begins_as_berts_and_is_trained(folder, german):
    bert = AutoModel.from_pretrained(folder / "bert").get_input_embeddings().weight
    table = load_file(german / "embedding" / "model.safetensors")["table.weight"]
    assert table.shape == bert.shape
    tokenizer = AutoTokenizer.from_pretrained(folder / "bert")
    ids = {number for row in sentences() for number in tokenizer(row["de"])["input_ids"]}
    unread = [number for number in range(len(bert)) if number not in ids and bert[number].any()]  # [PAD] has zeros
    # What no sentence has only decays: it is Bert's still.
    cosines = torch.nn.functional.cosine_similarity(table, bert)
    torch.testing.assert_close(cosines[unread], torch.ones(len(unread)))
    assert (cosines[sorted(ids)] < 1).any()


def test_a_frozen_table_is_berts_to_the_bit(folder):
    assert run(*options(folder, freeze_embedding=True, output=folder / "frozen")) == 0
    table = load_file(folder / "frozen" / "embedding" / "model.safetensors")["table.weight"]
    assert torch.equal(table, AutoModel.from_pretrained(folder / "bert").get_input_embeddings().weight)
    assert "frozen" in (folder / "frozen" / "README.md").read_text()


def test_english_and_images_are_the_base_models_to_the_bit(folder, german):
    base, found = Embedder.from_pretrained(folder / "clip"), features(german / "model")
    assert np.array_equal(found["en"], base.encode_text(ENGLISH, language="en", normalize=False))
    assert np.array_equal(found["images"], base.encode_image(images(), normalize=False))


def test_the_embedder_takes_the_adapter_as_it_takes_the_model(german):
    assert_same(features(german), features(german / "model"))


def test_peft_alone_takes_the_adapter(folder, german):
    """As the card says."""
    from peft import PeftModel

    model = PeftModel.from_pretrained(AutoModel.from_pretrained(folder / "clip"), german).eval()
    tokenizer = AutoTokenizer.from_pretrained(german, subfolder="embedding")
    tokens = tokenizer(GERMAN, padding=True, truncation=True, max_length=40, return_tensors="pt")
    with torch.no_grad():
        found = model.get_text_features(**{name: tokens[name] for name in ("input_ids", "attention_mask")})
    np.testing.assert_allclose(found.pooler_output.numpy(), features(german)["de"], rtol=1e-5, atol=1e-6)


def test_the_cards_code_runs(folder, german):
    blocks = re.findall(r"```python\n(.*?)```", (german / "README.md").read_text(), flags=re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(block.replace('"your-name/german"', repr(str(german))), {})


def test_the_result_as_json(folder, capfd):
    given = options(folder, output=folder / "json", json=True, acquirer="linear", license="cc-by-4.0")
    assert run(*given) == 0
    result = json.loads(capfd.readouterr().out)
    assert result["adapter"] == str(folder / "json") and result["model"] is None
    assert result["held_out"]["pairs"] == 2 and 0 <= result["held_out"]["r1"] <= result["held_out"]["r10"] <= 100
    assert ModelCard.load(folder / "json" / "README.md").data.license == "cc-by-4.0"


def test_samples_show_which_column_is_which(folder, capfd):
    assert run(*options(folder, output=folder / "samples", steps=1)) == 0
    shown = capfd.readouterr().out
    assert "48 translations, such as" in shown
    assert shown.index("kleiner Quadrat in rot") < shown.index("a small red square")


def test_siglip_learns_as_well(folder):
    assert run(*options(folder, base=folder / "siglip", output=folder / "german-siglip", assemble=True)) == 0
    found = features(folder / "german-siglip")
    assert_same(found, features(folder / "german-siglip" / "model"))
    plain = Embedder.from_pretrained(folder / "siglip")
    assert np.array_equal(found["en"], plain.encode_text(ENGLISH, language="en", normalize=False))
    assert np.array_equal(found["images"], plain.encode_image(images(), normalize=False))


def test_a_vocabulary_of_its_own(folder):
    given = options(folder, new_vocabulary=120, vocabulary=None, output=folder / "own", assemble=True)
    assert run(*given) == 0
    model, processor = (loader.from_pretrained(folder / "own" / "model") for loader in (AutoModel, AutoProcessor))
    assert len(processor.multilingual_tokenizer) == model.config.vocab_size <= 120
    assert model.config.embedding_size == 16  # the text tower's
    assert_same(features(folder / "own"), features(folder / "own" / "model"))


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


def test_language_exposure_leaves_its_mark(french, folder, german):
    assert "language exposure" in (french / "README.md").read_text()
    given = later_options(
        folder, base=german / "model", language="fr", translations=folder / "french.jsonl", output=folder / "transfer"
    )
    assert run(*given) == 0
    weights = [load_file(part / "adapter_model.safetensors") for part in (french, folder / "transfer")]
    assert weights[0].keys() == weights[1].keys()
    assert not any(torch.equal(weights[0][name], weights[1][name]) for name in weights[0] if "weight" in name)


def test_the_embedder_takes_a_later_adapter_as_it_takes_the_model(french):
    embedders = [Embedder.from_pretrained(source) for source in (french, french / "model")]
    for language, texts in {"fr": ["petit carré rouge"], "de": GERMAN, "en": ENGLISH}.items():
        assert np.array_equal(*(embedder.encode_text(texts, language=language) for embedder in embedders)), language
    assert np.array_equal(*(embedder.encode_image(images()) for embedder in embedders))


def test_an_adapter_is_a_base_as_well(folder, german, french):
    given = later_options(
        folder, base=german, language="fr", translations=folder / "french.jsonl", output=folder / "on-adapter"
    )
    assert run(*given) == 0
    found = Embedder.from_pretrained(folder / "on-adapter")
    assert found.model.config.known_languages == ["en", "de", "fr"]
    assert_same(features(folder / "on-adapter"), features(german / "model"))
    adapter = MlaAdapterConfig.from_pretrained(folder / "on-adapter")  # plain PEFT finds the embedding as well
    assert embedding_digest(load_embedding(adapter.embedding).weights) == adapter.embedding_digest


def test_images_are_encoded_once(folder, german, french, cache):
    """Those that French was exposed to are found again by the next run on the same model."""
    kept = sorted(cache.iterdir())
    given = later_options(
        folder,
        base=german / "model",
        language="fr",
        translations=folder / "french.jsonl",
        captions=folder / "images",
        exposure_steps=1,
        steps=1,
        output=folder / "again",
    )
    assert run(*given) == 0
    assert sorted(cache.iterdir()) == kept


# ---- Options ----


def test_sentence_pairs_of_opus_are_translations(folder, german, tmp_path):
    """The same rows give the same adapter, whatever they are read from."""
    rows = sentences()
    with zipfile.ZipFile(tmp_path / "de-en.txt.zip", "w") as archive:
        for tag in ("de", "en"):
            archive.writestr(f"Tatoeba.de-en.{tag}", "".join(f"{row[tag]}\n" for row in rows))
    given = options(folder, translations=tmp_path / "de-en.txt.zip", output=tmp_path / "adapter")
    assert run(*given) == 0
    weights = "adapter_model.safetensors"
    assert (tmp_path / "adapter" / weights).read_bytes() == (german / weights).read_bytes()


@pytest.mark.parametrize(
    ("changes", "status", "message"),
    [
        ({"learning_rate": -1}, 2, "--learning-rate"),
        ({"learning_rate": "nan"}, 2, "--learning-rate"),
        ({"learning_rate": "inf"}, 1, "learning_rate must be a finite number, not inf"),
        ({"seed": -1}, 2, "--seed"),
        ({"seed": 2**32}, 2, "--seed"),
        ({"steps": 0}, 2, "--steps"),
        ({"batch_size": 0}, 2, "--batch-size"),
        ({"exposure_steps": 0}, 2, "--exposure-steps"),
        ({"exposure_steps": 3}, 1, "exposure_steps=3 is for language exposure, which takes captions"),
        ({"new_vocabulary": 100}, 1, "new_vocabulary=100: one of them can be taken"),
        ({"new_vocabulary": 0}, 2, "--new-vocabulary"),
        ({"acquirer_size": 0}, 2, "--acquirer-size"),
        ({"license": "my license"}, 1, "'my license' is no license that the Hub has an identifier for"),
        ({"native_language": "xx"}, 1, "'xx' names no registered language"),
    ],
)
def test_what_cannot_be_had_is_refused_in_one_sentence(folder, tmp_path, capfd, monkeypatch, changes, status, message):
    monkeypatch.setenv("COLUMNS", "1000")
    assert run(*options(folder, output=tmp_path / "refused", **changes)) == status
    said = capfd.readouterr().err
    assert message in said and "Traceback" not in said
    assert not (tmp_path / "refused").exists()


def test_an_adapter_is_not_freer_than_its_base(folder, tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    base = shutil.copytree(folder / "clip", tmp_path / "nc-clip")
    (base / "README.md").write_text("---\nlicense: cc-by-nc-4.0\n---\n")
    assert run(*options(folder, base=base, output=tmp_path / "german", license="mit")) == 1
    said = capfd.readouterr().err
    assert "cannot be under 'mit': nc-clip, which training starts from, is under 'cc-by-nc-4.0'" in said
    assert "Traceback" not in said and not (tmp_path / "german").exists()
    assert run(*options(folder, base=base, output=tmp_path / "german", license="cc-by-nc-4.0", steps=1)) == 0
    assert "cc-by-nc-4.0: not for commercial use" in (tmp_path / "german" / "README.md").read_text()


@pytest.mark.parametrize(
    "changes",
    [{"steps": 0}, {"acquirer_size": -1}, {"training": {"seed": -1}}, {"training": {"learning_rate": float("nan")}}],
)
def test_so_it_is_in_python(folder, changes):
    with pytest.raises(TrainingSetupError, match="must be"):
        Acquisition(str(folder / "clip"), "de", str(folder / "german.tsv"), folder / "output", **changes)


def test_a_collapsed_model_retrieves_nothing(folder, tmp_path):
    """All texts have one embedding: each translation is as near as any other."""
    acquisition = Acquisition(
        str(folder / "clip"), "de", str(folder / "german.tsv"), tmp_path, vocabulary=str(folder / "bert")
    )
    acquisition.load()
    for name, weight in acquisition.model.named_parameters():
        if "text_projection" in name:
            torch.nn.init.zeros_(weight)
    assert acquisition.retrieval(acquisition.split[0]) == {"pairs": 46, "r1": 0.0, "r10": 0.0}


def test_a_translation_of_several_texts_is_right_for_each(folder, tmp_path):
    write_tsv(tmp_path / "pairs.tsv", ["de", "en"], [{"de": f"Punkt {k}", "en": "a dot"} for k in range(40)])
    acquisition = Acquisition(
        str(folder / "clip"), "de", str(tmp_path / "pairs.tsv"), tmp_path, vocabulary=str(folder / "bert")
    )
    acquisition.load()
    assert acquisition.retrieval(acquisition.split[1]) == {"pairs": 2, "r1": 100.0, "r10": 100.0}


# ---- Resuming ----


def test_other_translations_do_not_go_on_with_a_run(folder, tmp_path, capfd, monkeypatch):
    """Whose vocabulary they would be read with."""
    monkeypatch.setenv("COLUMNS", "1000")
    rows = sentences()
    write_tsv(tmp_path / "german.tsv", ["de", "en"], rows)
    given = options(
        folder,
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
    changed = [*given, "--resume", "--new-vocabulary", 110]
    assert run(*changed) == 1
    assert "new_vocabulary was 120 when the run began, and is 110" in capfd.readouterr().err
    assert run(*given, "--resume") == 0


@pytest.mark.parametrize("place", ["Acquisition.retrieval", "shutil"])
def test_a_run_that_broke_off_goes_on(folder, german, monkeypatch, tmp_path, place):
    """After its training, and after its adapter was saved."""
    broken = tmp_path / "broken"
    given = options(folder, output=broken)
    with monkeypatch.context() as patched:
        failing = SimpleNamespace(rmtree=_break_off) if place == "shutil" else _break_off
        patched.setattr(f"babelens.workflows.acquiring.{place}", failing)
        with pytest.raises(RuntimeError, match="power cut"):
            run(*given)
    if place != "shutil":
        assert not (broken / "adapter_config.json").exists()
    assert run(*given) == 1  # as it stands, nobody said what is to become of it
    assert run(*given, "--resume") == 0
    for name in ("adapter_model.safetensors", "embedding/model.safetensors"):
        assert (broken / name).read_bytes() == (german / name).read_bytes()
    assert not (broken / "checkpoints").exists() and not list(broken.glob(".*"))
    assert run(*given, "--resume") == 1  # it is finished


def test_an_adapter_whose_files_were_on_their_way_is_completed(folder, german, monkeypatch, tmp_path):
    output = tmp_path / "broken"
    save = Acquisition.save

    def killed(*arguments, **options):
        monkeypatch.setattr("babelens.trainers.saving._move", _break_off)
        save(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Acquisition, "save", killed)
        with pytest.raises(RuntimeError, match="power cut"):
            run(*options(folder, output=output))
    assert not (output / "adapter_config.json").exists() and (output / ".moving").is_dir()
    monkeypatch.undo()
    assert run(*options(folder, output=output), "--resume") == 0
    assert (output / "adapter_model.safetensors").read_bytes() == (german / "adapter_model.safetensors").read_bytes()
    assert not list(output.glob(".*"))


def _break_off(*arguments):
    raise RuntimeError("power cut")


# ---- Refusals ----


def test_help_says_what_there_is(capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert run("--help") == 0
    said = capfd.readouterr().out
    for option in ("--base", "--language", "--translations", "--output", "--captions", "--assemble", "--vocabulary"):
        assert option in said


def no_separator(folder):
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder / "bert")
    tokenizer.sep_token = None
    tokenizer.save_pretrained(folder / "no-separator")
    return {"vocabulary": folder / "no-separator"}


def translations(rows, *languages):
    def make(folder):
        write_tsv(folder / "bad.tsv", languages, rows)
        return {"translations": folder / "bad.tsv"}

    return make


def jsonl(text):
    def make(folder):
        (folder / "bad.jsonl").write_text(text)
        return {"translations": folder / "bad.jsonl"}

    return make


def changes(**given):
    return lambda folder: {name: folder / value if isinstance(value, Path) else value for name, value in given.items()}


ROWS = sentences()
HOLES = [row | {"en": ""} if number == 3 else row for number, row in enumerate(ROWS)]
REFUSALS = {
    "a base that is no dual encoder": (changes(base=Path("bert")), "does not support 'bert' models"),
    "no base": (changes(base=Path("nothing")), "nothing"),
    "the native language": (changes(language="en"), "has the language 'en' already"),
    "another language": (changes(language="uk"), "has no text in 'uk', only in de, en"),
    "no language": (changes(language="klingonish"), "'klingonish' is not a language tag"),
    "an empty cell": (translations(HOLES, "de", "en"), "bad.tsv line 5: 1 texts (nothing in en)"),
    "one column": (translations(ROWS, "de"), "bad.tsv line 2: 1 texts, but a row needs at least 2"),
    "no header": (jsonl('["a", "b"]'), "bad.jsonl line 1"),
    "no rows": (jsonl(""), "there are no rows"),
    "no native language": (translations(ROWS, "de", "fr"), "has no text in 'en', only in de, fr"),
    "too few": (translations(ROWS[:5], "de", "en"), "5 texts to train on in 'de', fewer than a batch of 8"),
    "no file": (changes(translations="nowhere.tsv"), "nowhere.tsv: no such file"),
    "a vocabulary without [SEP]": (no_separator, "must end every text with its [SEP]"),
    "a vocabulary that is CLIP's": (changes(vocabulary=Path("clip")), "CLIPModel has no single table of word pieces"),
    "a vocabulary too small": (changes(new_vocabulary=10, vocabulary=None), "vocab_size=10 is too small"),
    "a text tower without its blocks": (changes(text_tower="path=text_model,embeddings=a"), "lacks blocks, pooling"),
    "a text tower of no keys": (changes(text_tower="text_model"), "text_tower has no key 'text_model'"),
    "captions that are not there": (changes(captions=Path("nowhere")), "no such file or folder"),
    "captions in another language": (changes(captions=Path("images")), "no captions in de; there are fr (16)"),
}


def test_a_base_in_the_working_directory_is_found_from_any_other(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    assert run(*options(folder, base="clip", vocabulary="bert", output=tmp_path / "adapter")) == 0
    monkeypatch.chdir(tmp_path)
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str((folder / "clip").resolve())
    assert Embedder.from_pretrained("adapter").model.config.languages == ["de"]


@pytest.mark.parametrize("case", REFUSALS)
def test_what_cannot_be_is_one_sentence(folder, capfd, monkeypatch, case):
    change, complaint = REFUSALS[case]
    monkeypatch.setenv("COLUMNS", "1000")
    before = sorted(folder.rglob("*"))
    given = options(folder, **change(folder))
    before = sorted({*before, *folder.glob("bad.*"), *folder.glob("no-separator/**/*"), *folder.glob("no-separator")})
    assert run(*given) == 1
    said = capfd.readouterr().err.strip().splitlines()[-1]
    assert said.startswith("Error: ") and complaint in said, said
    assert sorted(folder.rglob("*")) == before


def test_a_language_that_is_there_is_refused(folder, german, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    assert run(*later_options(folder, base=german / "model", language="DE")) == 1
    assert "has the language 'de' already; its languages are en, de" in capfd.readouterr().err
    assert not (folder / "output").exists()


def test_an_output_that_is_taken_is_refused_and_stays(folder, german, capfd):
    before = {path: path.stat().st_mtime_ns for path in german.rglob("*")}
    assert run(*options(folder, output=german)) == 1
    assert "holds an adapter already" in " ".join(capfd.readouterr().err.split())
    assert {path: path.stat().st_mtime_ns for path in german.rglob("*")} == before


def test_what_other_languages_depend_on_is_not_trained(folder, german, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    given = later_options(
        folder,
        base=german / "model",
        language="fr",
        translations=folder / "french.jsonl",
        output=folder / "joint",
    )
    assert run(*given, "--train-embedding") == 1
    assert "de depend on the embedding of" in capfd.readouterr().err
    assert not (folder / "joint").exists()


@pytest.mark.parametrize(
    "choice",
    [
        {"vocabulary": "bert"},
        {"new_vocabulary": 100},
        {"acquirer": "mlp"},
        {"acquirer_size": 8},
        {"native_language": "en"},
    ],
    ids=lambda choice: next(iter(choice)),
)
def test_what_the_first_language_settled_is_not_asked_again(folder, german, capfd, monkeypatch, choice):
    monkeypatch.setenv("COLUMNS", "1000")
    given = later_options(folder, base=german / "model", language="fr", translations=folder / "french.jsonl", **choice)
    assert run(*given) == 1
    assert f"{next(iter(choice))}: {german / 'model'} has acquired languages already" in capfd.readouterr().err
    assert not (folder / "output").exists()


@pytest.mark.parametrize("option", ["steps", "exposure_steps", "batch_size", "acquirer_size", "new_vocabulary"])
def test_numbers_that_cannot_be(folder, capfd, option):
    assert run(*options(folder, **{option: 0})) == 2
    assert "greater than or equal to 1" in " ".join(capfd.readouterr().err.replace("│", "").split())


def test_a_path_with_brackets_is_shown_as_it_is(folder, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    assert run(*options(folder, translations="[/de]/[en].tsv")) == 1
    assert "[/de]/[en].tsv: no such file" in capfd.readouterr().err


# ---- Damaged adapters ----


def copied(german, folder):
    folder.mkdir()
    for name in ("adapter_config.json", "adapter_model.safetensors", "embedding"):
        (folder / name).symlink_to(german / name)
    return folder


@pytest.mark.parametrize("file", ["adapter_model.safetensors", "embedding/model.safetensors"])
def test_a_truncated_adapter_is_refused(german, tmp_path, file):
    adapter = copied(german, tmp_path / "adapter")
    if "/" in file:
        (adapter / "embedding").unlink()
        (adapter / "embedding").mkdir()
        for path in (german / "embedding").iterdir():
            (adapter / "embedding" / path.name).write_bytes(path.read_bytes())
    content = (german / file).read_bytes()
    (adapter / file).unlink()
    (adapter / file).write_bytes(content[:-50])
    with pytest.raises(ModelFolderError, match=r"model\.safetensors is truncated"):
        Embedder.from_pretrained(adapter)


def test_an_adapter_for_another_model_is_refused(german, folder, tmp_path):
    adapter = copied(german, tmp_path / "adapter")
    config = json.loads((german / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").unlink()
    (adapter / "adapter_config.json").write_text(
        json.dumps(config | {"base_model_name_or_path": str(folder / "wide")})
    )
    model, processor = tiny_clip()
    config = model.config.to_dict()
    config["text_config"] |= {"num_hidden_layers": 3}
    saved((type(model)(type(model.config).from_dict(config)), processor), folder / "wide")
    with pytest.raises(ModelMismatchError, match="text_layers=2, and this model 3"):
        Embedder.from_pretrained(adapter)


def test_a_truncated_adapter_as_base_is_one_sentence(folder, german, tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    adapter = copied(german, tmp_path / "adapter")
    (adapter / "adapter_model.safetensors").unlink()
    (adapter / "adapter_model.safetensors").write_bytes((german / "adapter_model.safetensors").read_bytes()[:100])
    given = later_options(folder, base=adapter, language="fr", translations=folder / "french.jsonl")
    assert run(*given) == 1
    assert "adapter_model.safetensors is truncated or damaged" in capfd.readouterr().err
    assert not (folder / "output").exists()


def test_it_searches_images(french, folder, capfd, monkeypatch):
    command = ["babelens", "search", str(french / "model"), "carré rouge", "--language", "fr"]
    monkeypatch.setattr(sys, "argv", [*command, "--images", str(folder / "images"), "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert len(json.loads(capfd.readouterr().out)["results"]) == 10
