"""Code on the Hub: whatever is saved carries the modules that define it, beside its weights or settings.

`trust_remote_code=True` then loads it where this package is not installed; where it is installed, its own classes are
used and no flag is needed. `save_pretrained` copies the module of the class, and every module of its package that is
imported from there, flat into the folder; `from ..room.module import X` becomes `from .module import X`; `auto_map` in
the JSON files says which class an Auto class is to load. (transformers' own `register_for_auto_class` copies files of
one folder only.) What was loaded from such a folder is saved in the same way: this file travels too.
"""

import ast
import importlib
import logging
import os
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from transformers import ProcessorMixin
from transformers.utils import PushToHubMixin

from .errors import PublishError

_IMPORT = re.compile(r"^from\s+\.+[\w.]+\s+import\b")
# What transformers takes for a relative import when it collects a repository's files: it reads lines, not syntax.
_LOOKS_LIKE_IMPORT = re.compile(r"^\s*(?:from\s+\.(\S+)\s+import|import\s+\.(\S+)\s*$)", re.MULTILINE)

logger = logging.getLogger(__name__)


class HubCodeMixin(PushToHubMixin):
    """Put before `PreTrainedConfig`, `PreTrainedModel`, `ProcessorMixin` or an image processor: saving ships the code.

    `auto_classes` names the transformers Auto classes that load the class, such as `("AutoModel",)`. A class that does
    not state its own is saved, and loaded again, as the nearest ancestor that does.
    """

    auto_classes: ClassVar[tuple[str, ...]]

    def save_pretrained(self, save_directory: str | os.PathLike, *args: Any, **kwargs: Any) -> Any:
        """As in transformers, with the code. With `is_main_process=False` the code is left to the main process too."""
        before = vars(self).get("auto_map")
        try:
            if kwargs.get("is_main_process", True):
                self.export_code(save_directory)
            return super().save_pretrained(save_directory, *args, **kwargs)
        finally:
            # A processor that transformers loads has no `auto_map`, unlike configurations and image processors.
            if isinstance(self, ProcessorMixin) and before is None:
                vars(self).pop("auto_map", None)

    def export_code(self, folder: str | os.PathLike) -> None:
        """Writes the code of this object and of its parts (a processor's image processor) into `folder`.

        The `auto_map` entries are set on the object whose JSON file will hold them: a model's are in its config.

        Raises:
            PublishError: when a module breaks a rule of exportable modules.
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

    def _get_files_timestamps(self, working_dir: str | os.PathLike) -> dict[str, float]:
        # `save_pretrained(push_to_hub=True)` uploads what is newer than this; the code was written a moment before.
        timestamps = super()._get_files_timestamps(working_dir)
        return {name: time for name, time in timestamps.items() if not name.endswith(".py")}


def export_code(cls: type, folder: str | os.PathLike) -> dict[str, str]:
    """Copies the module of `cls`, and the modules of its package that it needs, flat into `folder`.

    Returns:
        The `auto_map` entries `{"AutoModel": "modeling_mural.MuralModel"}`: those of `cls`, of the other classes of
        its module, and of the models on the same configuration in the modules that it needs. Empty, with a warning,
        for a class of `__main__`.

    Raises:
        PublishError: when a module breaks a rule of exportable modules.
    """
    module = sys.modules[cls.__module__]
    if module.__name__ == "__main__":
        logger.warning(
            "%s is defined in __main__: its code cannot be saved with it; move it into a module", cls.__name__
        )
        return {}
    modules = _needed_modules(module)
    sources = {name: _flat_source(needed) for name, needed in modules.items()}
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, source in sources.items():
        (Path(folder) / f"{name}.py").write_text(source, encoding="utf-8")
    return _auto_map(cls, list(modules.values()))


def _auto_map(cls: type, modules: list[ModuleType]) -> dict[str, str]:
    """The entries of `cls`, then of what else `modules`, its own first, offer."""
    offered = [cls]
    for module in modules:
        own = [other for other in vars(module).values() if getattr(other, "__module__", "") == module.__name__]
        offered += [other for other in own if isinstance(other, type) and _belongs(other, cls)]
    entries: dict[str, str] = {}
    for offering in offered:
        for auto_class in vars(offering).get("auto_classes", ()):
            entries.setdefault(auto_class, f"{offering.__module__.rpartition('.')[2]}.{offering.__name__}")
    return entries


def _belongs(other: type, cls: type) -> bool:
    """Whether `other` comes from the module of `cls`, or is a model on the same configuration."""
    configuration = getattr(cls, "config_class", None)
    same = configuration is not None and getattr(other, "config_class", None) is configuration
    return same or other.__module__ == cls.__module__


def _base_name(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2]


def _needed_modules(module: ModuleType) -> dict[str, ModuleType]:
    """`module` and what it imports from its own package, directly or not, by file name."""
    found = {_base_name(module): module}
    queue = [module]
    for importer in queue:  # which grows meanwhile
        for node in _own_imports(importer):
            imported = importlib.import_module("." * node.level + (node.module or ""), importer.__package__)
            if hasattr(imported, "__path__"):
                raise _refusal(importer, node.lineno, "import from a module, not from a package")
            known = found.setdefault(_base_name(imported), imported)
            if known is not imported:
                raise _refusal(
                    importer, node.lineno, f"{known.__name__} and {imported.__name__} need different file names"
                )
            if imported not in queue:
                queue.append(imported)
    return found


def _own_imports(module: ModuleType) -> list[ast.ImportFrom]:
    """The relative imports of `module`, wherever they stand in it."""
    package = module.__name__.partition(".")[0]
    relative = []
    for node in ast.walk(ast.parse(_source(module))):
        if isinstance(node, ast.ImportFrom) and node.level:
            relative.append(node)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            if package in (name.partition(".")[0] for name in names):
                raise _refusal(
                    module, node.lineno, f"import from {package} relatively: `from ..room.module import name`"
                )
    return relative


def _flat_source(module: ModuleType) -> str:
    """The text of `module` with its relative imports turned into imports from the same folder."""
    lines = _source(module).splitlines(keepends=True)
    imported = set()
    for node in _own_imports(module):
        line = lines[node.lineno - 1]
        name = (node.module or "").rpartition(".")[2]
        flat, replaced = _IMPORT.subn(f"from .{name} import", line[node.col_offset :])
        if not replaced:
            raise _refusal(module, node.lineno, "write `from ..room.module import` on one line")
        lines[node.lineno - 1] = line[: node.col_offset] + flat
        imported.add(name)
    text = "".join(lines)
    for match in _LOOKS_LIKE_IMPORT.finditer(text):
        if (match[1] or match[2]) not in imported:
            raise _refusal(
                module, text.count("\n", 0, match.end()) + 1, "this line of a string would be taken for an import"
            )
    return text


def _source(module: ModuleType) -> str:
    return Path(module.__file__ or "").read_text(encoding="utf-8")


def _refusal(module: ModuleType, line: int, rule: str) -> PublishError:
    return PublishError(f"{module.__name__}, line {line}: {rule}")
