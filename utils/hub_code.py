"""Exports the code of a model: every saved folder holds the modules that define its classes, beside its weights.

With `trust_remote_code=True`, transformers loads such a folder where this package is not installed. Where the package
is installed, its own classes are used, and no flag is needed.

`save_pretrained` writes the module of the class, and every module of the same package that it needs, into one file of
the folder, `babelens_modules.py`: one after another, without the imports between them. They may therefore not define a
name twice, nor import different things under one name. A file that is there already keeps its modules, because a model
and its processor are saved one after the other. The JSON files name classes of `babelens_code.py`, which imports them
from there in one line: transformers parses the file that they name at every look-up, four times in a load.

A module needs those that it imports relatively, and those that it names in `SHIPS_WITH`: a string of import lines that
never run (`modeling_rc3` has one). These are modules whose classes a user may load from the folder too, and which the
module that names them cannot import itself: models for tasks, which import it, and pipelines, which stand in another
room.

`auto_map` in the JSON files says which class each Auto class loads, and `custom_pipelines` in a model's which class
runs each of its tasks in `transformers.pipeline`. (transformers' own `register_for_auto_class` copies the files of one
folder only.) A model that was loaded from such a folder is saved with the same file.
"""

import ast
import importlib
import importlib.util
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from transformers import ProcessorMixin
from transformers.utils import PushToHubMixin, cached_file

from .errors import PublishError, UntrustedCodeError

_SECTION = "# ==== {} ===="
_SECTIONS = re.compile(r"^# ==== ([\w.]+) ====$", re.MULTILINE)
_DROPPED = {"__all__", "SHIPS_WITH"}  # what modules say of themselves, and the file does not say
_REPEATED = {"logger", *_DROPPED}  # names that every module may define
_ABOUT = '''"""Modules of {package}, one after another: all that this folder needs of it."""
'''
_LOOKED_UP = (
    '"""Where this folder\'s JSON files look classes up: short, because it is parsed at every look-up."""\n\n'
    "from .{modules} import *\n"
)
# A line that transformers takes for a relative import when it collects a repository's files: it reads lines of text,
# and finds them in strings too.
_LOOKS_LIKE_IMPORT = re.compile(r"^\s*(?:from\s+\.(\S+)\s+import|import\s+\.(\S+)\s*$)", re.MULTILINE)

logger = logging.getLogger(__name__)


# What writes the card of a part that is pushed by `push_to_hub`, called as `writer(part, repo_id, folder)`: babelens
# registers its own, so that copies of this module that come with a model do without.
card_writers: list[Callable[..., str | None]] = []
_GENERATED = "This model card has been automatically generated"  # of transformers, which knows nothing of the model


class HubCodeMixin(PushToHubMixin):
    """Makes `save_pretrained` export the code of the class; `auto_classes` names the Auto classes that load it.

    Put it before `PreTrainedConfig`, `PreTrainedModel`, `ProcessorMixin` or an image processor among the bases. A
    class without its own `auto_classes` is saved, and loaded again, as its nearest base class that has them.

    Examples:
        >>> class ToyModel(HubCodeMixin, PreTrainedModel):
        ...     config_class = ToyConfig
        ...     auto_classes = ("AutoModel",)
    """

    auto_classes: ClassVar[tuple[str, ...]]

    @classmethod
    def register_for_auto_class(cls, auto_class: Any = None) -> None:
        """Does nothing, where transformers would note that the class comes from a folder, and at the next saving name
        the file that it is defined in; `save_pretrained` exports the code without that."""

    def save_pretrained(self, save_directory: str | os.PathLike, *args: Any, **kwargs: Any) -> Any:
        """Saves as transformers does, and exports the code; with `is_main_process=False` it exports none.

        Raises:
            PublishError: if a module breaks a rule of exportable modules.
        """
        before = vars(self).get("auto_map")
        holder: Any = getattr(self, "config", self)
        pipelines = vars(holder).get("custom_pipelines")
        try:
            if kwargs.get("is_main_process", True):
                self.export_code(save_directory)
            return super().save_pretrained(save_directory, *args, **kwargs)
        finally:
            vars(holder).pop("custom_pipelines", None)
            if pipelines is not None:
                holder.custom_pipelines = pipelines
            # transformers gives a loaded processor no `auto_map`, unlike configurations and image processors.
            if isinstance(self, ProcessorMixin) and before is None:
                vars(self).pop("auto_map", None)

    def export_code(self, folder: str | os.PathLike) -> None:
        """Writes the code of this object and of its parts, such as a processor's image processor, into `folder`.

        It sets `auto_map`, and `custom_pipelines` where there are any, on the object whose JSON file will hold them: a
        model's stand in its config.

        Args:
            folder: where the model, configuration or processor is saved; it is created if needed.

        Raises:
            PublishError: if a module breaks a rule of exportable modules.
        """
        for part in list(vars(self).values()):
            # Not isinstance: several copies of this class may have been loaded from the Hub.
            if hasattr(part, "auto_classes"):
                part.export_code(folder)
        stated_by = next((cls for cls in type(self).__mro__ if "auto_classes" in vars(cls)), None)
        if stated_by is None:
            raise PublishError(f"{type(self).__name__} does not state its `auto_classes`, such as ('AutoModel',)")
        holder: Any = getattr(self, "config", self)
        holder.auto_map = (getattr(holder, "auto_map", None) or {}) | export_code(stated_by, folder)
        if pipelines := _pipelines_of(stated_by):
            holder.custom_pipelines = pipelines

    def _upload_modified_files(self, working_dir: str | os.PathLike, repo_id: str, *args: Any, **kwargs: Any) -> Any:
        # transformers has put its own card there, if the repository had none; ours replaces it.
        path = Path(working_dir, "README.md")
        if path.is_file() and _GENERATED in path.read_text(encoding="utf-8"):
            for write in card_writers:
                if text := write(self, repo_id, working_dir):
                    path.write_text(text, encoding="utf-8")
        _keep_code_of(repo_id, Path(working_dir), kwargs)
        return super()._upload_modified_files(working_dir, repo_id, *args, **kwargs)

    def _get_files_timestamps(self, working_dir: str | os.PathLike) -> dict[str, float]:
        # `save_pretrained(push_to_hub=True)` uploads the files that changed since these times. The code, and the JSON
        # files that name it, were written a moment before they were taken, and must be uploaded too.
        timestamps = super()._get_files_timestamps(working_dir)
        return {name: time for name, time in timestamps.items() if not name.endswith((".py", ".json"))}


def export_code(cls: type, folder: str | os.PathLike) -> dict[str, str]:
    """Writes the module of `cls`, and the modules of its package that it needs, into one file in `folder`.

    Returns:
        The `auto_map` entries, such as `{"AutoModel": "babelens_code.MuralModel"}`: those of `cls`, and of the models
        on the same configuration in the modules that it needs. The result is empty, after a warning, for a class that
        is defined in `__main__`.

    Raises:
        PublishError: if a module breaks a rule of exportable modules.
    """
    module = sys.modules[cls.__module__]
    if module.__name__ == "__main__":
        logger.warning(
            "%s is defined in __main__: its code cannot be saved with it; move it into a module", cls.__name__
        )
        return {}
    modules = _needed_modules([module])
    file, named = (Path(folder, f"{name}.py") for name in (_file_of(module), named_file_of(module)))
    source = _source(module) if _is_saved(module) else _in_one_file(modules, file, named)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source, encoding="utf-8")
    if named != file:
        named.write_text(_LOOKED_UP.format(modules=file.stem), encoding="utf-8")
    return _auto_map(cls, modules)


def _auto_map(cls: type, modules: list[ModuleType]) -> dict[str, str]:
    """Returns the entries of `cls`, then those of the other classes in `modules`, of which its own comes first."""
    offered = [cls]
    for module in modules:
        classes = [other for other in vars(module).values() if isinstance(other, type)]
        own = [other for other in classes if other.__module__ == module.__name__ and "auto_classes" in vars(other)]
        offered += [other for other in own if _belongs(other, cls)]
    entries: dict[str, str] = {}
    for offering in offered:
        for auto_class in vars(offering).get("auto_classes", ()):
            entries.setdefault(auto_class, f"{named_file_of(sys.modules[offering.__module__])}.{offering.__name__}")
    return entries


def _pipelines_of(cls: type) -> dict[str, dict[str, Any]]:
    """Returns what `custom_pipelines` holds for a model: of the pipelines that its module ships with, those for an
    Auto class that loads it. A pipeline names both in `hub_task`."""
    module = sys.modules[cls.__module__]
    if module.__name__ == "__main__":
        return {}
    offered: dict[str, dict[str, Any]] = {}
    for shipped in _needed_modules([module]):
        for pipeline in vars(shipped).values():
            task, auto_class = vars(pipeline).get("hub_task", ("", "")) if isinstance(pipeline, type) else ("", "")
            if auto_class in vars(cls)["auto_classes"] and pipeline.__module__ == shipped.__name__:
                impl = f"{named_file_of(shipped)}.{pipeline.__name__}"
                offered[task] = {"impl": impl, "pt": [auto_class], "type": "multimodal"}
    return offered


def _belongs(other: type, cls: type) -> bool:
    """Returns whether `other` is a model on the same configuration as `cls`, or a variant of `cls`."""
    configuration = getattr(cls, "config_class", None)
    if configuration is not None:
        return getattr(other, "config_class", None) is configuration
    return other.__module__ == cls.__module__ and (issubclass(other, cls) or issubclass(cls, other))


def _is_saved(module: ModuleType) -> bool:
    """Returns whether a module was loaded from a file that this module wrote."""
    return _SECTIONS.search(_source(module)) is not None


def _file_of(module: ModuleType) -> str:
    """Returns the name, without its ending, of the file that a module is saved in."""
    package, name = module.__name__.partition(".")[0], module.__name__.rpartition(".")[2]
    return name if _is_saved(module) else f"{package}_modules"


def named_file_of(module: ModuleType) -> str:
    """Returns the name, without its ending, of the file that JSON files name for the classes of a module: that of its
    modules, for one that was loaded from a folder of 1.0, which had no other."""
    name = _file_of(module)
    return f"{name.removesuffix('_modules')}_code" if name.endswith("_modules") else name


def _needed_modules(modules: Iterable[ModuleType]) -> list[ModuleType]:
    """Returns `modules`, and all that they need from their own package, directly or not."""
    queue = list(modules)
    for importer in queue:  # the loop appends to it
        for node in _own_imports(importer) + _ships_with(importer):
            imported = _imported(importer, node)
            if hasattr(imported, "__path__"):
                raise _refusal(importer, node.lineno, "import from a module, not from a package")
            if imported not in queue:
                queue.append(imported)
    return queue


def _imported(importer: ModuleType, node: ast.ImportFrom) -> ModuleType:
    return importlib.import_module("." * node.level + (node.module or ""), importer.__package__)


def _own_imports(module: ModuleType) -> list[ast.ImportFrom]:
    """Returns the relative imports in the source of `module`, also those inside functions."""
    package = module.__name__.partition(".")[0]
    relative = []
    for node in _imports(_source(module)):
        if isinstance(node, ast.ImportFrom) and node.level:
            relative.append(node)
            continue
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        if package in (name.partition(".")[0] for name in names):
            raise _refusal(
                module,
                node.lineno,
                f"import from {package} relatively (`from .module import name`): a published folder is loaded "
                f"where {package} is not installed",
            )
    return relative


@cache  # every save asks for the imports of some dozen modules, each several times, and parsing takes milliseconds
def _imports(source: str) -> list[ast.Import | ast.ImportFrom]:
    """Returns the import statements in a source."""
    return [node for node in ast.walk(_parsed(source)) if isinstance(node, ast.Import | ast.ImportFrom)]


@cache
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


def _ships_with(module: ModuleType) -> list[ast.ImportFrom]:
    """Returns the imports that stand in the string `SHIPS_WITH` of `module`."""
    statements = ast.parse(getattr(module, "SHIPS_WITH", "")).body
    return [node for node in statements if isinstance(node, ast.ImportFrom)]


def _in_one_file(modules: Sequence[ModuleType], *files: Path) -> str:
    """Returns the sources of modules, and of those that the files have already, as one source."""
    package = modules[0].__name__.partition(".")[0]
    members = [*modules, *_needed_modules(each for file in files for each in _sections(file, package))]
    return _ABOUT.format(package=package) + _joined(tuple(sorted({each.__name__ for each in members})))


@cache  # a training saves its model many times, and reading all modules takes tenths of a second
def _joined(names: tuple[str, ...]) -> str:
    """Returns the sources of modules, one after another."""
    members = {name: sys.modules[name] for name in names}
    _check_names(list(members.values()))
    ordered = _in_order(members)
    return "".join(f"\n{_SECTION.format(name)}\n{_without_imports(members[name])}" for name in ordered)


def _sections(file: Path, package: str) -> list[ModuleType]:
    """Returns the modules that a file holds, as far as the package still has them."""
    names = _SECTIONS.findall(file.read_text(encoding="utf-8")) if file.is_file() else []
    own = [name for name in names if name.startswith(f"{package}.")]
    return [importlib.import_module(name) for name in own if importlib.util.find_spec(name) is not None]


def _keep_code_of(repo_id: str, folder: Path, loading: Mapping[str, Any]) -> None:
    """Adds the modules that a repository has to a folder that is to be uploaded there. A model and its processor are
    pushed one after the other, and the second would leave its own modules alone."""
    for file in folder.glob("*_modules.py"):
        package = file.stem.removesuffix("_modules")
        if importlib.util.find_spec(package) is None:  # what was loaded without it has all modules
            continue
        modules = []
        for name in (file.name, f"{package}_code.py"):
            try:
                there = optional_file(repo_id, name, loading, _raise_exceptions_for_connection_errors=False)
            except OSError:  # such as a branch that the upload makes
                continue
            modules += [] if there is None else _sections(there, package)
        if modules:
            file.write_text(_in_one_file(modules, file), encoding="utf-8")


def _in_order(members: dict[str, ModuleType]) -> list[str]:
    """Returns the names of modules so that each comes after those that it imports at its top."""
    graph = {
        name: sorted(
            imported
            for node in _own_imports(module)
            if not node.col_offset and (imported := _imported(module, node).__name__) in members
        )
        for name, module in members.items()
    }
    return list(TopologicalSorter(graph).static_order())


def _without_imports(module: ModuleType) -> str:
    """Returns the source of `module` without its relative imports, `SHIPS_WITH` and `__all__`."""
    source = _source(module)
    lines = source.splitlines(keepends=True)
    dropped: list[ast.stmt] = list(_own_imports(module))
    dropped += [
        node
        for node in _parsed(source).body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in _DROPPED
    ]
    # From the last, so that the numbers of the lines before it stay the same.
    for node in sorted(dropped, key=lambda each: each.lineno, reverse=True):
        names = node.names if isinstance(node, ast.ImportFrom) else []
        renamed = "; ".join(f"{alias.asname} = {alias.name}" for alias in names if alias.asname)
        kept = renamed or ("pass" if node.col_offset else "")  # no block may become empty
        indent = " " * node.col_offset
        lines[node.lineno - 1 : node.end_lineno] = [f"{indent}{kept}\n"] if kept else []
    text = "".join(lines)
    if match := _LOOKS_LIKE_IMPORT.search(text):
        line_number = text.count("\n", 0, match.end()) + 1
        raise _refusal(module, line_number, "transformers would take this line of a string for an import")
    return text


def _check_names(modules: Sequence[ModuleType]) -> None:
    """Checks that modules which will stand in one file give no name two meanings."""
    meanings: dict[str, tuple[str, ModuleType]] = {}
    for module in modules:
        for name, meaning, line in _global_names(module):
            known, other = meanings.setdefault(name, (meaning, module))
            if known != meaning and name not in _REPEATED:
                raise _refusal(module, line, f"{name!r} means something else in {other.__name__}; rename one of them")


def _global_names(module: ModuleType) -> list[tuple[str, str, int]]:
    """Returns the names that a module defines or imports from elsewhere, with what they mean and their lines."""
    found = []
    for node in _parsed(_source(module)).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.append((node.name, module.__name__, node.lineno))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            source, is_own = (node.module, bool(node.level)) if isinstance(node, ast.ImportFrom) else ("", False)
            names = [alias for alias in node.names if alias.asname or not is_own]
            found += [(alias.asname or alias.name, f"{source}.{alias.name}", node.lineno) for alias in names]
        else:
            stored = (
                each for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
            )
            found += [(each.id, module.__name__, node.lineno) for each in stored]
    return found


def _source(module: ModuleType) -> str:
    return Path(module.__file__ or "").read_text(encoding="utf-8")


def _refusal(module: ModuleType, line: int, rule: str) -> PublishError:
    return PublishError(f"the code of {module.__name__} cannot be saved with a model: line {line}: {rule}")


# The arguments of loaders that say where the files of a repository are.
_OF_FILES = ("cache_dir", "local_files_only", "revision", "token")


def optional_file(source: str | os.PathLike, name: str, loading: Mapping[str, Any], **raising: bool) -> Path | None:
    """Returns the path of a file of a folder or a repository, or `None` if it has none; `loading` may hold other
    arguments of `from_pretrained` too, and `raising` some of `cached_file`.

    Raises:
        OSError: if there is no such folder or repository.
    """
    where = {key: value for key, value in loading.items() if key in _OF_FILES}
    found = cached_file(str(source), name, _raise_exceptions_for_missing_entries=False, **raising, **where)
    return None if found is None else Path(found)


# Settings of a model that name the kernels of its attention.
KERNELS = ("attn_implementation", "experts_implementation")


def refuse_kernels(settings: dict[str, Any], source: str) -> None:
    """Refuses settings that would download an attention kernel from a repository and run it.

    Raises:
        UntrustedCodeError: if a setting names one, at any depth.
    """
    for key, value in settings.items():
        if isinstance(value, dict):
            refuse_kernels({f"{key}.{inner}": each for inner, each in value.items()}, source)
        elif isinstance(value, str) and "/" in value and any(name in key for name in KERNELS):
            raise UntrustedCodeError(
                f"{source}: {key}={value!r} is code from the Hub, which runs only with --trust-remote-code "
                "(trust_remote_code=True)"
            )
