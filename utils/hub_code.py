"""Exports the code of models (`HubCodeMixin`): copies the modules that a class needs into its folder; `FILES` lists
the modules that a file combines. Nothing from `utils` is exported: `dual_encoder.py` and `common.py` begin with
replacements (`in_folders`), and functions whose body imports code that stays are left out. Imports in a string, such
as `SHIPS_WITH`, are followed too, so a module can name modules that import it: pipelines, and models for tasks."""

import ast
import importlib
import logging
import os
import re
from functools import cache
from pathlib import Path
from textwrap import fill
from typing import Any

from .errors import PublishError

# File of a folder -> the modules whose sources it contains. Each other module has its own file.
FILES = {
    "dual_encoder": (
        "utils.in_folders",
        "configuration.configuration_two_tower",
        "modeling.modeling_dual_encoder",
        "modeling.modeling_two_tower",
        "processing.images",
        "processing.image_processing_mural",
        "processing.processing_dual_encoder",
    ),
    "modeling_mla": (
        "modeling.acquirer",
        "modeling.clip_resnet",
        "modeling.modeling_mla",
        "modeling.modeling_mla_student",
        "modeling.modeling_ridge",
    ),
    "processing_mla": (
        "processing.text_normalization",
        "processing.glossary",
        "processing.processing_mla",
        "processing.processing_ridge",
    ),
    # of all others but MURAL and ETCL
    "common": ("utils.matching_in_folders", "modeling.modeling_common", "processing.processing_per_language"),
    # of SMALR and LIWE
    "words": ("modeling.modeling_word_dual_encoder", "processing.word_tokenizers"),
    "modeling_rc3": (
        "modeling.losses.interpolated",
        "modeling.modeling_rc3",
        "modeling.modeling_rc3_tasks",
        "modeling.modeling_rc3_pretraining",
    ),
    "pipelines": ("inference.pipelines", "inference.sentence_modules"),
}
_FILE_OF = {module: file for file, modules in FILES.items() for module in modules}
# Modules that are not exported unless a file above has them. Losses are for trainers, which are not exported either.
_STAYS = ("utils.", "modeling.tower_loading", "modeling.losses.")
_IMPORT = re.compile(r"^( *)from (\.+)([\w.]*) import (\([^)]*\)|[^\n]*)\n", re.MULTILINE)
_WIDTH = 120
PACKAGE = __name__.partition(".")[0]

logger = logging.getLogger(__name__)


def export_code(cls: type, folder: str | os.PathLike) -> tuple[dict[str, str], dict[str, Any]]:
    """Writes the modules that `cls` needs into `folder`. Returns the `auto_map` entries, such as `{"AutoModel":
    "modeling_mural.MuralModel"}`, of `cls` and of the models with its configuration, and the `custom_pipelines` of a
    model. A pipeline names its task and Auto class in `hub_task`."""
    if cls.__module__ == "__main__":
        logger.warning("%s is defined in __main__: move it into a module to save its code with it", cls.__name__)
        return {}, {}
    files, modules = exported(cls.__module__)
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, source in files.items():
        path = Path(folder, f"{name}.py")
        # A file may have more imports at its end (`add_code`), which the processor of the model must not remove.
        if not path.is_file() or not path.read_text(encoding="utf-8").startswith(source):
            path.write_text(source, encoding="utf-8")
    entries: dict[str, str] = {}
    pipelines: dict[str, Any] = {}
    configuration = getattr(cls, "config_class", None)
    found = [(name, each) for name in modules for each in vars(importlib.import_module(name)).values()]
    for offering in (cls, *(each for name, each in found if isinstance(each, type) and each.__module__ == name)):
        reference = f"{file_of(offering.__module__)}.{offering.__name__}"
        if offering is cls or (configuration and getattr(offering, "config_class", None) is configuration):
            for auto_class in vars(offering).get("auto_classes", ()):
                entries.setdefault(auto_class, reference)
        task, auto_class = vars(offering).get("hub_task", ("", ""))
        # Every folder has the pipelines of dual encoders.
        is_of_model = hasattr(cls, "get_image_features") or not reference.startswith("pipelines.")
        if configuration and is_of_model and auto_class in vars(cls)["auto_classes"]:
            pipelines[task] = {"impl": reference, "pt": [auto_class], "type": "multimodal"}
    return entries, pipelines


def add_code(cls: type, folder: str | os.PathLike, file: str) -> None:
    """Writes the code of another class, such as a native model, into `folder`, and imports it at the end of a file
    there, because transformers loads only imported files."""
    export_code(cls, folder)
    path = Path(folder, f"{file}.py")
    line = f"\nfrom .{file_of(cls.__module__)} import {cls.__name__}\n"
    if not (source := path.read_text(encoding="utf-8")).endswith(line):
        path.write_text(source + line, encoding="utf-8")


@cache  # a training run saves its model many times
def exported(module: str) -> tuple[dict[str, str], list[str]]:
    """Returns the files that a module needs in a folder, with their sources, and the names of the modules in them."""
    files: dict[str, str] = {}
    needed = [module]
    for name in needed:  # the loop appends to it
        package, _, own = name.partition(".")
        if (file := file_of(name)) not in files:
            members = FILES[file] if package == PACKAGE and file in FILES else (own,)
            needed += [f"{package}.{member}" for member in members if f"{package}.{member}" != name]
            files[file] = _joined([_rewritten(f"{package}.{member}", file, needed) for member in members])
    return files, list(dict.fromkeys(needed))


def _rewritten(name: str, file: str, needed: list[str]) -> str:
    """Returns a module's source with imports from a folder's files; adds what it needs to `needed`."""
    source = Path(importlib.import_module(name).__file__ or "").read_text(encoding="utf-8")
    package = name.partition(".")[0]
    if found := re.search(rf"^ *(from|import) {package}\b", source, re.MULTILINE):
        raise PublishError(f"{name} cannot be saved with a model: import relatively, not by {found[0]!r}")

    def target_of(dots: int, module: str | None) -> str:
        return ".".join([*name.split(".")[:-dots], *filter(None, [module])])

    def stays(target: str) -> bool:
        own = target.removeprefix(f"{PACKAGE}.")
        return own.startswith(_STAYS) and own not in _FILE_OF

    def replaced(found: re.Match[str]) -> str:
        indent, dots, module, names = found.groups()
        target = target_of(len(dots), module)
        if hasattr(importlib.import_module(target), "__path__"):
            raise PublishError(f"{name} cannot be saved with a model: import from a module, not from {target}")
        if stays(target):
            if not target.startswith(f"{PACKAGE}.utils."):
                raise PublishError(f"{name} cannot be saved with a model: import {target} where it is used")
            matches = target.endswith(".language_matching")
            target = f"{PACKAGE}.utils.{'matching_in_folders' if matches else 'in_folders'}"
        needed.append(target)
        if (other := file_of(target)) == file:
            return f"{indent}pass\n" if indent else ""
        return f"{indent}from .{other} import {names}\n"

    lines = source.splitlines(keepends=True)
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    for function in sorted(functions, key=lambda node: node.lineno, reverse=True):
        imports = [node for node in function.body if isinstance(node, ast.ImportFrom) and node.level]
        if any(stays(target_of(node.level, node.module)) for node in imports):
            first = min([function.lineno, *(each.lineno for each in function.decorator_list)])
            del lines[first - 2 : function.end_lineno]  # with the blank line above
    return _IMPORT.sub(replaced, "".join(lines))


def _joined(sources: list[str]) -> str:
    """Returns the sources of modules as one, with one import of each module at its beginning."""
    source = "\n\n".join(sources)
    tree, lines = ast.parse(source), source.splitlines(keepends=True)
    names: dict[str, set[str]] = {}  # "import " or "from … import " -> what it imports
    for node in reversed(tree.body):
        if isinstance(node, ast.Import | ast.ImportFrom):
            origin = f"from {'.' * node.level}{node.module} " if isinstance(node, ast.ImportFrom) else ""
            names.setdefault(f"{origin}import ", set()).update(map(ast.unparse, node.names))
            del lines[node.lineno - 1 : node.end_lineno]
    statements = [f"import {name}" for name in sorted(names.pop("import ", ()))]
    for start in sorted(names, key=lambda start: (start.startswith("from ."), start)):
        statement = f"{start}{', '.join(sorted(names[start]))}"
        if len(statement) > _WIDTH:
            filled = fill(", ".join(sorted(names[start])), _WIDTH, initial_indent="    ", subsequent_indent="    ")
            statement = f"{start}(\n{filled}\n)"
        statements.append(statement)
    first = tree.body[0].end_lineno if ast.get_docstring(tree) else 0
    lines.insert(first or 0, "\n" + "\n".join(statements) + "\n\n\n")
    return re.sub(r"\n{4,}", "\n\n\n", "".join(lines)).lstrip()


def file_of(module: str) -> str:
    package, _, own = module.partition(".")
    return _FILE_OF.get(own, own.rpartition(".")[2]) if package == PACKAGE else module.rpartition(".")[2]
