"""What README.md shows works: its Python, its recipe, and the options of its commands."""

import re
import runpy
import shlex
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image
from typer.main import get_command

from babelens.cli.main import app
from babelens.workflows.recipe import load_recipe

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^babelens .*", README, re.MULTILINE)


def block(language: str) -> str:
    """The first code block in a language."""
    return README.partition(f"```{language}\n")[2].partition("```")[0]


def test_the_python_example_finds_an_image(make_mural, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for part in make_mural():
        part.save_pretrained("runs/demo-mural")
    Path("images").mkdir()
    for shade in (0, 255):
        Image.fromarray(np.full((40, 40, 3), shade, np.uint8)).save(f"images/{shade}.png")
    Path("example.py").write_text(block("python"), encoding="utf-8")
    runpy.run_path("example.py")
    assert capsys.readouterr().out.strip() in ("images/0.png", "images/255.png")


def test_the_recipe_is_one(tmp_path):
    (tmp_path / "recipe.yaml").write_text(block("yaml"), encoding="utf-8")
    recipe = load_recipe(tmp_path / "recipe.yaml")
    assert {task: source.source for task, source in recipe.train.items()} == {
        task: source["source"] for task, source in yaml.safe_load(block("yaml"))["train"].items()
    }


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_have_the_options_shown(line):
    name, *arguments = shlex.split(line, comments=True)[1:]
    command = get_command(app).commands[name]
    jobs = getattr(command, "commands", {name: command}).values()
    known = {option for job in jobs for parameter in job.params for option in parameter.opts}
    assert {argument for argument in arguments if argument.startswith("--")} <= known


def test_every_command_is_shown():
    assert {shlex.split(line)[1] for line in COMMANDS} == set(get_command(app).commands)
