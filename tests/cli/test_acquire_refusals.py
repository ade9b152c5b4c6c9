"""What `babelens acquire` is asked and cannot do: options, files and adapters, each refused in one sentence."""

import json
import shutil
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from acquire_command import run_acquire as run
from acquired_languages import later_options, options, sentences, write_tsv
from tiny_native import saved, tiny_clip
from transformers import PreTrainedTokenizerFast

from babelens import Embedder
from babelens.cli.main import main
from babelens.configuration.errors import ModelFolderError, ModelMismatchError, TrainingSetupError
from babelens.workflows.acquiring import Acquisition
from babelens.workflows.ridge_acquisition import RidgeAcquisition

# ---- Options ----


def test_sentence_pairs_of_opus_are_translations(brought, german, tmp_path):
    """The same rows give the same adapter, whatever they are read from."""
    rows = sentences()
    with zipfile.ZipFile(tmp_path / "de-en.txt.zip", "w") as archive:
        for tag in ("de", "en"):
            archive.writestr(f"Tatoeba.de-en.{tag}", "".join(f"{row[tag]}\n" for row in rows))
    given = options(brought, translations=tmp_path / "de-en.txt.zip", output=tmp_path / "adapter")
    assert run(*given) == 0
    weights = "adapter_model.safetensors"
    assert (tmp_path / "adapter" / weights).read_bytes() == (german / weights).read_bytes()


@pytest.mark.parametrize(
    ("changes", "status", "message"),
    [
        ({"learning_rate": -1}, 1, "learning_rate"),
        ({"learning_rate": ".nan"}, 1, "learning_rate must be a finite number, not nan"),
        ({"learning_rate": ".inf"}, 1, "learning_rate must be a finite number, not inf"),
        ({"seed": -1}, 1, "seed"),
        ({"seed": 2**32}, 1, "seed"),
        ({"steps": 0}, 2, "--steps"),
        ({"batch_size": 0}, 1, "per_device_train_batch_size"),
        ({"exposure_steps": 0}, 1, "exposure_steps=0 must be at least 1"),
        ({"exposure_steps": 3}, 1, "exposure_steps=3 is for language exposure, which takes captions"),
        ({"new_vocabulary": 100}, 1, "bert' and new_vocabulary=100: one of them can be taken"),
        ({"new_vocabulary": 0}, 1, "new_vocabulary=0 must be at least 1"),
        ({"acquirer_size": 0}, 1, "acquirer_size=0 must be at least 1"),
        ({"license": "my license"}, 1, "'my license' is no license that the Hub has an identifier for"),
        ({"native_language": "xx"}, 1, "'xx' names no registered language"),
        ({"set": "way=[adapter]"}, 1, "way=['adapter']; did you mean 'adapter'?: there are ridge"),
        ({"language": None, "set": "languages=de"}, 1, "unknown key languages; did you mean 'language'?"),
    ],
)
def test_what_cannot_be_had_is_refused_in_one_sentence(
    brought, tmp_path, capfd, monkeypatch, changes, status, message
):
    monkeypatch.setenv("COLUMNS", "1000")
    assert run(*options(brought, output=tmp_path / "refused", **changes)) == status
    said = capfd.readouterr().err
    assert message in said and "Traceback" not in said
    assert not (tmp_path / "refused").exists()


def test_an_adapter_is_not_freer_than_its_base(brought, tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    base = shutil.copytree(brought / "clip", tmp_path / "nc-clip")
    (base / "README.md").write_text("---\nlicense: cc-by-nc-4.0\n---\n")
    assert run(*options(brought, base=base, output=tmp_path / "german", license="mit")) == 1
    said = capfd.readouterr().err
    assert "cannot be under 'mit': nc-clip, which training starts from, is under 'cc-by-nc-4.0'" in said
    assert "Traceback" not in said and not (tmp_path / "german").exists()
    assert run(*options(brought, base=base, output=tmp_path / "german", license="cc-by-nc-4.0", steps=1)) == 0
    assert "cc-by-nc-4.0: not for commercial use" in (tmp_path / "german" / "README.md").read_text()


@pytest.mark.parametrize(
    "changes",
    [{"steps": 0}, {"acquirer_size": -1}, {"training": {"seed": -1}}, {"training": {"learning_rate": float("nan")}}],
)
def test_so_it_is_in_python(brought, changes):
    with pytest.raises(TrainingSetupError, match="must be"):
        Acquisition(str(brought / "clip"), "de", str(brought / "german.tsv"), brought / "output", **changes)
    with pytest.raises(TrainingSetupError, match="ngram_rows=0 must be at least 1"):
        RidgeAcquisition(str(brought / "clip"), "de", str(brought / "german.tsv"), brought / "output", ngram_rows=0)


def test_a_collapsed_model_retrieves_nothing(brought, tmp_path):
    """All texts have one embedding: each translation is as near as any other."""
    acquisition = Acquisition(
        str(brought / "clip"), "de", str(brought / "german.tsv"), tmp_path, vocabulary=str(brought / "bert")
    )
    acquisition.load()
    for name, weight in acquisition.model.named_parameters():
        if "text_projection" in name:
            torch.nn.init.zeros_(weight)
    # All 44 have been trained on, which it says.
    expected = {"pairs": 44, "r1": 0.0, "r10": 0.0, "shared": 44}
    assert acquisition.retrieval(acquisition.split[0]) == expected


def test_a_translation_of_several_texts_is_right_for_each(brought, tmp_path):
    write_tsv(tmp_path / "pairs.tsv", ["de", "en"], [{"de": f"Punkt {k}", "en": "a dot"} for k in range(40)])
    acquisition = Acquisition(
        str(brought / "clip"), "de", str(tmp_path / "pairs.tsv"), tmp_path, vocabulary=str(brought / "bert")
    )
    acquisition.load()
    assert acquisition.retrieval(acquisition.split[1]) == {"pairs": 4, "r1": 100.0, "r10": 100.0}


# ---- Refusals ----


def test_help_says_what_there_is(capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert run("--help") == 0
    said = capfd.readouterr().out
    for option in ("--base", "--language", "--translations", "--output", "--captions", "--assemble", "acquirer_size"):
        assert option in said


def no_separator(brought):
    tokenizer = PreTrainedTokenizerFast.from_pretrained(brought / "bert")
    tokenizer.sep_token = None
    tokenizer.save_pretrained(brought / "no-separator")
    return {"vocabulary": brought / "no-separator"}


def translations(rows, *languages):
    def make(brought):
        write_tsv(brought / "bad.tsv", languages, rows)
        return {"translations": brought / "bad.tsv"}

    return make


def jsonl(text):
    def make(brought):
        (brought / "bad.jsonl").write_text(text)
        return {"translations": brought / "bad.jsonl"}

    return make


def changes(**given):
    return lambda brought: {
        name: brought / value if isinstance(value, Path) else value for name, value in given.items()
    }


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


def test_a_base_in_the_working_directory_is_found_from_any_other(brought, tmp_path, monkeypatch):
    monkeypatch.chdir(brought)
    assert run(*options(brought, base="clip", vocabulary="bert", output=tmp_path / "adapter")) == 0
    monkeypatch.chdir(tmp_path)
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str((brought / "clip").resolve())
    assert Embedder.from_pretrained("adapter").model.config.languages == ["de"]


@pytest.mark.parametrize("case", REFUSALS)
def test_what_cannot_be_is_one_sentence(brought, capfd, monkeypatch, case):
    change, complaint = REFUSALS[case]
    monkeypatch.setenv("COLUMNS", "1000")
    before = sorted(brought.rglob("*"))
    given = options(brought, **change(brought))
    before = sorted(
        {*before, *brought.glob("bad.*"), *brought.glob("no-separator/**/*"), *brought.glob("no-separator")}
    )
    assert run(*given) == 1
    said = capfd.readouterr().err.strip().splitlines()[-1]
    assert said.startswith("Error: ") and complaint in said, said
    assert sorted(brought.rglob("*")) == before


def test_a_language_that_is_there_is_refused(brought, german, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    assert run(*later_options(brought, base=german / "model", language="DE")) == 1
    assert "has the language 'de' already; its languages are en, de" in capfd.readouterr().err
    assert not (brought / "output").exists()


def test_an_output_that_is_taken_is_refused_and_stays(brought, german, capfd):
    before = {path: path.stat().st_mtime_ns for path in german.rglob("*")}
    assert run(*options(brought, output=german)) == 1
    assert "holds an adapter already" in " ".join(capfd.readouterr().err.split())
    assert {path: path.stat().st_mtime_ns for path in german.rglob("*")} == before


def test_what_other_languages_depend_on_is_not_trained(brought, german, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    given = later_options(
        brought,
        base=german / "model",
        language="fr",
        translations=brought / "french.jsonl",
        output=brought / "joint",
    )
    assert run(*given, "--set", "train_embedding=true") == 1
    assert "de depend on the embedding of" in capfd.readouterr().err
    assert not (brought / "joint").exists()


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
def test_what_the_first_language_settled_is_not_asked_again(brought, german, capfd, monkeypatch, choice):
    monkeypatch.setenv("COLUMNS", "1000")
    given = later_options(
        brought, base=german / "model", language="fr", translations=brought / "french.jsonl", **choice
    )
    assert run(*given) == 1
    ((name, value),) = choice.items()
    shown = f"{name}={value!r}: {german / 'model'} has acquired languages already"
    assert shown in capfd.readouterr().err
    assert not (brought / "output").exists()


def test_no_steps(brought, capfd):
    assert run(*options(brought, steps=0)) == 2
    assert "greater than or equal to 1" in " ".join(capfd.readouterr().err.replace("│", "").split())


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (["--set", "train_layer=3"], "unknown key train_layer; did you mean 'train_layers'?"),
        (["--set", "acquirer_size=wide"], "acquirer_size must be a whole number, not 'wide'"),
        (["--set", "output=there"], "output: is an option of the command"),
        (["--train-layers", "3"], "No such option: --train-layers"),
    ],
)
def test_keys_that_cannot_be(brought, capfd, monkeypatch, given, complaint):
    monkeypatch.setenv("COLUMNS", "1000")
    assert run(*options(brought), *given) in (1, 2)
    assert complaint in capfd.readouterr().err


def test_a_path_with_brackets_is_shown_as_it_is(brought, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    assert run(*options(brought, translations="[/de]/[en].tsv")) == 1
    assert "[/de]/[en].tsv: no such file" in capfd.readouterr().err


# ---- Damaged adapters ----


def copied(german, brought):
    brought.mkdir()
    for name in ("adapter_config.json", "adapter_model.safetensors", "embedding"):
        (brought / name).symlink_to(german / name)
    return brought


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


def test_an_adapter_for_another_model_is_refused(german, brought, tmp_path):
    adapter = copied(german, tmp_path / "adapter")
    config = json.loads((german / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").unlink()
    (adapter / "adapter_config.json").write_text(
        json.dumps(config | {"base_model_name_or_path": str(brought / "wide")})
    )
    model, processor = tiny_clip()
    config = model.config.to_dict()
    config["text_config"] |= {"num_hidden_layers": 3}
    saved((type(model)(type(model.config).from_dict(config)), processor), brought / "wide")
    with pytest.raises(ModelMismatchError, match="text_layers=2, and this model 3"):
        Embedder.from_pretrained(adapter)


def test_a_truncated_adapter_as_base_is_one_sentence(brought, german, tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    adapter = copied(german, tmp_path / "adapter")
    (adapter / "adapter_model.safetensors").unlink()
    (adapter / "adapter_model.safetensors").write_bytes((german / "adapter_model.safetensors").read_bytes()[:100])
    given = later_options(brought, base=adapter, language="fr", translations=brought / "french.jsonl")
    assert run(*given) == 1
    assert "adapter_model.safetensors is truncated or damaged" in capfd.readouterr().err
    assert not (brought / "output").exists()


def test_it_searches_images(french, brought, capfd, monkeypatch):
    command = ["babelens", "search", str(french / "model"), "carré rouge", "--language", "fr"]
    monkeypatch.setattr(sys, "argv", [*command, "--images", str(brought / "images"), "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert len(json.loads(capfd.readouterr().out)["results"]) == 10
