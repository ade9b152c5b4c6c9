import json
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import babelens
from babelens.data.emoji.benchmark import published_manifest
from babelens.data.emoji.build import read_sources
from babelens.presets import list_presets

pytestmark = pytest.mark.slow

COMMANDS = {"demo", "train", "evaluate", "embed", "search", "info", "convert", "push"}
OFFLINE = ("--no-build-isolation", "--no-deps", "--quiet")

# Runs where babelens is installed: imports every module and reads the data files, without network.
USE_EVERYTHING = """
import importlib, json, pkgutil, socket

def no_network(*_, **__):
    raise AssertionError("network")

socket.socket.connect = socket.getaddrinfo = no_network
import babelens
facts = {"home": babelens.__path__[0]}

modules = [module.name for module in pkgutil.walk_packages(babelens.__path__, "babelens.")]
for name in modules:
    if name != "babelens.__main__":  # which is the command line
        importlib.import_module(name)
facts["modules"] = sorted(modules)
facts["promised"] = [type(getattr(babelens, name)).__name__ for name in babelens.__all__]

from babelens.presets import list_presets
facts["presets"] = {name: babelens.load_preset(name).model_type for name in list_presets()}
from babelens.training.recipe_file import RECIPES, find_recipe
names = [path.relative_to(RECIPES).with_suffix("") for path in RECIPES.rglob("*.yaml")]
facts["recipes"] = sorted(find_recipe(name).name for name in names)
from babelens.data.emoji.benchmark import published_manifest
from babelens.data.emoji.build import read_sources
facts["concepts"], facts["licenses"] = published_manifest()["concepts"], len(read_sources())
print(json.dumps(facts))
"""


@pytest.fixture(scope="module")
def build_log(sources, run) -> str:
    return run(sys.executable, "-m", "build", "--no-isolation", cwd=sources)


@pytest.fixture(scope="module")
def wheel(sources, build_log) -> Path:
    (wheel,) = (sources / "dist").glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def install(run, make_environment):
    def install(*what: str | Path) -> Path:
        programs = make_environment()
        run(programs / "python", "-m", "pip", "install", *OFFLINE, *what, cwd=programs)
        return programs

    return install


@pytest.fixture(scope="module")
def programs(install, wheel) -> Path:
    return install(wheel)


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def source_files(sources: Path, folders: list[str]) -> dict[str, bytes]:
    files = {path: path for path in (sources / "babelens").rglob("*")}  # does not follow links
    files |= {
        sources / "babelens" / path.relative_to(sources): path
        for name in folders
        for path in (sources / name).rglob("*")
    }
    return {
        installed.relative_to(sources).as_posix(): path.read_bytes()
        for installed, path in files.items()
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(sources, folders, wheel):
    packaged = {name: data for name, data in contents(wheel).items() if ".dist-info/" not in name}
    expected = source_files(sources, folders)
    assert packaged.keys() == expected.keys()
    assert packaged == expected
    assert {f"babelens/{name}/__init__.py" for name in folders} <= packaged.keys()
    assert {
        "babelens/py.typed",
        "babelens/configuration/presets/mural-base.json",
        "babelens/data/emoji/sources.json",
        "babelens/model_cards/mural.md",
        "babelens/model_cards/template.md.jinja",
    } <= packaged.keys()


def test_building_warns_of_nothing_and_states_license_and_readme(wheel, build_log):
    assert "warning" not in build_log.lower()
    about = {
        name.partition(".dist-info/")[2]: data.decode()
        for name, data in contents(wheel).items()
        if ".dist-info/" in name
    }
    assert "Apache License" in about["licenses/LICENSE"]
    assert "babelens = babelens.cli.main:main" in about["entry_points.txt"]
    metadata = about["METADATA"].splitlines()
    assert f"Version: {babelens.__version__}" in metadata
    assert "License-Expression: Apache-2.0" in metadata
    assert "Description-Content-Type: text/markdown" in metadata
    assert "Requires-Python: >=3.11" in metadata
    assert any(line.startswith("Author: ") for line in metadata)
    needed = {line.split()[1].partition(">")[0] for line in metadata if line.startswith("Requires-Dist: ")}
    assert not needed & {"httpx2", "networkx"}  # which others need


def test_the_source_distribution_has_the_papers_and_no_tests(sources, build_log):
    (archive,) = (sources / "dist").glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    assert {"CHANGELOG.md", "CITATION.cff", "LICENSE", "README.md", "pyproject.toml", "setup.py"} <= names
    assert not [name for name in names if name.startswith(("tests", "docs", "benchmarks"))]


def test_the_wheel_from_git_is_the_wheel_from_the_source_distribution(repository, wheel, run, tmp_path):
    run(sys.executable, "-m", "pip", "wheel", *OFFLINE, f"git+{repository.as_uri()}", cwd=tmp_path)
    (from_git,) = tmp_path.glob("*.whl")
    assert contents(from_git) == contents(wheel)


def test_an_installed_wheel_imports_every_module_and_finds_its_data(programs, sources, folders, run):
    facts = json.loads(run(programs / "python", "-c", USE_EVERYTHING, cwd=programs).splitlines()[-1])
    assert Path(facts["home"]).is_relative_to(programs.parent)
    python_files = [Path(name) for name in source_files(sources, folders) if name.endswith(".py")]
    modules = {".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in python_files}
    assert set(facts["modules"]) == modules - {"babelens"}
    assert len(facts["promised"]) == len(babelens.__all__)
    assert list(facts["presets"]) == list_presets()
    assert facts["recipes"] == sorted(path.name for path in (sources / "recipes").rglob("*.yaml"))
    assert (facts["concepts"], facts["licenses"]) == (published_manifest()["concepts"], len(read_sources()))


def test_the_command_line_is_installed(programs, run):
    assert set(run(programs / "babelens", "--help", cwd=programs).split()) >= COMMANDS


def test_an_editable_install_runs_the_checkout_itself(install, run, sources, folders):
    programs = install("--editable", sources)
    find = (
        "import sys; from importlib.util import find_spec; print(*(find_spec(name).origin for name in sys.argv[1:]))"
    )
    found = run(programs / "python", "-c", find, *(f"babelens.{name}" for name in folders), cwd=programs).split()
    assert [Path(path).resolve() for path in found] == [sources / name / "__init__.py" for name in folders]
