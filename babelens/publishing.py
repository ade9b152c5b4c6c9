"""Publishes a model: checks its folder, and uploads the result of a training run as one commit. Checkpoints, logs, and
pickles, which are unsafe to load, are left out."""

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, ModelCard, constants
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import filter_repo_objects, httpx, validate_repo_id
from peft import PeftConfig
from peft.utils import CONFIG_NAME, SAFETENSORS_WEIGHTS_NAME
from safetensors.torch import load_file
from transformers import AutoModel, AutoProcessor, ProcessorMixin

from .configuration.configuration_mla import RidgeConfig, VectorSpaceConfig
from .data.corpus.corpus import enumeration
from .inference.onnx.model import GRAPH_FOLDER, SETTINGS_FILE, GraphSettings
from .model_cards.base_models import base_model_facts, check_weights_license
from .model_cards.card_text import CARD, IDENTITY, is_of_another_model, paths_in
from .model_cards.cards import (
    ACQUIRED,
    card_environment,
    language_metadata,
    placeholder_repository,
    render_card,
    requirements,
)
from .model_cards.facts import PIPELINE_TAG, training_run
from .processing.processing_ridge import GLOSSARY_FILE
from .registry import METHODS, dual_encoder_of
from .utils.errors import BabelensError, PublishError, SourceUnavailableError, first_line
from .utils.identity import folder_identity, holds_weights
from .utils.pretrained import check_finite, damaged_files, explained, load_config, load_model, load_processor
from .utils.redaction import names_token, typed_command
from .utils.sentence_files import MODULES_FILE, listed_languages

logger = logging.getLogger(__name__)

# Name patterns that are never published, in any folder; `adapter` is a separate repository.
_UNPUBLISHED = [
    *("checkpoints", "checkpoint-*", "runs", "__pycache__", "complete.json", "adapter", ".*", "*.log"),
    *("*.bin", "*.ckpt", "*.joblib", "*.pickle", "*.pkl", "*.pt", "*.pth"),
]
# Files that may name a path, and those whose tokens may look like one.
_WITH_PATHS = (".md", ".json", ".yaml", ".yml")
_OF_TOKENS = ("tokenizer.json", "vocab.json", "vocabularies.json", "added_tokens.json", "special_tokens_map.json")
# Files that transformers finds by name: it would load an earlier model's instead of the new model's.
_LOADED_BY_NAME = [
    *("model.safetensors", "model-*-of-*.safetensors", "model.safetensors.index.json"),
    *(CONFIG_NAME, SAFETENSORS_WEIGHTS_NAME, GLOSSARY_FILE, ACQUIRED),
]


@dataclass(frozen=True)
class Published:
    """An upload: the address of the commit with the files, and whether it is new."""

    address: str
    changed: bool


def files_to_publish(folder: str | Path) -> dict[str, int]:
    """Returns the paths below a folder that go to the Hub, sorted, with their sizes in bytes."""
    folder = Path(folder)
    found = {path.relative_to(folder): path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    return {path.as_posix(): size for path, size in sorted(found.items()) if not _is_unpublished(path)}


def _is_unpublished(path: Path) -> bool:
    return any(fnmatch(part.lower(), pattern) for part in path.parts for pattern in _UNPUBLISHED)


def _published_texts(folder: Path) -> Iterator[tuple[str, str]]:
    """Yields the names and texts of cards, results and settings."""
    for name in files_to_publish(folder):
        if name.endswith(_WITH_PATHS) and Path(name).name not in _OF_TOKENS:
            yield name, (folder / name).read_text(encoding="utf-8", errors="replace")


# ---- Checks ----


def folder_problems(folder: str | Path) -> list[str]:
    """Returns the problems that prevent publishing a model's folder, one sentence each."""
    folder = Path(folder)
    if not folder.is_dir():
        return [f"{folder} is not a folder"]
    found = [
        f"{path.relative_to(folder)} is a link to {path.resolve()}, outside the folder: put the file itself there"
        for path in sorted(folder.rglob("*"))
        if path.is_symlink()
        and not _is_unpublished(path.relative_to(folder))
        and not path.resolve().is_relative_to(folder.resolve())
    ]
    found += _card_problems(folder)
    found += [
        f"{name} holds a token or a key: remove it, and revoke it if others have seen the file"
        for name, text in _published_texts(folder)
        if names_token(text)
    ]
    found += damaged_files(folder) or [*_missing_files(folder)]
    # The model is loaded last: otherwise its error would repeat which files are missing.
    return found or [*_loading_problems(folder), *_outdated_problems(folder)]


def doubts(folder: str | Path) -> list[str]:
    """Returns what to check before a folder is published, one sentence each: local paths in its files, learned
    languages without results on the card, and a card without a base model."""
    folder = Path(folder)
    texts = _published_texts(folder)
    found = [f"{name} names a path of this machine: {path}" for name, text in texts for path in paths_in(text)]
    if not (folder / "config.json").is_file() or not (folder / CARD).is_file():
        return found
    config, card = _read_json(folder / "config.json"), ModelCard.load(folder / CARD, ignore_metadata_errors=True)
    if config.get("model_type") != RidgeConfig.model_type:
        return found
    rows = {row.split("|")[1].strip() for row in card.text.splitlines() if row.count("|") > 2}
    if unread := [tag for tag in config.get("languages", []) if tag not in rows]:
        found.append(f"{CARD} has no results of {enumeration(unread)}, which the model learned")
    if config.get("base_config") != VectorSpaceConfig.model_type and not card.data.get("base_model"):
        found.append(f"{CARD} has no Hub model as base_model: readers cannot tell what this model is based on")
    return found


def _card_problems(folder: Path) -> Iterator[str]:
    """Yields missing parts of the card; the Hub validates its metadata when it is pushed."""
    if not (folder / CARD).is_file():
        yield f"{CARD} is missing: training and acquiring write it"
        return
    try:
        metadata = ModelCard.load(folder / CARD).data.to_dict()
    except Exception as error:  # whatever YAML and huggingface_hub raise for hand-written metadata
        yield f"{CARD}: {first_line(error)}"
        return
    if not metadata.get("license"):
        yield f"{CARD}: the metadata has no license"
    examples = metadata.get("widget")
    for example in examples if isinstance(examples, list) else ():
        source = example.get("src") if isinstance(example, dict) else None
        if isinstance(source, str) and "://" not in source and not (folder / source).is_file():
            yield f"{CARD}: the widget shows {source!r}, which is missing"


def _missing_files(folder: Path) -> Iterator[str]:
    """The files that the model or the adapter needs but the folder lacks."""
    if (folder / CONFIG_NAME).is_file():
        if not (folder / SAFETENSORS_WEIGHTS_NAME).is_file():
            yield f"{SAFETENSORS_WEIGHTS_NAME} is missing: train mla/adapter writes it"
        key = "base_model_name_or_path"
        place = _read_json(folder / CONFIG_NAME).get(key)
        if isinstance(place, str) and _is_local(place):
            yield f"{CONFIG_NAME}: {key}={place!r} is a local folder: publish it, and use its name on the Hub"
        return
    index, weights = folder / "model.safetensors.index.json", {"model.safetensors"}
    if index.is_file():
        weights = set(_read_json(index)["weight_map"].values())
    needed = dict.fromkeys(("config.json", "processor_config.json", *sorted(weights)), "save_pretrained writes it")
    needed |= {f"{module}.py": f"{file} needs it" for module, file in _modules_needed(folder).items()}
    yield from (f"{file} is missing: {why}" for file, why in needed.items() if not (folder / file).is_file())


def _modules_needed(folder: Path) -> dict[str, str]:
    """The code modules that files of a folder name or import, each with one of these files."""
    found: dict[str, str] = {}
    for name in ("config.json", "processor_config.json"):
        references = _read_json(folder / name).get("auto_map", {}) if (folder / name).is_file() else {}
        found |= {str(reference).partition(".")[0]: name for reference in references.values()}
    if (folder / MODULES_FILE).is_file():
        types = [str(each.get("type")) for each in _read_json(folder / MODULES_FILE)]
        found |= {each.partition(".")[0]: MODULES_FILE for each in types if each.count(".") == 1}
    for path in folder.glob("*.py"):
        text = path.read_text(encoding="utf-8", errors="replace")
        found |= dict.fromkeys(re.findall(r"^\s*from \.(\w+) import", text, re.MULTILINE), path.name)
    return found


def _is_local(place: str) -> bool:
    """Returns whether a path names a local folder, rather than a repository on the Hub or a folder in one."""
    try:
        validate_repo_id("/".join(place.split("/")[:2]))
    except HFValidationError:
        return True
    return Path(place).is_dir()


def _loading_problems(folder: Path) -> list[str]:
    """Loading errors, as other people would see them, and weights that are not finite."""
    try:
        if (folder / CONFIG_NAME).is_file():
            with explained(str(folder), {}):
                PeftConfig.from_pretrained(str(folder))  # the class for this kind of adapter
                check_finite(load_file(folder / SAFETENSORS_WEIGHTS_NAME), folder)
            return []
        config = load_config(folder)
        method = METHODS.get(config.model_type)
        models = {model.__name__: model for model in method.models} if method else {}
        plain: Any = dual_encoder_of(config.model_type) or (method.model if method else AutoModel)
        load_model(models.get((config.architectures or [""])[0], plain), folder)
        load_processor(AutoProcessor, folder)
    except BabelensError as error:
        return [str(error)]
    return []


def _outdated_problems(folder: Path) -> Iterator[str]:
    """Yields the problems of graphs and scores in a folder that belong to another model."""
    if (graphs := folder / GRAPH_FOLDER / SETTINGS_FILE).is_file():
        try:
            settings = GraphSettings.from_file(graphs, str(folder))
            settings.check_weights(folder)
            if settings.model is None and holds_weights(folder):
                yield f"{graphs} does not state which weights the graphs were made of: export the model again"
        except BabelensError as error:
            yield str(error)
    if is_of_another_model(ModelCard.load(folder / CARD).data.to_dict(), folder):
        yield (
            f"{CARD} was written for other weights, or another configuration or processor, than the folder's: "
            f"evaluate the model and write its card again, or remove the results and `{IDENTITY}` from the card"
        )


def _license_problems(folder: Path) -> list[str]:
    """Returns a problem if the license on the card allows what the license of a base model forbids."""
    metadata = ModelCard.load(folder / CARD).data.to_dict()
    names = metadata.get("base_model") or []
    try:
        bases = [base_model_facts(name) for name in ([names] if isinstance(names, str) else names)]
        check_weights_license(metadata["license"], bases)
    except PublishError as error:
        return [f"{CARD}: {error}"]
    return []


# ---- The upload ----


def push(folder: str | Path, repo_id: str, *, private: bool = False, api: HfApi | None = None) -> Published:
    """Publishes a folder as one commit, in a repository that is created if it is missing and the folder has no
    problems. The published card names the repository in its examples; the folder stays unchanged. Repeat the call to
    resume an interrupted upload. Weights of an earlier model in the repository, which transformers would load instead,
    are deleted. If somebody else publishes in the meantime, the later of the two uploads is refused. With `private`, a
    new repository is private; an existing one must already be private."""
    folder = Path(folder)
    if problems := folder_problems(folder) or _license_problems(folder):
        raise PublishError(f"{folder} cannot be published:\n" + "\n".join(f"- {problem}" for problem in problems))
    for sentence in doubts(folder):
        logger.warning("%s", sentence)
    api = api or HfApi()
    names = [*files_to_publish(folder)]
    with upload_errors_explained(str(folder), repo_id, api):
        if api.endpoint == constants.ENDPOINT:
            ModelCard.load(folder / CARD).validate()  # otherwise a refused card would leave an empty repository
        repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        files: dict[str, bytes | Path] = {name: folder / name for name in names}
        files[CARD] = named_card((folder / CARD).read_text("utf-8-sig"), repo_id).encode()
        replaced = () if CONFIG_NAME in names else _LOADED_BY_NAME
        return upload(api, files, repo_id, "Upload model with code and card", private=private, replaced=replaced)


def named_card(card: str, repo_id: str) -> str:
    """Returns the text of a card with the repository's name instead of the placeholder."""
    return re.sub(re.escape(placeholder_repository("")) + r"[\w.-]+", lambda _: repo_id, card)


def upload(
    api: HfApi,
    files: Mapping[str, bytes | Path],
    repo_id: str,
    message: str,
    *,
    private: bool,
    kind: str = "model",
    replaced: Sequence[str] = (),
) -> Published:
    """Uploads files to an existing repository, as one commit on top of its current one, which also deletes other files
    whose names match the patterns `replaced`."""
    before = api.repo_info(repo_id, repo_type=kind)
    if private and not before.private:
        raise PublishError(
            f"{repo_id} exists already and is public: make it private on the Hub, or leave out --private"
        )
    operations: list[Any] = [CommitOperationAdd(name, content) for name, content in files.items()]
    if replaced:
        there = api.list_repo_files(repo_id, repo_type=kind, revision=before.sha)
        old = filter_repo_objects(there, allow_patterns=replaced)
        operations += [CommitOperationDelete(name) for name in old if name not in files]
    commit = api.create_commit(repo_id, operations, commit_message=message, repo_type=kind, parent_commit=before.sha)
    return Published(str(commit.commit_url), changed=commit.oid != before.sha)


@contextmanager
def upload_errors_explained(what: str, repo_id: str, api: HfApi) -> Iterator[None]:
    """Turns an error of `huggingface_hub` during an upload into one sentence that says what to do."""
    failed = f"{what} could not be published as {repo_id} on {api.endpoint}"
    try:
        yield
    except BabelensError:
        raise
    except (httpx.HTTPError, json.JSONDecodeError) as error:
        raise SourceUnavailableError(f"{failed}: {_reason(error)}") from error
    except ValueError as error:  # the card's metadata, and errors of the storage for large files
        reason = " ".join(line.removeprefix("- ") for line in str(error).splitlines())
        raise PublishError(f"{failed}: {reason}") from error
    except RuntimeError as error:  # from the threads that upload large files
        cause = f" ({_reason(error.__cause__)})" if isinstance(error.__cause__, Exception) else ""
        raise SourceUnavailableError(
            f"{failed}: {first_line(error)}{cause} Run the same command again: it skips files that have arrived"
        ) from error


_REASONS = {
    401: "the Hub does not know this token, or was given none: log in with `hf auth login`, or set HF_TOKEN",
    403: "the token may not write there: give it write access at https://huggingface.co/settings/tokens",
    412: "somebody made another commit there in the meantime: look at it, then run the same command again",
}


def _reason(error: Exception) -> str:
    return _REASONS.get(getattr(getattr(error, "response", None), "status_code", 0), first_line(error))


def _read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


# ---- A Space: a Gradio page on which anyone can try the model, by the code in the model's repository ----
# https://huggingface.co/docs/hub/spaces-config-reference

GRADIO = "6.31.0"  # the version that the tests run
_MAX_TITLE = 60
_OF_PAGE = ("torch", "transformers", "PIL")  # packages that app.py needs in addition to the model's code


def space_files(folder: str | Path, model: str) -> dict[str, bytes]:
    """The files of a Space for the repository `model`, by path; the folder's card gives languages and examples."""
    folder = Path(folder)
    if "/" not in model:
        raise PublishError(f"the page of a Space loads {model!r} from the Hub: include the owner, as in owner/{model}")
    if (folder / CONFIG_NAME).is_file():
        raise PublishError(f"{folder} is an adapter, without code that a Space could run: publish a whole model")
    if dual_encoder_of(load_config(folder).model_type) is None:
        raise PublishError(f"{folder} is not a dual encoder: a Space compares images and texts with one")
    metadata = ModelCard.load(folder / CARD).data.to_dict()
    given = metadata.get("language_bcp47") or metadata["language"]
    languages = [given] if isinstance(given, str) else list(given)
    published = files_to_publish(folder)
    examples = [
        [each["src"], each["candidate_labels"].replace(", ", "\n"), each.get("group") or languages[0]]
        for each in metadata.get("widget") or []
        if "candidate_labels" in each and str(PurePosixPath(each.get("src", ""))) in published
    ]
    environment = card_environment()
    facts = {"model": model, "gradio": GRADIO, "languages": languages, "examples": examples}
    facts |= {"title": model.partition("/")[2][:_MAX_TITLE]}
    written = {
        CARD: environment.get_template("space.md.jinja").render(facts),
        "app.py": environment.get_template("space_app.py.jinja").render(facts),
        "requirements.txt": "".join(f"{line}\n" for line in requirements(folder, _OF_PAGE)),
    }
    images = {source: (folder / source).read_bytes() for source, *_ in examples}
    return {path: text.encode() for path, text in written.items()} | images


def push_space(
    folder: str | Path, model: str, space: str, *, private: bool = False, api: HfApi | None = None
) -> Published:
    """Publishes a Space for a folder that is on the Hub as `model`. The repository `space` is created if it is
    missing; with `private`, an existing one must already be private."""
    files, api = space_files(folder, model), api or HfApi()
    with upload_errors_explained(f"the Space of {folder}", space, api):
        space = api.create_repo(space, repo_type="space", space_sdk="gradio", private=private, exist_ok=True).repo_id
        return upload(api, files, space, "Upload a page to try the model", private=private, kind="space")


# ---- The card that transformers' `push_to_hub` uploads with a model, a processor or a trainer ----
# This model's card in the folder that it was loaded from, or else a short card with the class, the languages, how to
# load the model, and for a trainer how it was trained.


def pushed_card(part: Any, repo_id: str, folder: str | Path, trainer: Any = None) -> str | None:
    """The card of a model or a processor that is pushed, maybe by a trainer; None for a class of other packages."""
    config: Any = getattr(part, "config", part)
    if trainer is None:
        tokenizer = getattr(part, "tokenizer", None)
        source = getattr(part, "name_or_path", "") or getattr(tokenizer, "name_or_path", "")
        if kept := _own_card(source, repo_id, folder):
            return kept
    found = [
        (method, model)
        for method in METHODS.values()
        for model in method.models
        if type(part) is model or (isinstance(part, ProcessorMixin) and type(part) is method.processor)
    ]
    if not found:
        return None
    (method, model), name = found[0], repo_id.rpartition("/")[2]
    native = getattr(config, "native_language", None)
    languages = list(dict.fromkeys([*([native] if native else []), *listed_languages(config)]))
    is_dual_encoder = hasattr(model, "get_image_features")
    metadata = {
        **language_metadata(languages),
        "pipeline_tag": PIPELINE_TAG if is_dual_encoder else None,
        "tags": ["babelens", method.name, "vision-language", "multilingual"],
        "model_name": name,
    }
    facts = {
        "name": name,
        "class_name": model.__name__,
        "auto_class": model.auto_classes[0],
        "is_dual_encoder": is_dual_encoder,
        "languages": languages,
        "run": None if trainer is None else _run_of(trainer),
        "metrics": {} if trainer is None else _last_scores(trainer.state.log_history),
    }
    return named_card(str(render_card("plain.md.jinja", metadata, facts)), repo_id)


def _run_of(trainer: Any) -> Any:
    history = trainer.state.log_history
    trained = any("train_runtime" in entry for entry in history)
    return training_run(trainer.args, history, typed_command()) if trained else None


def _last_scores(history: list[dict[str, Any]]) -> dict[str, float]:
    last: dict[str, Any]
    last = next((entry for entry in reversed(history) if any(name.startswith("eval_") for name in entry)), {})
    costs = ("runtime", "per_second", "model_preparation_time")
    return {
        name.removeprefix("eval_"): value
        for name, value in last.items()
        if name.startswith("eval_") and isinstance(value, int | float) and not any(cost in name for cost in costs)
    }


def _own_card(source: str | Path, repo_id: str, saved: str | Path) -> str | None:
    """The card in the folder that a model was loaded from; None if it is not from babelens, or is of another model."""
    path = Path(source, CARD)
    if not str(source) or not path.is_file():
        return None
    metadata = ModelCard.load(path, ignore_metadata_errors=True).data.to_dict()
    pushed = folder_identity(saved, with_processor=False)
    is_other = pushed is not None and pushed != folder_identity(source, with_processor=False)
    if is_other or "babelens" not in (metadata.get("tags") or ()) or is_of_another_model(metadata, source):
        return None
    return named_card(path.read_text(encoding="utf-8-sig"), repo_id)
