"""The base of all classes that are saved with their code (`hub_code`). With `trust_remote_code=True`, transformers
loads and saves such folders where this package is not installed; where it is, no flag is needed."""

import copy
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from transformers import PreTrainedConfig, ProcessorMixin
from transformers.utils import PushToHubMixin

from .errors import PublishError

_GENERATED = "This model card has been automatically generated"  # in transformers' cards, which do not know the model
# Keys that describe the files of a folder, and do not apply to a part of a model that is taken from it.
_OF_A_FOLDER = ("quantization_config", "transformers.js_config", "transformers_weights")
# The application's writer of cards, called as `card_writer(part, repo_id, folder)` for what `push_to_hub` uploads.
card_writer: Callable[..., str | None] | None = None


class HubCodeMixin(PushToHubMixin):
    """Makes `save_pretrained` export the code; put it first in the list of bases. `auto_classes` names the Auto
    classes that load the class. A class without them is saved as its nearest base class that has some."""

    auto_classes: ClassVar[tuple[str, ...]]

    def __post_init__(self, **kwargs: object) -> None:
        kwargs.pop("custom_pipelines", None)  # the package has registered its own
        for name in getattr(self, "sub_configs_defaults", ()):
            if isinstance(part := getattr(self, name), PreTrainedConfig):
                part = copy.deepcopy(part)
                setattr(self, name, part)
                if part.name_or_path and os.path.exists(part.name_or_path):
                    part.name_or_path = os.path.basename(os.path.realpath(part.name_or_path))
                for key in _OF_A_FOLDER:
                    vars(part).pop(key, None)
        super().__post_init__(**kwargs)

    def save_pretrained(self, save_directory: str | os.PathLike, *args: Any, **kwargs: Any) -> Any:
        """Saves as transformers does and exports the code, unless `is_main_process=False`."""
        before = vars(self).get("auto_map")
        try:
            if kwargs.get("is_main_process", True):
                self.export_code(save_directory)
            return super().save_pretrained(save_directory, *args, **kwargs)
        finally:
            vars(getattr(self, "config", self)).pop("custom_pipelines", None)
            # transformers does not set `auto_map` on a loaded processor, unlike configurations and image processors.
            if isinstance(self, ProcessorMixin) and before is None:
                vars(self).pop("auto_map", None)

    def export_code(self, folder: str | os.PathLike) -> None:
        """Writes the code of this object and its parts, and the files with which sentence-transformers loads a model;
        sets `auto_map` and `custom_pipelines` on the object (for a model, its configuration) whose JSON file holds
        them."""
        for part in list(vars(self).values()):
            if hasattr(part, "auto_classes"):
                part.export_code(folder)
        cls = next((each for each in type(self).__mro__ if "auto_classes" in vars(each)), None)
        if cls is None:
            raise PublishError(f"{type(self).__name__} does not state its `auto_classes`, such as ('AutoModel',)")
        from .hub_code import PACKAGE, export_code, file_of
        from .sentence_files import write_sentence_files

        holder: Any = getattr(self, "config", self)
        auto_map, pipelines = export_code(cls, folder)
        holder.auto_map = (getattr(holder, "auto_map", None) or {}) | auto_map
        if pipelines:
            holder.custom_pipelines = pipelines
        if found := getattr(self, "sentence_module", None):
            file, _, name = f"{PACKAGE}.{found}".rpartition(".")
            is_own = cls.__module__.startswith(f"{PACKAGE}.")
            write_sentence_files(folder, self, f"{file_of(file) if is_own else file}.{name}")

    def _upload_modified_files(self, working_dir: str | os.PathLike, repo_id: str, *args: Any, **kwargs: Any) -> Any:
        # transformers has written its own card there if the repository had none; ours replaces it.
        path = Path(working_dir, "README.md")
        is_generated = path.is_file() and _GENERATED in path.read_text(encoding="utf-8")
        if is_generated and card_writer and (text := card_writer(self, repo_id, working_dir)):
            path.write_text(text, encoding="utf-8")
        return super()._upload_modified_files(working_dir, repo_id, *args, **kwargs)

    def _get_files_timestamps(self, working_dir: str | os.PathLike) -> dict[str, float]:
        # `save_pretrained(push_to_hub=True)` uploads the files that changed after these times. The code, and the JSON
        # files that name it, were written just before, and must be uploaded too.
        timestamps = super()._get_files_timestamps(working_dir)
        return {name: time for name, time in timestamps.items() if not name.endswith((".py", ".json"))}
