"""`babelens acquire` on every kind of dual encoder, with the vocabulary of an XLM-R: the language is learned, and
everything else stays as it was."""

import itertools
import json
import random

import numpy as np
import pytest
import torch
from acquire_command import as_arguments, run_acquire
from peft import PeftModel
from tiny_dual_encoders import KINDS, REMOTE_TOWER, save_remote, tiny_xlm_roberta
from tiny_native import saved
from tiny_training import COLORS, SHAPES, shapes_corpus
from transformers import AutoModel, AutoTokenizer

from babelens import Embedder
from babelens.configuration.errors import ModelKindError, RecipeError, UntrustedCodeError
from babelens.evaluation.retrieval import translation_retrieval
from babelens.trainers.arguments import MlaTrainingArguments
from babelens.workflows.acquiring import Acquisition
from babelens.workflows.base import RecipeRun
from babelens.workflows.loading import load_recipe

SIZES = {"small": "kleiner", "big": "großer", "old": "alter", "new": "neuer"}
THINGS = list(itertools.product(SIZES.items(), COLORS.items(), SHAPES.items(), {"a": "ein", "the": "der"}.items()))
random.Random(0).shuffle(THINGS)
ENGLISH = [f"{the} {size} {color} {shape}" for (size, _), (color, _), (shape, _), (the, _) in THINGS]
GERMAN = [f"{der} {size} {form} in {color}" for (_, size), (_, (color, *_)), (_, (form, _)), (_, der) in THINGS]
HELD_OUT = 24


@pytest.fixture(scope="module")
def brought(tmp_path_factory):
    """Translations, and an XLM-R whose table is the vocabulary."""
    folder = tmp_path_factory.mktemp("brought")
    saved(tiny_xlm_roberta(), folder / "xlm-roberta")
    rows = zip(["en", *ENGLISH[HELD_OUT:]], ["de", *GERMAN[HELD_OUT:]], strict=True)
    (folder / "pairs.tsv").write_text("\n".join("\t".join(row) for row in rows))
    return folder


def german(brought, base, output, **changes):
    """The acquisition of German, in a few steps."""
    training = {"per_device_train_batch_size": 32, "learning_rate": 3e-2, "weight_decay": 0.0, "use_cpu": True}
    given = {"vocabulary": str(brought / "xlm-roberta"), "acquirer_size": 32, "steps": 120, "names": False}
    given |= {"training": training | {"precision": "float32"}} | changes
    return Acquisition(str(base), "de", str(brought / "pairs.tsv"), output, **given)


def learned(acquisition, assemble=True):
    """Trains, saves the adapter and the model, and returns the recall at 1 and 10 of texts that were held out."""
    acquisition.load()
    results = acquisition.run()
    if assemble:
        acquisition.assemble()
    acquisition.save(results, "babelens acquire")
    texts, translations = GERMAN[:HELD_OUT], ENGLISH[:HELD_OUT]
    embedder = Embedder(acquisition.model, acquisition.processor)
    return translation_retrieval(embedder, texts, translations, languages=("de", "en"))


def features(source, *languages, **loading):
    embedder = Embedder.from_pretrained(source, **loading)
    embedder.model.requires_grad_(False)  # torch may multiply weights that are trained in another way
    images = [row["image"] for row in shapes_corpus().select(range(4))]
    texts = {"en": [*ENGLISH[:9], " ".join(ENGLISH)], "de": [*GERMAN[:9], " ".join(GERMAN)]}  # one is cut
    found = {tag: embedder.encode_text(texts[tag], language=tag, normalize=False) for tag in languages}
    return found | {"images": embedder.encode_image(images, normalize=False)}


def assert_same(found, expected):
    assert {name: np.array_equal(found[name], value) for name, value in expected.items()} == dict.fromkeys(
        expected, True
    )


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """The assembled models, each with what it computes."""
    return {}


@pytest.mark.parametrize("kind", KINDS)
def test_every_dual_encoder_acquires_a_language(brought, tmp_path_factory, models, kind):
    folder = tmp_path_factory.mktemp("kind")
    base = saved(KINDS[kind](), folder / "base")
    recalls = learned(german(brought, base, folder / "de"))
    assert recalls["r1"] > 2 * 100 / HELD_OUT and recalls["r10"] > 1.5 * 1000 / HELD_OUT  # than chance
    model = features(folder / "de" / "model", "en", "de")
    assert_same(model, features(base, "en"))
    assert_same(features(folder / "de", "en", "de"), model)
    models[folder / "de" / "model"] = model["de"]


def test_the_translations_of_few_are_one_batch(brought, tmp_path):
    saved(KINDS["clip"](), tmp_path / "clip")
    own = german(brought, tmp_path / "clip", tmp_path / "own", training={"seed": 1})
    chosen = german(brought, tmp_path / "clip", tmp_path / "chosen")
    for run, size in ((own, 94), (chosen, 32)):
        run.load()
        assert len(run.split[0]) == 94 < MlaTrainingArguments.per_device_train_batch_size
        assert run.arguments("text_text").per_device_train_batch_size == size
    few = german(brought, tmp_path / "clip", tmp_path / "few", training={"seed": 1})
    few.load()
    few.split = few.split[0].select(range(5)), few.split[1]
    assert few.batch_size == 32  # and the run is refused, as it has fewer


def test_the_models_load_without_the_package(models, run_without_babelens, tmp_path):
    given = {str(folder): features.tolist() for folder, features in models.items()}
    texts = [*GERMAN[:9], " ".join(GERMAN)]
    (tmp_path / "given.json").write_text(json.dumps([texts, given]))
    run_without_babelens(WITHOUT_THE_PACKAGE, tmp_path / "given.json")


WITHOUT_THE_PACKAGE = """
import json, sys
import torch
from transformers import AutoModel, AutoProcessor

texts, given = json.load(open(sys.argv[1]))
for folder, expected in given.items():
    model = AutoModel.from_pretrained(folder, trust_remote_code=True).eval()
    inputs = AutoProcessor.from_pretrained(folder, trust_remote_code=True)(
        text=texts, language="de", return_tensors="pt"
    )
    with torch.no_grad():
        found = model.get_text_features(**inputs).pooler_output
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-4, atol=1e-4, msg=folder)
"""


# ---- A dual encoder whose code comes with it ----


@pytest.fixture(scope="module")
def remote(tmp_path_factory):
    return save_remote(tmp_path_factory.mktemp("remote"))


def test_the_command_line_takes_a_declared_text_tower(brought, remote, tmp_path):
    given = {
        "base": remote,
        "language": "de",
        "translations": brought / "pairs.tsv",
        "vocabulary": brought / "xlm-roberta",
        "output": tmp_path / "de",
        "steps": 1,
        "batch_size": 8,
        "way": "adapter",
        "text_tower": ",".join(f"{key}={value}" for key, value in REMOTE_TOWER.items()),
        "trust_remote_code": True,
    }
    assert run_acquire(*as_arguments(given)) == 0
    assert json.loads((tmp_path / "de" / "adapter_config.json").read_text())["text_tower"] == REMOTE_TOWER


def test_a_model_with_code_of_its_own_acquires_a_language(brought, remote, tmp_path):
    code = {"trust_remote_code": True}
    acquisition = german(brought, remote, tmp_path / "de", text_tower=REMOTE_TOWER, **code)
    recalls = learned(acquisition, assemble=False)
    assert recalls["r1"] > 2 * 100 / HELD_OUT and recalls["r10"] > 1.5 * 1000 / HELD_OUT  # than chance
    found = features(tmp_path / "de", "en", "de", **code)
    plain = features(remote, "en", **code)
    assert_same(found, plain)
    assert json.loads((tmp_path / "de" / "adapter_config.json").read_text())["text_tower"] == REMOTE_TOWER
    model = PeftModel.from_pretrained(AutoModel.from_pretrained(remote, **code), tmp_path / "de").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "de" / "embedding")
    with torch.no_grad():
        rows = model.get_text_features(tokenizer(GERMAN[:9], padding=True, return_tensors="pt")["input_ids"])
        one = model.get_text_features(tokenizer(GERMAN[:1], return_tensors="pt")["input_ids"])
    np.testing.assert_allclose(rows, found["de"][:9], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(rows[:1], one, rtol=1e-4, atol=1e-5)  # the padding is found where it is
    with pytest.raises(ModelKindError, match="save the adapter alone"):
        acquisition.assemble()


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (None, "does not support 'toy_dual' models"),
        (REMOTE_TOWER | {"embeddings": "transformer.tables"}, "did you mean 'table'"),
        (REMOTE_TOWER | {"path": "text_tower"}, "ToyDual has no module 'text_tower', which text_tower states as path"),
        (REMOTE_TOWER | {"blocks": "transformer.table"}, "is a Embedding, and not a list of blocks"),
        (REMOTE_TOWER | {"embeddings": "transformer.layers.0.mix"}, "neither a table"),
        (REMOTE_TOWER | {"pooling": "end"}, "no configuration of the model has its eos_token_id"),
        (REMOTE_TOWER | {"pooling": "middle"}, "none of end, first, last, mean"),
        (REMOTE_TOWER | {"polling": "mean"}, "no key 'polling'; did you mean 'pooling'"),
        ({"path": "text_model"}, "lacks embeddings, blocks, pooling"),
        (REMOTE_TOWER | {"path": ""}, "is not the name of a module"),
    ],
)
def test_a_wrong_text_tower_is_refused(brought, remote, tmp_path, wrong, complaint):
    with pytest.raises(ModelKindError, match=complaint):
        german(brought, remote, tmp_path, text_tower=wrong, trust_remote_code=True).load()


def test_a_recipe_refuses_a_base_with_code_of_its_own(brought, remote, tmp_path):
    changes = {
        "model.from_pretrained": str(remote),
        "model.overrides.text_tower": REMOTE_TOWER,
        "multilingual_tokenizer.from_pretrained": str(brought / "xlm-roberta"),
        "train.text_text.source": str(brought / "pairs.tsv"),
    }
    recipe = load_recipe("photos/mla/mla", changes)
    with pytest.raises(RecipeError, match="`babelens acquire` makes an adapter"):
        RecipeRun(recipe, tmp_path / "run", "babelens train", trust_remote_code=True).train()
    assert not list((tmp_path / "run").glob("*.safetensors"))


def test_code_that_comes_with_a_model_must_be_asked_for(brought, remote, tmp_path):
    with pytest.raises(UntrustedCodeError):
        german(brought, remote, tmp_path, text_tower=REMOTE_TOWER).load()
