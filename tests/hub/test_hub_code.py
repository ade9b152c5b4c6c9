"""The code exporter, on small packages written for the purpose."""

import importlib
import os
import sys
from pathlib import Path

import pytest

from babelens.utils.errors import PublishError
from babelens.utils.hub_code import _SECTIONS, export_code


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


def exported(toy, folder):
    """Exports `toy.Model`; returns the name of the file, and the modules in it in their order."""
    export_code(toy.Model, folder)
    named, file = sorted(folder.glob("*.py"))
    return named.stem, [name.rpartition(".")[2] for name in _SECTIONS.findall(file.read_text())]


def test_exactly_the_needed_modules_travel_and_work_alone(package, tmp_path):
    toy = package(TOY, LOAD)
    folder = tmp_path / f"flat{os.urandom(4).hex()}"
    name, modules = exported(toy, folder)
    assert name == f"{toy.__name__.partition('.')[0]}_code"
    assert sorted(modules) == ["configuration_toy", "late_toy", "modeling_toy", "numbers_toy"]
    assert modules.index("numbers_toy") < modules.index("configuration_toy") < modules.index("modeling_toy")
    assert load_flat(folder, name).Model().twice() == 84


def test_exported_code_exports_itself_unchanged(package, tmp_path):
    toy = package(TOY, LOAD)
    first, second = tmp_path / f"flat{os.urandom(4).hex()}", tmp_path / "second"
    auto_map = export_code(toy.Model, first)
    files = {path.name: path.read_bytes() for path in first.iterdir()}
    assert export_code(load_flat(first, min(files).removesuffix(".py")).Model, second) == auto_map
    assert {path.name: path.read_bytes() for path in second.iterdir()} == files


def test_a_folder_of_one_file_stays_one_and_one_that_is_added_to_gets_both(package, tmp_path):
    """As 1.0 saved them: the file that JSON files name held the modules."""
    toy = package(TOY, LOAD)
    auto_map = export_code(toy.Model, tmp_path / "new")
    named, modules = sorted((tmp_path / "new").iterdir())
    old = tmp_path / f"flat{os.urandom(4).hex()}"
    old.mkdir()
    (old / named.name).write_bytes(modules.read_bytes())
    assert export_code(load_flat(old, named.stem).Model, tmp_path / "again") == auto_map
    assert [path.name for path in (tmp_path / "again").iterdir()] == [named.name]
    config = sys.modules[toy.Config.__module__]
    export_code(config.Config, old)
    assert (old / modules.name).read_bytes() == modules.read_bytes()
    assert (old / named.name).read_bytes() == named.read_bytes()


def test_what_is_saved_later_joins_the_file(package, tmp_path):
    """A model and its processor are saved one after the other; the order does not matter."""
    toy = package(TOY | {"modeling/processing_toy": "class Model:\n    auto_classes = ('AutoProcessor',)\n"}, LOAD)
    processing = importlib.import_module(toy.__name__.replace("modeling_toy", "processing_toy"))
    processing.Processor = processing.Model
    with pytest.raises(PublishError, match="'Model' means something else in"):
        for cls in (toy.Model, processing.Model):
            export_code(cls, tmp_path / "clash")
    source = Path(processing.__file__)
    source.write_text(source.read_text().replace("Model", "Processor"))
    processing = importlib.reload(processing)
    for name, order in {"a": (toy.Model, processing.Processor), "b": (processing.Processor, toy.Model)}.items():
        for cls in order:
            export_code(cls, tmp_path / name)
    (_, first), (_, second) = (sorted((tmp_path / name).iterdir()) for name in "ab")
    assert first.read_bytes() == second.read_bytes()
    assert len(_SECTIONS.findall(first.read_text())) == 5


def test_modules_that_ship_with_another_are_not_imported(package, tmp_path):
    declaration = 'SHIPS_WITH = """\nfrom .late_toy import TWICE\n"""\n'
    model = "\n\nclass Model:\n    auto_classes = ('AutoModel',)\n"
    toy = package({"modeling/modeling_toy": declaration + model, "modeling/late_toy": TOY["modeling/late_toy"]}, LOAD)
    assert f"{toy.__package__}.late_toy" not in sys.modules
    _, modules = exported(toy, tmp_path / "folder")
    assert sorted(modules) == ["late_toy", "modeling_toy"]
    assert "SHIPS_WITH" not in "".join(path.read_text() for path in (tmp_path / "folder").iterdir())


def test_auto_map_offers_every_head_and_prefers_the_saved_class(package, tmp_path):
    toy = package(TOY, LOAD)
    name = f"{toy.__name__.partition('.')[0]}_code"
    head = {"AutoModelForTest": f"{name}.ModelForTest"}
    assert export_code(toy.Model, tmp_path / "a") == {"AutoModel": f"{name}.Model", **head}
    assert export_code(toy.ModelForTest, tmp_path / "b") == {"AutoModel": f"{name}.ModelForTest", **head}


def test_imports_under_other_names_keep_them(package, tmp_path):
    source = (
        "from ..configuration.numbers_toy import ANSWER as FOUND\n\n\nclass Model:\n"
        "    auto_classes = ('AutoModel',)\n\n    def answer(self):\n"
        "        if FOUND:\n            from ..configuration.numbers_toy import ANSWER\n"
        "        return FOUND + ANSWER\n"
    )
    toy = package({"configuration/numbers_toy": "ANSWER = 42\n", "modeling/modeling_toy": source}, LOAD)
    folder = tmp_path / f"flat{os.urandom(4).hex()}"
    name, _ = exported(toy, folder)
    assert load_flat(folder, name).Model().answer() == 84


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
            "from ..configuration.sibling_toy import X\nfrom .sibling_toy import Y",
            "line 1: 'SIZE' means something else in",
        ),
        ("from .sibling_toy import Y\nfrom os.path import join as SIZE", "line 1: 'SIZE' means something else in"),
        (
            "TEXT = '''\nfrom .elsewhere import name\n'''",
            "line 3: transformers would take this line of a string for an import",
        ),
    ],
)
def test_what_cannot_travel_is_refused_by_line(package, tmp_path, statement, complaint):
    siblings = {"modeling/sibling_toy": "SIZE = Y = 1\n", "configuration/sibling_toy": "SIZE = X = 1\n"}
    package(TOY | siblings, LOAD)
    name = next(path.name for path in tmp_path.iterdir())
    source = f"'''Toy.'''\n{statement.format(package=name)}\n\n\nclass Model:\n    auto_classes = ('AutoModel',)\n"
    module = package({"modeling/modeling_broken": source}, "modeling/modeling_broken")
    with pytest.raises(PublishError, match=complaint.format(package=name)):
        export_code(module.Model, tmp_path / "folder")
    assert not (tmp_path / "folder").exists()
