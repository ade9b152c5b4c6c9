"""The code exporter, on small packages written for the purpose."""

import importlib
import os
import sys
from pathlib import Path

import pytest

from babelens.utils.errors import PublishError
from babelens.utils.hub_code import export_code


@pytest.fixture
def package(tmp_path, monkeypatch):
    root = tmp_path / f"toy{os.urandom(4).hex()}"
    monkeypatch.syspath_prepend(tmp_path)

    def write(modules: dict[str, str], load: str):
        for room in ("configuration", "modeling"):
            (root / room).mkdir(parents=True, exist_ok=True)
            (root / room / "__init__.py").touch()
        (root / "__init__.py").touch()
        for name, source in modules.items():
            (root / f"{name}.py").write_text(source)
        return importlib.import_module(f"{root.name}.{load}".replace("/", "."))

    return write


def load_flat(folder: Path, module: str):
    (folder / "__init__.py").touch()
    sys.path.insert(0, str(folder.parent))
    try:
        return importlib.import_module(f"{folder.name}.{module}")
    finally:
        sys.path.remove(str(folder.parent))


TOY = {
    "configuration/numbers_toy": "ANSWER = 42\n",
    "configuration/unused_toy": "",
    "configuration/configuration_toy": (
        '"""Sums: a docstring that talks of `from ..room.module import name`."""\n'
        "from .numbers_toy import ANSWER\n\n\nclass Config:\n    answer = ANSWER\n"
    ),
    "modeling/late_toy": "from .modeling_toy import Model\n\nTWICE = 2\n",
    "modeling/modeling_toy": (
        "import math\n\nfrom ..configuration.configuration_toy import (\n    Config,\n)\n\n\n"
        "class Model:\n    auto_classes = ('AutoModel',)\n\n    def twice(self):\n"
        "        from .late_toy import TWICE\n\n        return TWICE * Config.answer + math.floor(0.5)\n\n\n"
        "class ModelForTest(Model):\n    auto_classes = ('AutoModelForTest', 'AutoModel')\n\n\n"
        "class Unpublished:\n    pass\n"
    ),
}


LOAD = "modeling/modeling_toy"


def test_exactly_the_needed_modules_travel_and_work_alone(package, tmp_path):
    toy = package(TOY, LOAD)
    folder = tmp_path / f"flat{os.urandom(4).hex()}"
    export_code(toy.Model, folder)
    names = {"configuration_toy", "late_toy", "modeling_toy", "numbers_toy"}
    assert {path.stem for path in folder.iterdir()} == names
    assert load_flat(folder, "modeling_toy").Model().twice() == 84


@pytest.mark.parametrize(
    "statement",
    [
        "from ..configuration import configuration_toy",
        "from {package}.configuration.numbers_toy import ANSWER",
        "import {package}.configuration.numbers_toy",
    ],
)
def test_what_cannot_travel_is_refused(package, tmp_path, statement):
    package(TOY, LOAD)
    name = next(path.name for path in tmp_path.iterdir())
    source = f"{statement.format(package=name)}\n\n\nclass Model:\n    auto_classes = ('AutoModel',)\n"
    module = package({"modeling/modeling_broken": source}, "modeling/modeling_broken")
    with pytest.raises(PublishError, match=r"modeling_broken cannot be saved .* import"):
        export_code(module.Model, tmp_path / "folder")
