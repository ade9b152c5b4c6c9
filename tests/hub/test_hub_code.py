"""The code exporter, on small packages written for the purpose."""

import importlib
import os

import pytest

from babelens.utils.errors import PublishError
from babelens.utils.hub_code import export_code

TOY = {
    "configuration/__init__": "",
    "configuration/configuration_toy": (
        '"""A docstring that talks of `from ..room.module import name`."""\n\n\nclass Config:\n    answer = 42\n'
    ),
    "configuration/unused_toy": "",
    "modeling/__init__": "",
    "modeling/late_toy": "from .modeling_toy import Model\n\nTWICE = 2\n",
    "modeling/modeling_toy": (
        "from ..configuration.configuration_toy import (\n    Config,\n)\n\n\n"
        "class Model:\n    auto_classes = ('AutoModel',)\n\n    def twice(self):\n"
        "        from .late_toy import TWICE\n\n        return TWICE * Config.answer\n"
    ),
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    name = f"toy{os.urandom(4).hex()}"
    monkeypatch.syspath_prepend(tmp_path)
    for room in ("configuration", "modeling"):
        (tmp_path / name / room).mkdir(parents=True)
    for module, source in TOY.items():
        (tmp_path / name / f"{module}.py").write_text(source)
    return name


def test_exactly_the_needed_modules_travel_and_work_alone(package, tmp_path):
    toy = importlib.import_module(f"{package}.modeling.modeling_toy")
    folder = tmp_path / f"flat{package}"
    export_code(toy.Model, folder)
    assert {path.stem for path in folder.iterdir()} == {"configuration_toy", "late_toy", "modeling_toy"}
    assert importlib.import_module(f"{folder.name}.modeling_toy").Model().twice() == 84


@pytest.mark.parametrize(
    "statement",
    [
        "from ..configuration import configuration_toy",
        "from {package}.configuration.configuration_toy import Config",
        "import {package}.configuration.configuration_toy",
    ],
)
def test_what_cannot_travel_is_refused(package, tmp_path, statement):
    source = f"{statement.format(package=package)}\n\n\nclass Model:\n    auto_classes = ('AutoModel',)\n"
    (tmp_path / package / "modeling" / "modeling_broken.py").write_text(source)
    module = importlib.import_module(f"{package}.modeling.modeling_broken")
    with pytest.raises(PublishError, match=r"modeling_broken cannot be saved .* import"):
        export_code(module.Model, tmp_path / "folder")
