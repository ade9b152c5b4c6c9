"""What the code of each method's saved folder holds: few files, which need nothing but each other and libraries."""

import ast
import subprocess
import sys

import pytest

import babelens
from babelens.modeling.modeling_ridge import RidgeModel
from babelens.processing.processing_ridge import RidgeProcessor
from babelens.utils.hub_code import FILES, export_code, exported

SHARED = {"dual_encoder", "pipelines"}
PARTS = {name: [*method.models, method.processor, method.config] for name, method in babelens.METHODS.items()}
PARTS["ridge"] = [RidgeModel, RidgeProcessor]
PARTS["consistency"] = [babelens.CrossLingualConsistency]
LIBRARIES = {"torch", "transformers", "tokenizers", "numpy", "PIL", "huggingface_hub", "regex"}


@pytest.fixture(scope="module", params=PARTS)
def folder(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported") / request.param
    for cls in PARTS[request.param]:
        export_code(cls, folder)
    return folder


def test_mural_has_five_files(tmp_path):
    for cls in PARTS["mural"]:
        export_code(cls, tmp_path)
    own = {"configuration_mural", "modeling_mural", "processing_mural"}
    assert {path.stem for path in tmp_path.iterdir()} == own | SHARED


@pytest.mark.parametrize("method", ["mla", "mla_student", "ridge"])
def test_methods_beside_a_native_model_have_as_few(method, tmp_path, make_mla_on_mural):
    """That of a native model which transformers does not have comes with it."""
    for cls in PARTS[method]:
        export_code(cls, tmp_path)
    own = {"configuration_mla", "modeling_mla", "processing_mla", "common"}
    assert {path.stem for path in tmp_path.iterdir()} == own | SHARED
    if method == "mla":
        make_mla_on_mural()[0].save_pretrained(tmp_path)
        assert {path.stem for path in tmp_path.glob("*.py")} == own | SHARED | {
            "configuration_mural",
            "modeling_mural",
        }


@pytest.mark.parametrize("method", ["rc3", "smalr", "liwe"])
def test_other_methods_have_few_files_too(method, tmp_path):
    for cls in PARTS[method]:
        export_code(cls, tmp_path)
    own = {f"configuration_{method}", f"modeling_{method}", f"processing_{method}"}
    shared = SHARED | {"common", "rc3_pipelines" if method == "rc3" else "words"}
    assert {path.stem for path in tmp_path.iterdir()} == own | shared


def test_files_import_each_other_and_libraries(folder):
    """What a function imports may be missing, such as a segmenter of words."""
    files = {path.stem for path in folder.iterdir()}
    for path in folder.iterdir():
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        relative = {(node.level, node.module) for node in nodes if isinstance(node, ast.ImportFrom) and node.level}
        assert {level for level, _ in relative} <= {1} and {module for _, module in relative} <= files, path
        top = ast.parse(path.read_text(encoding="utf-8")).body
        named = {node.module for node in top if isinstance(node, ast.ImportFrom) and not node.level}
        named |= {alias.name for node in top if isinstance(node, ast.Import) for alias in node.names}
        assert {name.partition(".")[0] for name in named} - sys.stdlib_module_names <= LIBRARIES, path


def test_every_file_is_imported_alone(tmp_path):
    for name, parts in PARTS.items():
        for cls in parts:
            export_code(cls, tmp_path / name)
    names = [".".join(path.relative_to(tmp_path).with_suffix("").parts) for path in sorted(tmp_path.glob("*/*.py"))]
    lines = [f"import sys; sys.path.insert(0, {str(tmp_path)!r})", *(f"import {name}" for name in names)]
    script = "\n".join([*lines, "print('babelens' in sys.modules)"])
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr


@pytest.mark.parametrize("file", FILES)
def test_modules_of_one_file_give_no_name_two_meanings(file):
    source = exported(f"babelens.{FILES[file][0]}")[0][file]
    tree = ast.parse(source)
    defined = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    assigned = [node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    for node in assigned:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        defined += [each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]
    repeated = {name for name in defined if defined.count(name) > 1} - {"logger", "__all__", "SHIPS_WITH"}
    assert not repeated
