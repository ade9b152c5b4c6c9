"""Publishing a model: checking its folder, choosing the files that go to the Hub, and uploading them as one commit.

Of a training run only the result is published: no checkpoints, no logs, and no pickles, which are unsafe to load.
"""

import ast
import json
import logging
import re
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path
from typing import Any

import transformers
from huggingface_hub import CommitOperationAdd, HfApi, ModelCard
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id
from peft import PeftConfig
from peft.utils import CONFIG_NAME, SAFETENSORS_WEIGHTS_NAME
from transformers import CONFIG_MAPPING, AutoModel, AutoProcessor
from transformers.dynamic_module_utils import get_relative_import_files

from .configuration.configuration_ridge import RidgeConfig, VectorSpaceConfig
from .data.corpus.captions import enumeration
from .model_cards.base_models import base_model_facts
from .model_cards.card_checks import card_problems
from .model_cards.card_text import paths_in_files, tokens_in_files
from .model_cards.cards import placeholder_repository
from .model_cards.licenses import check_weights_license
from .model_cards.result_tables import EVAL_RESULTS
from .model_cards.short_cards import ACQUIRED
from .processing.processing_ridge import GLOSSARY_FILE
from .registry import METHODS, dual_encoder_of
from .training.run_results import outdated_problems
from .uploads import Published, committed, upload_errors_explained
from .utils.errors import BabelensError, PublishError
from .utils.pretrained import (
    damaged_files,
    explained,
    load_config,
    load_model,
    load_processor,
    non_finite_weights,
)
from .utils.sentence_files import MODULES_FILE

logger = logging.getLogger(__name__)

# The first name of a path decides; everything else in a folder is published.
_UNPUBLISHED = [
    "checkpoints",
    "checkpoint-*",
    "runs",
    "__pycache__",
    "complete.json",
    "*.bin",
    "*.ckpt",
    "*.joblib",
    "*.pickle",
    "*.pkl",
    "*.pt",
    "*.pth",
    "*.log",
    ".*",
    "adapter",  # of `train mla/adapter`, beside its model: a repository of its own
]
ADAPTER_CONFIG, ADAPTER_WEIGHTS = CONFIG_NAME, SAFETENSORS_WEIGHTS_NAME  # of PEFT
# What is found by its name in a repository, where one of an earlier model would be loaded instead of a new model's.
_LOADED_BY_NAME = (
    "model.safetensors",
    "model-*-of-*.safetensors",
    "model.safetensors.index.json",
    CONFIG_NAME,
    SAFETENSORS_WEIGHTS_NAME,
    GLOSSARY_FILE,
    ACQUIRED,
)
_PIPELINE_CLASS = "AutoModelForZeroShotImageClassification"
_OF_WORDS = ("smalr", "liwe")  # methods whose models read words, and have no tokenizer


def files_to_publish(folder: str | Path) -> dict[str, int]:
    """Paths below `folder` that go to the Hub, sorted, with their sizes in bytes."""
    folder = Path(folder)
    paths = {path.relative_to(folder): path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    return {path.as_posix(): size for path, size in sorted(paths.items()) if not _is_unpublished(path)}


def _is_unpublished(path: Path) -> bool:
    if path.parts[0] == EVAL_RESULTS:  # hidden, and read by the Hub
        path = path.relative_to(EVAL_RESULTS)
    return any(fnmatch(part.lower(), pattern) for part in path.parts for pattern in _UNPUBLISHED)


def folder_problems(folder: str | Path) -> list[str]:
    """The problems of a model's folder, one sentence each; none when it can be published."""
    folder = Path(folder)
    if not folder.is_dir():
        return [f"{folder} is not a folder"]
    always = [*_link_problems(folder), *card_problems(folder), *tokens_in_files(folder, files_to_publish(folder))]
    if damaged := damaged_files(folder):
        return damaged + always
    if (folder / ADAPTER_CONFIG).is_file():
        problems = _adapter_problems(folder)
    else:
        problems = [*_config_problems(folder), *_weight_problems(folder), *_processor_problems(folder)]
        problems += _sentence_problems(folder)
    # The model is loaded last: the error would otherwise repeat which files are missing.
    return problems + always or [*_loading_problems(folder), *outdated_problems(folder)]


def doubts(folder: str | Path) -> list[str]:
    """What keeps nobody from publishing a folder and is worth a look, one sentence each: paths of this machine in its
    files, learned languages of which the card has no results, and a card that names no base model."""
    folder = Path(folder)
    return [*paths_in_files(folder, files_to_publish(folder)), *_gaps(folder)]


def _gaps(folder: Path) -> list[str]:
    """What the card of a model that learned languages in closed form leaves out."""
    if not (folder / "config.json").is_file() or not (folder / "README.md").is_file():
        return []
    config, card = (
        _read_json(folder / "config.json"),
        ModelCard.load(folder / "README.md", ignore_metadata_errors=True),
    )
    if config.get("model_type") != RidgeConfig.model_type:
        return []
    rows = {row.split("|")[1].strip() for row in card.text.splitlines() if row.count("|") > 2}
    unread = [tag for tag in config.get("languages", []) if tag not in rows]
    found = [f"README.md has no results of {enumeration(unread)}, which the model learned"] if unread else []
    is_of_model = config.get("base_config") != VectorSpaceConfig.model_type
    if is_of_model and not card.data.get("base_model"):
        found.append("README.md names no model of the Hub as base_model: nobody can tell what this one was made of")
    return found


def _link_problems(folder: Path) -> list[str]:
    """The links that lead out of the folder, through which files from elsewhere would be published."""
    inside = folder.resolve()
    return [
        f"{path.relative_to(folder)} is a link to {path.resolve()}, outside of the folder: put the file itself there"
        for path in sorted(folder.rglob("*"))
        if path.is_symlink()
        and not _is_unpublished(path.relative_to(folder))
        and not path.resolve().is_relative_to(inside)
    ]


def _loading_problems(folder: Path) -> list[str]:
    """The errors of loading the folder as others will load it, and weights that are not finite."""
    try:
        if (folder / ADAPTER_CONFIG).is_file():
            with explained(str(folder), {}):
                PeftConfig.from_pretrained(str(folder))  # of the adapter's own kind
            return non_finite_weights(folder) + non_finite_weights(folder / "embedding")
        config = load_config(folder)
        method = METHODS.get(config.model_type)
        models = {model.__name__: model for model in method.models} if method else {}
        plain: Any = dual_encoder_of(config.model_type) or (method.model if method else AutoModel)
        load_model(models.get((config.architectures or [""])[0], plain), folder)
        load_processor(AutoProcessor, folder)
    except BabelensError as error:
        return [str(error)]
    return []


def _adapter_problems(folder: Path) -> list[str]:
    """The problems of an adapter: its base and its embedding must lie in the folder or on the Hub."""
    problems = (
        [] if (folder / ADAPTER_WEIGHTS).is_file() else [f"{ADAPTER_WEIGHTS} is missing: train mla/adapter writes it"]
    )
    settings = _read_json(folder / ADAPTER_CONFIG)
    for key in ("base_model_name_or_path", "embedding"):
        place = settings.get(key)
        if isinstance(place, str) and not place.startswith("./") and _is_local(place):
            problems.append(f"{ADAPTER_CONFIG}: {key}={place!r} is a folder of this machine: publish it, and name it")
    return problems


def _is_local(place: str) -> bool:
    """Whether a path names a local folder, rather than a repository on the Hub or a folder in one."""
    try:
        validate_repo_id("/".join(place.split("/")[:2]))
    except HFValidationError:
        return True
    return Path(place).is_dir()


def _config_problems(folder: Path) -> list[str]:
    if not (folder / "config.json").is_file():
        return ["config.json is missing: save the model with save_pretrained"]
    config = _read_json(folder / "config.json")
    needs = () if _is_stock(config) else ("AutoConfig", "AutoModel")
    return _code_problems(folder, "config.json", config, needs=needs)


def _is_stock(config: dict[str, Any]) -> bool:
    """Whether a model is of a class that comes with transformers, so that its folder needs no code."""
    kind = config.get("model_type", "")
    return kind in CONFIG_MAPPING and CONFIG_MAPPING[kind].__module__.startswith("transformers.")


def _sentence_problems(folder: Path) -> list[str]:
    """Whether the folder holds the modules of its own that sentence-transformers runs."""
    if not (folder / MODULES_FILE).is_file():
        return []
    modules = json.loads((folder / MODULES_FILE).read_text(encoding="utf-8"))
    if not isinstance(modules, list) or not all(isinstance(module, dict) and "type" in module for module in modules):
        return [f"{MODULES_FILE} is not a list of modules with their types"]
    # Others than the folder's own are imported from where they are installed.
    own = {name: name for name in (str(module["type"]) for module in modules) if name.count(".") == 1}
    return _code_problems(folder, MODULES_FILE, {"auto_map": own}, needs=())


def _weight_problems(folder: Path) -> list[str]:
    if (folder / "model.safetensors").is_file():
        return []
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return ["model.safetensors is missing: save the model with save_pretrained"]
    shards = sorted(set(_read_json(index)["weight_map"].values()))  # looked at before: names of files in the folder
    return [f"{shard} is missing, which {index.name} names" for shard in shards if not (folder / shard).is_file()]


def _processor_problems(folder: Path) -> list[str]:
    problems = []
    config = _read_json(folder / "config.json") if (folder / "config.json").is_file() else {}
    has_tokenizer = _PIPELINE_CLASS in config.get("auto_map", {_PIPELINE_CLASS: ""})
    has_tokenizer &= config.get("model_type") not in _OF_WORDS
    if has_tokenizer and not (folder / "tokenizer_config.json").is_file():
        problems.append("tokenizer_config.json is missing: save the processor with save_pretrained")
    if not (folder / "processor_config.json").is_file():
        if (folder / "1_Pooling" / "config.json").is_file():  # a text tower alone has no processor
            return problems
        return [*problems, "processor_config.json is missing: save the processor with save_pretrained"]
    processor = _read_json(folder / "processor_config.json")
    images = processor.get("image_processor", {})
    if not isinstance(images, dict):
        return [*problems, "processor_config.json: image_processor holds no settings"]
    has_own_images = not hasattr(transformers, images.get("image_processor_type", ""))
    return [
        *problems,
        *_code_problems(
            folder, "processor_config.json", processor, needs=() if _is_stock(config) else ("AutoProcessor",)
        ),
        *_code_problems(
            folder, "processor_config.json: image_processor", images, needs=("AutoImageProcessor",) * has_own_images
        ),
    ]


def _code_problems(folder: Path, where: str, settings: dict[str, Any], needs: tuple[str, ...]) -> list[str]:
    """Whether `auto_map` names the classes that are needed, and the code files define them."""
    auto_map = settings.get("auto_map", {})
    if not isinstance(auto_map, dict) or not all(isinstance(reference, str) for reference in auto_map.values()):
        return [f"{where}: auto_map is not a mapping from Auto classes to classes"]
    problems = [f"{where}: auto_map has no {name}" for name in needs if name not in auto_map]
    for reference in sorted(set(auto_map.values())):
        module, _, class_name = reference.rpartition(".")
        path = folder / f"{module}.py"
        if not path.is_file():
            problems.append(f"{path.name} is missing, which {where} names")
            continue
        try:
            if class_name not in _classes_of(path):
                problems.append(f"{path.name} does not define {class_name}, which {where} names")
        except PublishError as error:
            problems.append(str(error))
    return problems


def _classes_of(path: Path) -> frozenset[str]:
    """The classes that a file of code offers: its own, and those of the files that it imports.

    Raises:
        PublishError: if one of them is missing, or is no Python.
    """
    file, classes = path, frozenset[str]()
    try:
        for file in [path, *map(Path, get_relative_import_files(path))]:
            classes |= _classes_in(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise PublishError(f"{Path(error.filename).name} is missing, which {path.name} needs") from error
    except (SyntaxError, ValueError) as error:
        raise PublishError(f"{file.name} is no Python: {error}") from error
    return classes


@lru_cache(maxsize=8)  # a folder's settings name the same file a dozen times, and parsing it takes a tenth of a second
def _classes_in(source: str) -> frozenset[str]:
    """The classes that a source defines.

    Raises:
        SyntaxError, ValueError: for no Python.
    """
    return frozenset(node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef))


def _license_problems(folder: Path) -> list[str]:
    """Whether the card's license, which a person may have edited, allows what a base model on the Hub forbids."""
    metadata = ModelCard.load(folder / "README.md").data.to_dict()
    names = metadata.get("base_model") or []
    bases = [base_model_facts(name) for name in ([names] if isinstance(names, str) else names)]
    try:
        check_weights_license(metadata["license"], bases)
    except PublishError as error:
        return [f"README.md: {error}"]
    return []


def push(
    folder: str | Path, repo_id: str, *, private: bool = False, revision: str | None = None, api: HfApi | None = None
) -> Published:
    """Publishes a folder as one commit.

    The card that is published names the repository in its examples; the folder itself stays unchanged. After an
    upload that broke off, the same call goes on with it: large files that arrived are not uploaded again.

    When a model is published, weights of an earlier one that are in the repository under other names, or as an
    adapter, and its glossaries are deleted, since transformers would load them in the place of this model's; all else
    stays. What somebody else publishes in the meantime is not mixed with it: the later of the two is refused.

    Args:
        folder: the model's folder.
        repo_id: the repository, which is created if it is missing.
        private: whether a new repository is private; one that exists must be so already.
        revision: the branch to commit to, which is made from the main one if it is missing; by default the main one.
        api: the client of the Hub; by default a new one.

    Returns:
        The commit, and whether it is a new one.

    Raises:
        PublishError: when the folder has problems (`folder_problems`), or the card's license allows what that of a
            base model forbids, and nothing is created then; when the repository is public and a private one was asked
            for, and when the Hub refuses the card.
        HubUnreachableError: when the Hub does not answer, or refuses the upload, as it does when another commit was
            made since it began.
    """
    if problems := folder_problems(folder) or _license_problems(Path(folder)):
        raise PublishError(f"{folder} cannot be published:\n" + "\n".join(f"- {problem}" for problem in problems))
    for sentence in doubts(folder):
        logger.warning("%s", sentence)
    api = api or HfApi()
    with upload_errors_explained(str(folder), repo_id, api):
        repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        operations = [
            CommitOperationAdd(path, _card_for(folder, repo_id) if path == "README.md" else str(Path(folder) / path))
            for path in files_to_publish(folder)
        ]
        is_adapter = any(operation.path_in_repo == ADAPTER_CONFIG for operation in operations)
        return committed(
            api,
            repo_id,
            operations,
            "Upload model with code and card",
            private=private,
            branch=revision,
            replaced=() if is_adapter else _LOADED_BY_NAME,
        )


def _card_for(folder: str | Path, repo_id: str) -> bytes:
    text = (Path(folder) / "README.md").read_text(encoding="utf-8-sig")
    return re.sub(re.escape(placeholder_repository("")) + r"[\w.-]+", lambda _: repo_id, text).encode()


def _read_json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))
