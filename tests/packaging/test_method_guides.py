"""The examples of the guides of the methods run."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from babelens.cli.main import app
from tests.support.documents import TITLED_BLOCK, commands, pages, write_example_data

EXAMPLES = [
    *((guide, "Example") for guide in ("mural", "etcl", "mla", "rc3", "smalr")),
    ("mural", "ALIGN"),
    ("smalr", "LIWE"),
    ("smalr", "Cross-lingual consistency"),
]
TEXTS = pages("methods")
CLIP = "openai/clip-vit-base-patch32"  # which a test has no network for
# The recipe's base and vocabulary are on the Hub.
OFFLINE = "--set model.from_pretrained=clip --set 'multilingual_tokenizer={vocab_size: 200}'"


def section(guide: str, heading: str) -> str:
    """The part of a guide under a heading of the second level."""
    return TEXTS[guide].partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


@pytest.fixture
def photos(tmp_path, monkeypatch, make_mural):
    """The working directory of an example: `photos` and `pairs.tsv`, a CLIP, and a MURAL's folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("babelens.trainers.frozen_features.DEFAULT_CACHE", tmp_path / "cache")
    write_example_data(tmp_path)
    for part in make_mural():
        part.save_pretrained("runs/start")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(("guide", "heading"), EXAMPLES)
def test_the_example_runs(guide, heading, photos):
    example = section(guide, heading).replace(CLIP, "clip")
    example = example.replace("train mla/adapter", f"train mla/adapter {OFFLINE}")
    if guide != "mural":
        example = example.replace("runs/mural", "runs/start")  # another guide's result
    names = {}
    for language, title, code in TITLED_BLOCK.findall(example):
        if title:
            Path(title).write_text(code, encoding="utf-8")
        elif language == "bash":
            for words in commands(code):
                done = CliRunner().invoke(app, words)
                assert done.exit_code == 0, f"{words}: {done.output}\n{done.exception!r}"
        elif language == "python":
            exec(compile(code, f"{guide}.md", "exec"), names)
