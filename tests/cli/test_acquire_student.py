"""`babelens acquire --way student`, from files to a whole model, what it costs, and the closed form beside it."""

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml
from acquire_command import as_arguments, run_acquire as run
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from tiny_native import saved, tiny_bert, tiny_clip, tiny_dual_encoder, tiny_text_encoder
from tiny_training import COLORS, SHAPES
from transformers import AutoModel, AutoProcessor

from babelens import Embedder, MlaStudentModel, RidgeModel
from babelens.workflows.acquiring import Acquisition
from babelens.workflows.acquisition_choices import WayCosts
from babelens.workflows.acquisition_run import costs
from babelens.workflows.student_acquisition import StudentAcquisition

ENGLISH = ["a red square", "a blue dot"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Models and translations as people bring them."""
    folder = tmp_path_factory.mktemp("brought")
    saved(tiny_clip(), folder / "clip")
    saved(tiny_dual_encoder(), folder / "vision-text")
    saved(tiny_bert(), folder / "bert")
    saved((tiny_text_encoder("mt5"), tiny_bert()[1]), folder / "mt5")
    rows = [
        {"en": f"a {color} {shape} {number}", "de": f"{form} in {farbe} {number}", "fr": f"{forme} {couleur} {number}"}
        for number in range(3)
        for color, (farbe, couleur, _) in COLORS.items()
        for shape, (form, forme) in SHAPES.items()
    ]
    (folder / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


def options(folder, **changes):
    """The arguments of a quick run, some changed; `None` leaves one out, `True` is a flag."""
    given = {
        "base": folder / "clip",
        "way": "student",
        "language": "de,fr",
        "translations": folder / "pairs.jsonl",
        "text_encoder": folder / "bert",
        "output": folder / "output",
        "steps": 5,
        "batch_size": 8,
        "learning_rate": 1e-2,
        "keep": "trained",
        "names": False,
    } | changes
    return as_arguments(given)


@pytest.fixture(scope="module")
def student(folder):
    """CLIP learned German and French by a student."""
    assert run(*options(folder, output=folder / "student", text_prompt="dot ", text_pooling="mean")) == 0
    return folder / "student"


def test_the_folder_is_a_whole_model(student):
    model, processor = AutoModel.from_pretrained(student), AutoProcessor.from_pretrained(student)
    assert type(model) is MlaStudentModel and not (student / "checkpoints").exists()
    assert model.config.known_languages == ["en", "de", "fr"] and model.config.learned_languages == ["de", "fr"]
    assert (model.config.text_pooling, model.config.text_prompt, processor.text_prompt) == ("mean", "dot ", "dot ")
    before = tiny_bert()[0].embeddings.word_embeddings.weight
    assert not torch.equal(model.text_model.embeddings.word_embeddings.weight, before)


def test_english_is_the_base_models_to_the_bit(folder, student):
    base, found = Embedder.from_pretrained(folder / "clip"), Embedder.from_pretrained(student)
    base.model.requires_grad_(False)
    english = [each.encode_text(ENGLISH, language="en", normalize=False) for each in (base, found)]
    assert np.array_equal(*english)
    assert not np.allclose(found.encode_text(ENGLISH, language="de", normalize=False), english[0])


def test_the_card(student, folder):
    card = ModelCard.load(student / "README.md")
    assert card.data.language == ["en", "de", "fr"] and card.data.library_name == "transformers"
    assert ModelCard.load(student / "README.md").data.base_model is None  # folders cannot be linked to
    assert "So are texts in en." in card.text and "| de | " in card.text and "| fr | " in card.text
    assert "The text encoder and a projection were trained on 44 rows" in card.text.replace("\n", " ")


def test_without_the_package(student, run_without_babelens, tmp_path):
    run_without_babelens(_WITHOUT_PACKAGE, student, tmp_path / "features.pt")
    found = Embedder.from_pretrained(student).encode_text(["Punkt in rot"], language="de", normalize=False)
    np.testing.assert_allclose(torch.load(tmp_path / "features.pt").numpy(), found, rtol=1e-5, atol=1e-6)


_WITHOUT_PACKAGE = """
import shutil
import sys
import torch
from transformers import AutoModel, AutoProcessor

model = AutoModel.from_pretrained(sys.argv[1], trust_remote_code=True).eval()
processor = AutoProcessor.from_pretrained(sys.argv[1], trust_remote_code=True)
with torch.no_grad():
    inputs = processor(text=["Punkt in rot"], language="de", return_tensors="pt")
    torch.save(model.get_text_features(**inputs).pooler_output, sys.argv[2])
"""


def test_a_frozen_encoder_of_another_kind_for_a_base_of_another_kind(folder, capfd):
    given = options(
        folder,
        base=folder / "vision-text",
        text_encoder=folder / "mt5",
        text_pooling="mean",
        freeze_encoder=True,
        native_texts="student",
        output=folder / "frozen",
        json=True,
    )
    assert run(*given) == 0
    result = json.loads(capfd.readouterr().out)
    assert (result["adapter"], result["model"]) == (None, str(folder / "frozen"))
    assert set(result["held_out"]) == {"de", "fr"} and result["held_out"]["de"]["pairs"] == 4
    told = result["costs"]
    model = AutoModel.from_pretrained(folder / "frozen")
    assert told["trained_parameters"] == 12 * 10 + 10 == model.parameter_parts()["projection"]
    assert told["added_parameters"] == model.num_parameters() - model.parameter_parts()["native model"]
    encoder = tiny_text_encoder("mt5").state_dict()
    assert all(torch.equal(encoder[name], value) for name, value in model.text_model.state_dict().items())
    assert model.config.learned_languages == ["en", "de", "fr"]
    assert "Texts in en are read by the student too" in (folder / "frozen" / "README.md").read_text()


def test_upper_layers_of_the_encoder_are_trained(folder, capfd):
    saved((tiny_text_encoder("distilbert"), tiny_bert()[1]), folder / "distilbert")
    given = {"text_encoder": folder / "distilbert", "text_pooling": "mean", "output": folder / "layers"}
    assert run(*options(folder, **given, train_layers=1, json=True)) == 0
    student = json.loads(capfd.readouterr().out)["costs"]
    model, encoder = AutoModel.from_pretrained(folder / "layers"), tiny_text_encoder("distilbert").state_dict()
    own = model.text_model.state_dict()
    changed = {name for name, value in own.items() if not torch.equal(value, encoder[name])}
    assert changed and all(name.startswith("transformer.layer.2.") for name in changed)
    upper = sum(value.numel() for name, value in own.items() if name.startswith("transformer.layer.2."))
    assert student["trained_parameters"] == upper + model.parameter_parts()["projection"]
    assert student["seconds_once"] > 0  # of the layers below
    card = (folder / "layers" / "README.md").read_text()
    assert "The upper layer of the text encoder and a projection were trained" in card
    assert f"of which {student['trained_parameters']:,} were trained" in card


def test_the_recipe_that_it_writes_and_options_of_earlier_versions(folder, student, tmp_path, capfd):
    recipe = student / "recipe.yaml"
    written = yaml.safe_load(recipe.read_text(encoding="utf-8"))
    assert written["way"] == "student" and written["text_pooling"] == "mean" and written["keep"] == "trained"
    assert "output" not in written and written["training"]["per_device_train_batch_size"] == 8
    assert run("--recipe", recipe, "--output", tmp_path / "again") == 0
    assert (tmp_path / "again" / "recipe.yaml").read_bytes() == recipe.read_bytes()
    weights = [load_file(each / "model.safetensors") for each in (student, tmp_path / "again")]
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())
    changes = ("train_layers=1", "names=false", "training.bf16=true")
    settings = [part for change in changes for part in ("--set", change)]
    assert run("--recipe", recipe, "--output", tmp_path / "changed", *settings) == 0
    changed = yaml.safe_load((tmp_path / "changed" / "recipe.yaml").read_text(encoding="utf-8"))
    assert changed["train_layers"] == 1 and changed["names"] is False and changed["training"]["bf16"] is True


def test_layers_that_cannot_be_trained_are_refused(folder, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    assert run(*options(folder, output=folder / "wrong", train_layers=9)) == 1
    assert "towers.text: layers=9 is more than this tower (bert) has: 1" in capfd.readouterr().err
    assert run(*options(folder, output=folder / "wrong", train_layers=1, freeze_encoder=True)) == 1
    assert "freeze_encoder=True and train_layers=1: a text encoder that stays" in capfd.readouterr().err
    assert not (folder / "wrong").exists()


# ---- Resuming ----


def test_a_run_that_broke_off_goes_on(folder, student, monkeypatch, tmp_path, capfd):
    monkeypatch.setenv("COLUMNS", "1000")
    given = options(folder, output=tmp_path / "run", text_prompt="dot ", text_pooling="mean")

    def break_off(*arguments):
        raise RuntimeError("power cut")

    with monkeypatch.context() as patched:
        patched.setattr("babelens.workflows.student_acquisition.shutil", SimpleNamespace(rmtree=break_off))
        with pytest.raises(RuntimeError, match="power cut"):
            run(*given)
    assert run(*given) == 1
    assert run(*[*given, "--resume", "--text-prompt", "bar "]) == 1
    assert "text_prompt was 'dot ' when the run began, and is 'bar '" in capfd.readouterr().err
    assert run(*given, "--resume") == 0
    for name in ("model.safetensors", "config.json"):
        assert (tmp_path / "run" / name).read_bytes() == (student / name).read_bytes()
    assert run(*given, "--resume") == 1
    assert "holds a model already" in capfd.readouterr().err


# ---- What it costs, and the closed form beside it ----


def test_advice_writes_nothing(folder, capfd):
    assert run(*options(folder, output=None, advise=True, json=True)) == 0
    told = json.loads(capfd.readouterr().out)
    assert told["costs"]["steps"] == 5 and told["costs"]["minutes"] > 0
    found = told["forecast"]["de"]
    assert list(found["measured"]) == ["39"] and found["tested"] == 9 and found["candidates"] == 48
    assert not (folder / "output").exists()


def test_the_better_one_of_student_and_closed_form_is_kept(folder, tmp_path, capfd):
    given = {"keep": "better", "steps": 1, "learning_rate": 1e-9, "json": True}
    assert run(*options(folder, output=tmp_path / "kept", **given)) == 0
    told = json.loads(capfd.readouterr().out)
    better = [sum(each["r1"] + each["r10"] for each in told[way].values()) for way in ("held_out", "closed_form")]
    assert better[1] > better[0] and told["kept"] == "closed form"
    assert type(AutoModel.from_pretrained(tmp_path / "kept")) is RidgeModel
    assert not (tmp_path / "kept" / "checkpoints").exists()


def test_training_fits_into_its_minutes(folder, tmp_path):
    choices = (str(folder / "clip"), "de", str(folder / "pairs.jsonl"), tmp_path / "timed")
    acquisition = StudentAcquisition(*choices, text_encoder=str(folder / "bert"), minutes=1.0)
    cost = WayCosts(1, 1, 0.0, 1.0, steps=500, seconds_per_step=0.5, seconds_once=10.0, is_measured=True)
    acquisition.fit_into_minutes(cost)
    assert acquisition.steps == 100  # of half a second, in 50 seconds
    acquisition.minutes = 9.0
    acquisition.fit_into_minutes(cost)
    assert acquisition.steps == 100  # which is chosen now
    roomy = StudentAcquisition(*choices, text_encoder=str(folder / "bert"), minutes=9.0)
    roomy.fit_into_minutes(cost)
    assert roomy.steps is None


def test_measuring_leaves_weights_gradients_and_random_numbers(folder):
    given = (str(folder / "clip"), "de", str(folder / "pairs.jsonl"), folder)
    training = {"per_device_train_batch_size": 4}
    acquisition = StudentAcquisition(*given, text_encoder=str(folder / "bert"), training=training)
    acquisition.load()
    model = acquisition.model
    before, random = {name: value.clone() for name, value in model.state_dict().items()}, torch.get_rng_state()
    cost = costs(acquisition)
    assert cost.seconds_per_step > 0 and cost.seconds_once > 0  # of native texts
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_measuring_takes_loras_adapters_away(folder):
    """The trainer places its own."""
    training = {"towers": {"text": {"train": "lora"}}, "per_device_train_batch_size": 4}
    given = (str(folder / "clip"), "de", str(folder / "pairs.jsonl"), folder)
    acquisition = StudentAcquisition(*given, text_encoder=str(folder / "bert"), training=training)
    acquisition.load()
    names = list(acquisition.model.state_dict())
    assert 0 < costs(acquisition).trained_parameters < 5000
    assert list(acquisition.model.state_dict()) == names


class _Counting:
    """A hook that counts the texts that a model reads, in its copies too."""

    def __init__(self, calls):
        self.calls = calls

    def __deepcopy__(self, memo):
        return self

    def __call__(self, module, args, output):
        self.calls.append(len(output[0]))


def test_a_frozen_encoder_reads_each_text_once(folder):
    acquisition = StudentAcquisition(
        str(folder / "clip"),
        "de",
        str(folder / "pairs.jsonl"),
        folder,
        text_encoder=str(folder / "bert"),
        freeze_encoder=True,
    )
    acquisition.load()
    calls = []
    acquisition.model.text_model.register_forward_hook(_Counting(calls))
    cost = costs(acquisition)
    texts = len(acquisition.pairs)  # before the steps of 8 pairs, and before those of a whole batch
    assert sum(calls) in (texts, texts + min(texts, acquisition.batch_size))
    assert cost.seconds_once > 0 and cost.minutes * 60 > cost.steps * cost.seconds_per_step


def test_long_steps_are_estimated(folder, monkeypatch):
    monkeypatch.setattr("babelens.workflows.acquisition_run._LONGEST_STEP", 0.0)
    acquisition = StudentAcquisition(
        str(folder / "clip"), "de", str(folder / "pairs.jsonl"), folder, text_encoder=str(folder / "bert")
    )
    acquisition.load()
    assert not costs(acquisition).is_measured


# ---- Refusals ----

REFUSALS = {
    "no text encoder": ({"text_encoder": None}, "a student needs a multilingual text encoder"),
    "choices of an adapter": ({"acquirer_size": 8}, "acquirer_size=8: only an adapter (--way adapter)"),
    "choices of a student": (
        {"way": "adapter", "language": "de", "text_encoder": None, "text_prompt": "query: "},
        "--text-prompt 'query: ': choices of a text encoder",
    ),
    "several languages in an adapter": ({"way": "adapter"}, "an adapter holds one language, and not de, fr"),
    "the native language": ({"language": "de,en"}, "has the language 'en' already"),
    "another language": ({"language": "de,uk"}, "has no text in 'uk', only in"),
    "no dual encoder": ({"base": "bert"}, "is a 'bert' model, and no dual encoder"),
    "a pooling that is not there": (
        {"text_encoder": "mt5", "text_pooling": "pooler"},
        "this 'mt5' text encoder has no pooling layer",
    ),
    "a text encoder that is a dual encoder": ({"text_encoder": "clip"}, "a 'clip' model is no text encoder"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_cannot_be_is_one_sentence(folder, capfd, monkeypatch, case):
    change, complaint = REFUSALS[case]
    monkeypatch.setenv("COLUMNS", "1000")
    paths = {name: folder / change[name] for name in ("base", "text_encoder") if change.get(name)}
    assert run(*options(folder, **change | paths)) == 1
    said = capfd.readouterr().err.strip().splitlines()[-1]
    assert said.startswith("Error: ") and complaint in said, said
    assert not (folder / "output").exists()


def test_a_student_is_no_base(folder, student, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    assert run(*options(folder, base=student, language="cs")) == 1
    assert "has acquired de, fr already, which a new student would not read" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("changes", "message"), [({"output": None}, "name the folder"), ({"assemble": True}, "is a whole model already")]
)
def test_options_that_do_not_fit(folder, capfd, monkeypatch, changes, message):
    monkeypatch.setenv("COLUMNS", "200")
    assert run(*options(folder, **changes)) == 2
    assert message in capfd.readouterr().err


def test_in_python_they_are_two_classes(folder):
    choices = (str(folder / "clip"), "de", str(folder / "pairs.jsonl"), folder / "output")
    assert Acquisition(*choices).way == "adapter"
    assert StudentAcquisition(*choices, text_encoder="bert").way == "student"


def test_the_license_of_a_text_encoder_is_kept(folder, tmp_path, capsys):
    encoder = tmp_path / "encoder"
    shutil.copytree(folder / "bert", encoder)
    (encoder / "README.md").write_text("---\nlicense: cc-by-nc-4.0\n---\n")
    given = {"text_encoder": encoder, "output": tmp_path / "student"}
    assert run(*options(folder, **given, license="apache-2.0")) == 1
    assert "cc-by-nc-4.0" in capsys.readouterr().err
    assert not (tmp_path / "student" / "config.json").exists()
    assert run(*options(folder, **given)) == 0
    card = (tmp_path / "student" / "README.md").read_text()
    assert "cc-by-nc-4.0" in card and "commercial" in card
