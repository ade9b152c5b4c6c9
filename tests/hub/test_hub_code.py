"""The code exporter, on small packages written for the purpose."""

import importlib
import os
import sys
from pathlib import Path

import pytest
from transformers.dynamic_module_utils import get_relative_imports

from babelens.configuration.errors import PublishError
from babelens.configuration.hub_code import export_code


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Writes a package of two rooms and imports one of its modules: `package({"modeling/modeling_toy": source})`."""
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
    """Imports `module` from the folder alone, as transformers does with a repository's files."""
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
    toy = package(TOY, "modeling/modeling_toy")
    folder = tmp_path / f"flat{os.urandom(4).hex()}"
    export_code(toy.Model, folder)
    assert sorted(path.name for path in folder.iterdir()) == [
        "configuration_toy.py",
        "late_toy.py",
        "modeling_toy.py",
        "numbers_toy.py",
    ]
    assert load_flat(folder, "modeling_toy").Model().twice() == 84


def test_exported_code_exports_itself_unchanged(package, tmp_path):
    toy = package(TOY, "modeling/modeling_toy")
    first, second = tmp_path / f"flat{os.urandom(4).hex()}", tmp_path / "second"
    auto_map = export_code(toy.Model, first)
    assert export_code(load_flat(first, "modeling_toy").Model, second) == auto_map
    (first / "__init__.py").unlink()
    for copy in second.iterdir():
        assert copy.read_bytes() == (first / copy.name).read_bytes()
    assert {path.name for path in second.iterdir()} == {path.name for path in first.glob("*.py")}


def test_modules_of_a_folder_with_a_prefix_get_it(package, tmp_path):
    """Two methods may each have a `layer.py` in a folder of their own."""
    modules = {
        "configuration/numbers_toy": "ANSWER = 42\n",
        "modeling/one/__init__": "HUB_FILE_PREFIX = 'one_'\n",
        "modeling/one/layer": "from ...configuration.numbers_toy import ANSWER\nfrom .base import BASE\n",
        "modeling/one/base": "BASE = 1\n",
        "modeling/two/__init__": "HUB_FILE_PREFIX = 'two_'\n",
        "modeling/two/layer": "OTHER = 2\n",
        "modeling/two/model": (
            "from ..one.layer import ANSWER, BASE\nfrom .layer import OTHER\n\n\n"
            "class Model:\n    auto_classes = ('AutoModel',)\n    total = ANSWER + BASE + OTHER\n"
        ),
    }
    for name in ("one", "two"):
        root = package({}, "modeling").__path__[0]
        (Path(root) / name).mkdir()
    toy = package(modules, "modeling/two/model")
    folder = tmp_path / f"flat{os.urandom(4).hex()}"
    auto_map = export_code(toy.Model, folder)
    assert auto_map == {"AutoModel": "two_model.Model"}
    names = ["numbers_toy.py", "one_base.py", "one_layer.py", "two_layer.py", "two_model.py"]
    assert sorted(path.name for path in folder.iterdir()) == names
    flat = load_flat(folder, "two_model").Model
    assert flat.total == 45
    assert export_code(flat, tmp_path / "again") == auto_map
    assert sorted(path.name for path in (tmp_path / "again").iterdir()) == names


def test_modules_that_ship_with_another_travel_and_are_not_imported(package, tmp_path):
    declaration = 'SHIPS_WITH = """\nfrom .late_toy import TWICE\n"""\n'
    model = "\n\nclass Model:\n    auto_classes = ('AutoModel',)\n"
    toy = package({"modeling/modeling_toy": declaration + model, "modeling/late_toy": TOY["modeling/late_toy"]}, LOAD)
    assert f"{toy.__package__}.late_toy" not in sys.modules
    folder = tmp_path / f"flat{os.urandom(4).hex()}"
    export_code(toy.Model, folder)
    assert sorted(path.name for path in folder.iterdir()) == ["late_toy.py", "modeling_toy.py"]
    # transformers reads the lines of a module to learn which other files it must fetch.
    assert set(get_relative_imports(folder / "modeling_toy.py")) == {"late_toy"}


def test_auto_map_offers_every_head_and_prefers_the_saved_class(package, tmp_path):
    toy = package(TOY, "modeling/modeling_toy")
    assert export_code(toy.Model, tmp_path / "a") == {
        "AutoModel": "modeling_toy.Model",
        "AutoModelForTest": "modeling_toy.ModelForTest",
    }
    assert export_code(toy.ModelForTest, tmp_path / "b") == {
        "AutoModel": "modeling_toy.ModelForTest",
        "AutoModelForTest": "modeling_toy.ModelForTest",
    }


def test_a_class_from_main_is_reported_not_exported(tmp_path, caplog):
    assert export_code(type("Scratch", (), {"__module__": "__main__"}), tmp_path / "folder") == {}
    assert "Scratch is defined in __main__" in caplog.text
    assert not (tmp_path / "folder").exists()


@pytest.mark.parametrize(
    ("statement", "complaint"),
    [
        ("from . import sibling_toy", "line 2: import from a module, not from a package"),
        ("from ..configuration import configuration_toy", "line 2: import from a module, not from a package"),
        ("from {package}.configuration.numbers_toy import ANSWER", "line 2: import from {package} relatively"),
        ("import {package}.configuration.numbers_toy", "line 2: import from {package} relatively"),
        (
            "from ..configuration.numbers_toy \\\n    import ANSWER",
            r"line 2: write this import as `from \.\.configuration\.numbers_toy import …`, with these words",
        ),
        (
            "from ..configuration.sibling_toy import X\nfrom .sibling_toy import Y",
            "line 3: .* need different file names",
        ),
        (
            "TEXT = '''\nfrom .elsewhere import name\n'''",
            "line 3: transformers would take this line of a string for an import",
        ),
    ],
)
def test_what_cannot_travel_is_refused_by_line(package, tmp_path, statement, complaint):
    package(TOY | {"modeling/sibling_toy": "Y = 1\n", "configuration/sibling_toy": "X = 1\n"}, "modeling/modeling_toy")
    name = next(path.name for path in tmp_path.iterdir())
    source = f"'''Toy.'''\n{statement.format(package=name)}\n\n\nclass Model:\n    auto_classes = ('AutoModel',)\n"
    module = package({"modeling/modeling_broken": source}, "modeling/modeling_broken")
    with pytest.raises(PublishError, match=complaint.format(package=name)):
        export_code(module.Model, tmp_path / "folder")
    assert not (tmp_path / "folder").exists()
