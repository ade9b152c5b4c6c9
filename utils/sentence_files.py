"""The files with which sentence-transformers loads a model's folder. Each prompt in
`config_sentence_transformers.json` has a language as its name and its tag as its text: `encode(texts,
prompt_name="sw")` passes the tag to the module, which takes it as the language of the texts and adds no prefix to
them."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from langcodes.data_dicts import LANGUAGE_ALPHA3

MODULES_FILE = "modules.json"
SETTINGS_FILE = "config_sentence_transformers.json"
# The method that embeds each modality, from which other programs learn which inputs a model accepts.
MODALITIES_FILE = "sentence_bert_config.json"
_METHODS = {"text": "get_text_features", "image": "get_image_features"}

_DEPRECATED = {"bh", "in", "iw", "ji", "jw", "mo", "sh"}  # of ISO 639-1


def listed_languages(config: Any) -> list[str]:
    return list(getattr(config, "known_languages", None) or getattr(config, "languages", None) or [])


def prompt_languages(config: Any) -> list[str]:
    """Returns the languages with a prompt: those in the configuration, or else all of ISO 639-1, because a model with
    one vocabulary for all languages does not list its languages."""
    two_letters = sorted(tag for tag in LANGUAGE_ALPHA3.keys() - _DEPRECATED if len(tag) == 2)
    return listed_languages(config) or two_letters


def write_modalities(folder: str | os.PathLike, modalities: Iterable[str]) -> None:
    """Writes the file that tells other programs which of texts and images a dual encoder reads."""
    methods = {name: {"method": _METHODS[name], "method_output_name": "pooler_output"} for name in modalities}
    settings = {"transformer_task": "feature-extraction", "modality_config": methods}
    _write(Path(folder, MODALITIES_FILE), settings | {"module_output_name": "sentence_embedding"})


def write_sentence_files(folder: str | os.PathLike, model: Any, module: str) -> None:
    """Writes the files into a model's folder; `module` names the class that runs it."""
    _write(Path(folder, MODULES_FILE), [{"idx": 0, "name": "0", "path": "", "type": module}])
    settings: dict[str, Any]
    if module.endswith("DualEncoderModule"):
        settings = {"model_type": "SentenceTransformer", "similarity_fn_name": "cosine"}
        # Models that read features instead of images have no image tower.
        write_modalities(folder, ["text"] if getattr(model.config, "vision_config", {}) is None else _METHODS)
    else:  # without an explicit activation, a CrossEncoder would squeeze scores into 0 to 1
        settings = {"model_type": "CrossEncoder", "activation_fn": "torch.nn.Identity"}
    settings |= {"prompts": {tag: tag for tag in prompt_languages(model.config)}, "default_prompt_name": None}
    if getattr(model.config, "truncate_dim", None) is not None:
        settings["truncate_dim"] = model.config.truncate_dim
    _write(Path(folder, SETTINGS_FILE), settings)


def add_prompts(folder: str | os.PathLike, languages: Iterable[str]) -> None:
    """Adds prompts for languages to a folder that has prompts; ISO 639-1 lacks tags such as `zh-Hant`."""
    path = Path(folder, SETTINGS_FILE)
    if path.is_file():
        settings = json.loads(path.read_text(encoding="utf-8"))
        settings["prompts"] |= {tag: tag for tag in languages}
        _write(path, settings)


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
