import io
import json
import logging
import os
import shutil
import sys

import pytest

from babelens.cli.main import main
from babelens.utils.errors import CorpusError
from tests.support.image_sources import write_captioned

MARKUP = "[/b] [bold]:cat:"


def test_search_prints_queries_and_names_as_they_are(run, model, images):
    shown = run("search", model, f"see {MARKUP}", "--images", images, "--language", "en").output
    assert f"see {MARKUP} [en]" in shown
    assert "a[/b].png" in shown and "pic[bold]:cat:.png" in shown


def test_names_that_are_not_utf8(run, model, images, tmp_path, caplog):
    os.rename(os.fsencode(images / "plain.png"), os.fsencode(images) + b"/caf\xe9.png")
    run("embed", model, "--images", images, "--output", tmp_path / "embedded")
    assert "not UTF-8" in caplog.text


def test_an_error_in_a_process_of_a_data_loader_is_one_sentence(monkeypatch, capsys):
    def fail(**_):
        raise CorpusError(
            "Caught CorpusError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n"
            '  File "x.py", line 1\nbabelens.data.errors.CorpusError: a.png: truncated\n'
        )

    monkeypatch.setattr("babelens.cli.main.app", fail)
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().err == "Error: a.png: truncated\n"


@pytest.fixture
def evil(model, tmp_path):
    """A model whose configuration needs code, which leaves a mark when it runs."""
    folder = shutil.copytree(model, tmp_path / "evil")
    (folder / "evil.py").write_text(
        f"open({str(tmp_path / 'it-ran')!r}, 'w')\nfrom transformers import CLIPConfig\n"
        "class EvilConfig(CLIPConfig):\n    model_type = 'evil'\n"
    )
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "evil", "auto_map": {"AutoConfig": "evil.EvilConfig"}}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_nobody_is_asked_whether_code_may_run(evil, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["babelens", "info", str(evil)])
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    # A handler that a library made in an earlier test writes to that test's captured output, which is closed.
    monkeypatch.setattr(logging, "raiseExceptions", False)
    with pytest.raises(SystemExit) as ended:
        main()
    told = capsys.readouterr().err
    assert ended.value.code == 1 and "--trust-remote-code" in told and "Traceback" not in told
    assert sys.stdin.read() == "y\n" and not (tmp_path / "it-ran").exists()


def test_the_code_of_a_base_a_recipe_or_a_checkpoint_does_not_run(run, evil, tmp_path):
    (tmp_path / "pairs.tsv").write_text("en\tde\ncat\tKatze\n")
    (tmp_path / "texts").write_text("cat\n")
    recipe = {
        "method": "mla",
        "model": {"from_pretrained": str(evil)},
        "train": {"text_text": {"source": str(tmp_path / "pairs.tsv"), "pairs": [["de", "en"]], "license": "mit"}},
        "multilingual_tokenizer": {"vocab_size": 60},
        "training": {"max_steps": 1},
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    pairs = ["--language", "de", "--translations", tmp_path / "pairs.tsv"]
    for command in (
        ["acquire", "--base", evil, *pairs, "--output", tmp_path / "o"],
        ["trim", evil, "--texts", tmp_path / "texts", "--output", tmp_path / "o"],
        ["train", tmp_path / "recipe.yaml", "--output", tmp_path / "o"],
        ["analyze", "languages", evil, "--data", tmp_path / "pairs.tsv", "--output", tmp_path / "map.svg"],
    ):
        error = run(*command, code=1).exception
        assert "--trust-remote-code" in str(error), error
        assert not (tmp_path / "it-ran").exists()


def test_a_recipe_fetches_no_kernel(run, tmp_path):
    images = write_captioned(tmp_path / "images", [{"captions": {"en": [f"thing {n}"]}} for n in range(2)])
    recipe = {
        "method": "mural",
        "model": {"preset": "mural-tiny", "overrides": {"text_config": {"attn_implementation": "evil/kernel"}}},
        "tokenizer": {"vocab_size": 60},
        "train": {"image_text": {"source": str(images), "license": "mit"}},
        "training": {"max_steps": 1},
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    error = run("train", tmp_path / "recipe.yaml", "--output", tmp_path / "o", code=1).exception
    assert "'evil/kernel' is code from the Hub" in str(error), error
