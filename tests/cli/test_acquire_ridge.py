"""`babelens acquire` by its default way: from a table of translations to a model, which learns another language."""

import json

import numpy as np
import pytest
from acquire_command import as_arguments, run_acquire
from tiny_native import tiny_clip
from transformers import AutoModel

from babelens import Embedder, RidgeModel

COLORS, THINGS = ["red", "green", "blue", "black"], ["car", "dog", "cat", "tree", "house"]
ROWS = [f"a {color} {thing}" for color in COLORS for thing in THINGS]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    for part in tiny_clip():
        part.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """English beside two made-up languages."""
    file = tmp_path_factory.mktemp("data") / "pairs.tsv"
    lines = ["en\tmi\tuk", *(f"{row}\t{row[::-1]}\t{row.replace('a', 'о')}" for row in ROWS)]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def acquire(base, table, output, **more):
    given = {"base": base, "language": "mi", "translations": table, "output": output, "no_names": True} | more
    return run_acquire(*as_arguments(given))


def test_one_command_teaches_a_language_and_a_second_one_later(base, table, tmp_path, capsys):
    assert acquire(base, table, tmp_path / "one", json=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["model"] == str(tmp_path / "one") and told["held_out"]["mi"]["pairs"] == len(ROWS)
    model = AutoModel.from_pretrained(tmp_path / "one")
    assert type(model) is RidgeModel and model.config.languages == ["mi"]
    assert acquire(tmp_path / "one", table, tmp_path / "two", language="uk") == 0
    assert "babelens search" in capsys.readouterr().out
    one, two = (Embedder.from_pretrained(tmp_path / name) for name in ("one", "two"))
    plain = Embedder.from_pretrained(base)
    np.testing.assert_array_equal(two.encode_text(ROWS, language="mi"), one.encode_text(ROWS, language="mi"))
    np.testing.assert_allclose(
        two.encode_text(ROWS, language="en"), plain.encode_text(ROWS, language="en"), rtol=0, atol=1e-6
    )
    card = (tmp_path / "two" / "README.md").read_text(encoding="utf-8")
    assert "| uk | 20 |" in card and str(tmp_path) not in card and str(table) not in card


def test_all_languages_of_a_table(base, table, tmp_path, capsys):
    assert acquire(base, table, tmp_path / "all", language="all") == 0
    assert AutoModel.from_pretrained(tmp_path / "all").config.languages == ["mi", "uk"]
    assert "Name the language of each text" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"language": "sw"}, "no text in 'sw'"),
        ({"language": "en"}, "has the language 'en' already"),
        ({"steps": 5, "freeze_encoder": True}, "--text-encoder"),
        ({"steps": 5}, "--steps 5:"),
        ({"acquirer_size": 5}, "--acquirer-size 5: only an adapter has such a choice (--way adapter)"),
    ],
)
def test_what_cannot_be_learned_is_said_before_anything_is_written(base, table, tmp_path, capsys, given, complaint):
    assert acquire(base, table, tmp_path / "out", **given) != 0
    assert complaint in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


def test_a_finished_model_is_not_overwritten(base, table, tmp_path, capsys):
    acquire(base, table, tmp_path / "out")
    before = (tmp_path / "out" / "model.safetensors").read_bytes()
    assert acquire(base, table, tmp_path / "out", language="uk") != 0
    assert "holds a model already" in " ".join(capsys.readouterr().err.split())
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == before
