import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel

from babelens import Embedder, RidgeModel
from babelens.utils.pretrained import load_model
from tests.support import acquire_command
from tests.support.acquire_command import MIRRORED, ROWS, hide_npm, write_pairs
from tests.support.tiny_native import saved, tiny_bert, tiny_clip

IMAGES = [np.random.default_rng(index).integers(0, 255, (40, 40, 3), dtype=np.uint8) for index in range(3)]
KINDS = ["float32", "bfloat16", "mixed"]


def save_base(folder, kind):
    model, processor = tiny_clip()
    processor.save_pretrained(folder)
    model.to(torch.float32 if kind == "float32" else torch.bfloat16).save_pretrained(folder)
    if kind == "mixed":
        file = folder / "model.safetensors"
        exact = tiny_clip()[0].state_dict()
        halved = {name: exact[name] if "norm" in name else value for name, value in load_file(file).items()}
        assert {value.dtype for value in halved.values()} == {torch.float32, torch.bfloat16}
        for name in halved:
            if "norm" in name:
                halved[name] = halved[name] + 1e-5  # which bfloat16 does not hold
        save_file(halved, file, metadata={"format": "pt"})
    return folder


def weights_in(folder):
    return load_file(folder / "model.safetensors")


def assert_carries(folder, base):
    own, given = weights_in(folder), weights_in(base)
    for name, value in given.items():
        held = own[f"native_model.{name}"]
        assert held.dtype == value.dtype and torch.equal(held, value), name
    plain, model = Embedder.from_pretrained(base), Embedder.from_pretrained(folder)
    assert model.model.dtype == plain.model.dtype
    np.testing.assert_array_equal(model.encode_text(ROWS, language="en"), plain.encode_text(ROWS))
    np.testing.assert_array_equal(model.encode_image(IMAGES), plain.encode_image(IMAGES))
    return model


def acquire(base, table, output, **more):
    with pytest.MonkeyPatch.context() as patched:
        hide_npm(patched, output.parent / "npm")
        assert acquire_command.acquire(base, table, output, **more) == 0
    return output


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bases")
    return {kind: save_base(folder / kind, kind) for kind in KINDS}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return write_pairs(tmp_path_factory.mktemp("data") / "pairs.tsv")


@pytest.fixture(scope="module")
def exact(bases, table, tmp_path_factory):
    folder = acquire(bases["float32"], table, tmp_path_factory.mktemp("exact") / "one")
    return Embedder.from_pretrained(folder).encode_text(MIRRORED, language="mi")


@pytest.mark.parametrize("kind", ["bfloat16", "mixed"])
def test_languages_are_learned_beside_the_bits_of_the_base(bases, table, exact, tmp_path, kind):
    one = acquire(bases[kind], table, tmp_path / "one")
    model = assert_carries(one, bases[kind])
    maps = [value for name, value in weights_in(one).items() if name.startswith("maps.")]
    assert {value.dtype for value in maps} == {torch.float32, torch.int8}
    assert {value.dtype for value in model.model.maps.buffers()} == {torch.float32, torch.int8}
    found = model.encode_text(MIRRORED, language="mi")
    assert (found * exact).sum(1).min() > 0.999
    further = assert_carries(acquire(one, table, tmp_path / "two", language="uk"), bases[kind])
    np.testing.assert_array_equal(further.encode_text(MIRRORED, language="mi"), found)


def test_the_text_encoder_has_a_precision_of_its_own(bases, table, tmp_path, features_without_babelens):
    saved(tiny_bert(), tmp_path / "bert")
    one = acquire(bases["bfloat16"], table, tmp_path / "one", text_encoder=tmp_path / "bert")
    model = assert_carries(one, bases["bfloat16"])
    stored = weights_in(one)
    for name, value in weights_in(tmp_path / "bert").items():
        if "pooler" not in name:
            assert (
                torch.equal(stored[f"text_model.{name}"], value) and stored[f"text_model.{name}"].dtype == value.dtype
            )
    assert model.model.text_model.dtype == torch.float32
    exact = AutoModel.from_pretrained(one, dtype=torch.float32)
    assert {weight.dtype for weight in exact.parameters()} == {torch.float32}
    for tag in ("en", "mi"):
        inputs = model.processor(text=ROWS, language=tag, return_tensors="pt")
        with torch.no_grad():
            expected = model.model.get_text_features(**inputs).pooler_output
        found = features_without_babelens(one, ROWS, tag)
        assert found.dtype == expected.dtype and torch.equal(found, expected)


def test_weights_that_were_changed_are_saved_as_they_are(bases, tmp_path):
    native = load_model(AutoModel, bases["mixed"], as_stored=True)
    model = RidgeModel.from_native(native, ngram_rows=16, rank=4)
    with torch.no_grad():
        model.native_model.text_model.final_layer_norm.bias += 1
    changed = model.native_model.text_model.final_layer_norm.bias.clone()
    model.save_pretrained(tmp_path)
    assert torch.equal(AutoModel.from_pretrained(tmp_path).native_model.text_model.final_layer_norm.bias, changed)
