import ast
import importlib
import os
import sys

import pytest
from transformers.dynamic_module_utils import get_imports

import babelens
from babelens.modeling.modeling_ridge import RidgeModel
from babelens.processing.processing_ridge import RidgeProcessor
from babelens.utils import hub_code
from babelens.utils.errors import PublishError
from babelens.utils.hub_code import FILES, export_code, exported

SHARED = {"dual_encoder", "pipelines"}
BESIDE_A_NATIVE_MODEL = SHARED | {"configuration_mla", "modeling_mla", "processing_mla", "common"}
PARTS = {name: [*method.models, method.processor, method.config] for name, method in babelens.METHODS.items()}
PARTS["ridge"] = [RidgeModel, RidgeProcessor]
PARTS["consistency"] = [babelens.CrossLingualConsistency]
LIBRARIES = {"torch", "transformers", "tokenizers", "numpy", "PIL", "huggingface_hub", "regex"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("exported")
    for name, parts in PARTS.items():
        for cls in parts:
            export_code(cls, root / name)
    return root


def test_each_method_has_few_files(folders, make_mla_on_mural, tmp_path):
    found = {folder.name: {path.stem for path in folder.glob("*.py")} for folder in folders.iterdir()}
    own = {name: {f"{part}_{name}" for part in ("configuration", "modeling", "processing")} for name in found}
    assert found["mural"] == own["mural"] | SHARED
    for name in ("mla", "mla_student", "ridge"):
        assert found[name] == BESIDE_A_NATIVE_MODEL
    for name in ("rc3", "smalr", "liwe"):
        assert found[name] == own[name] | SHARED | {"common", "rc3_pipelines" if name == "rc3" else "words"}
    for cls in PARTS["mla"]:
        export_code(cls, tmp_path)
    make_mla_on_mural()[0].save_pretrained(tmp_path)  # a native model that transformers does not have comes along
    saved = {path.stem for path in tmp_path.glob("*.py")}
    assert saved == BESIDE_A_NATIVE_MODEL | {"configuration_mural", "modeling_mural"}


def test_losses_stay_with_their_trainers(folders):
    for folder in {*folders.iterdir()} - {folders / "rc3"}:  # RC3's models compute theirs
        trees = [ast.parse(path.read_text(encoding="utf-8")) for path in folder.glob("*.py")]
        names = {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert not names & {"contrastive_objective", "_objective", "_mask_loss", "fit"}


def test_files_import_each_other_and_libraries(folders, run_without_babelens):
    """Each can be imported alone. What a function tries to import may be missing, such as a segmenter of words."""
    for path in folders.glob("*/*.py"):
        files = {other.stem for other in path.parent.glob("*.py")}
        tree = ast.parse(path.read_text(encoding="utf-8"))
        relative = {
            (node.level, node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level
        }
        assert {level for level, _ in relative} <= {1} and {module for _, module in relative} <= files, path
        assert {*get_imports(path)} - sys.stdlib_module_names <= LIBRARIES, path  # which transformers requires
    names = [f"{path.parent.name}.{path.stem}" for path in sorted(folders.glob("*/*.py"))]
    lines = [f"import sys; sys.path.insert(0, {str(folders)!r})", *(f"import {name}" for name in names)]
    run_without_babelens("\n".join(lines))


def test_modules_of_one_file_give_no_name_two_meanings():
    for file, members in FILES.items():
        tree = ast.parse(exported(f"babelens.{members[0]}")[0][file])
        defined = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        for node in tree.body:
            if isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                defined += [each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]
        assert not {name for name in defined if defined.count(name) > 1} - {"logger", "__all__", "SHIPS_WITH"}, file
        imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        names = [alias.asname or alias.name for node in imports for alias in node.names]
        assert len(names) == len({*names} - {*defined}), file
        modules = [(node.level, node.module) for node in imports if isinstance(node, ast.ImportFrom)]
        assert len(modules) == len({*modules}), file


def test_what_stays_is_imported_where_it_is_used(monkeypatch):
    monkeypatch.setattr(hub_code, "_STAYS", (*hub_code._STAYS, "configuration.configuration_mural"))
    with pytest.raises(PublishError, match=r"import babelens\.configuration\.configuration_mural where it is used"):
        exported.__wrapped__("babelens.modeling.modeling_mural")


@pytest.mark.parametrize(
    "statement",
    [
        "from ..configuration import configuration_toy",
        "from {package}.configuration.configuration_toy import Config",
        "import {package}.configuration.configuration_toy",
    ],
)
def test_what_cannot_travel_is_refused(tmp_path, statement, monkeypatch):
    package = f"toy{os.urandom(4).hex()}"
    monkeypatch.syspath_prepend(tmp_path)
    for room in ("configuration", "modeling"):
        (tmp_path / package / room).mkdir(parents=True)
        (tmp_path / package / room / "__init__.py").touch()
    (tmp_path / package / "configuration" / "configuration_toy.py").write_text("class Config:\n    answer = 42\n")
    source = f"{statement.format(package=package)}\n\n\nclass Model:\n    auto_classes = ('AutoModel',)\n"
    (tmp_path / package / "modeling" / "modeling_broken.py").write_text(source)
    module = importlib.import_module(f"{package}.modeling.modeling_broken")
    with pytest.raises(PublishError, match=r"modeling_broken cannot be saved .* import"):
        export_code(module.Model, tmp_path / "folder")
