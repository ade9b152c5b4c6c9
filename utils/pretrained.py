"""Loads models, processors and configurations that others have saved, from a folder or from the Hub.

This does what transformers' `from_pretrained` does, with guarantees that it does not give: weights are safetensors,
complete and finite; code that comes with a model runs only if the caller allowed it, and there is no question on the
terminal; a Hub that does not answer is given up after seconds; and whatever is wrong is one `ModelFolderError`, which
names the problem and the file.
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from textwrap import shorten
from typing import Any

import huggingface_hub.constants
import torch
from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import EntryNotFoundError, HFValidationError, RepositoryNotFoundError
from huggingface_hub.utils import httpx, validate_repo_id
from PIL import Image
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer
from torch import nn
from transformers import AutoConfig, BaseImageProcessor, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

from .errors import (
    BabelensError,
    HubUnreachableError,
    ModelFolderError,
    ModelKindError,
    UntrustedCodeError,
    first_line,
    is_of_a_file,
    named,
    no_folder,
)
from .hub_code import KERNELS, optional_file, refuse_kernels
from .tokenizer_files import as_stated

# Arguments that `from_pretrained` of configurations and processors has too; others concern models alone.
_WHERE = {"backend", "cache_dir", "code_revision", "force_download", "local_files_only", "proxies", "revision"}
_WHERE |= {"subfolder", "token", "trust_remote_code"}
# Every repository of a model, an adapter or a processor has at least one of these.
_SETTINGS = (
    "config.json",
    "adapter_config.json",
    "tokenizer_config.json",
    "preprocessor_config.json",
    "processor_config.json",
)
OF_TOKENIZERS = ("tokenizer_config.json", "tokenizer.json")
_OF_IMAGES = ("processor_config.json", "preprocessor_config.json")
READERS = (*OF_TOKENIZERS, *_OF_IMAGES)
_HUB_ANSWERS_WITHIN = 5.0  # seconds
_LONGEST_REASON = 500  # characters

logger = logging.getLogger(__name__)


def load_config(source: str | Path, **loading: Any) -> PreTrainedConfig:
    """Loads the configuration of a model.

    Args:
        source: a folder, or a repository of the Hub.
        loading: arguments of `from_pretrained`; those that concern weights only are ignored.

    Raises:
        ModelFolderError: if there is no configuration that can be read.
        UntrustedCodeError: if it needs code that comes with it, without `trust_remote_code=True`.
    """
    source, loading = str(source), located(source, **loading)
    with explained(source, loading):
        if not loading["trust_remote_code"]:
            refuse_kernels(PreTrainedConfig.get_config_dict(source, **_where(loading))[0], source)
        return AutoConfig.from_pretrained(source, **_where(loading))


def load_model(
    auto_class: Any,
    source: str | Path,
    *,
    part: Callable[[PreTrainedModel], nn.Module] | None = None,
    untrained: set[str] | None = None,
    as_stored: bool = False,
    **loading: Any,
) -> PreTrainedModel:
    """Loads a model, and checks that every weight was in its files and is finite.

    Args:
        auto_class: `AutoModel`, another Auto class, or a model class.
        source: a folder, or a repository of the Hub.
        part: returns the part of the model whose weights must be in the files; by default, all weights must. Other
            weights that are missing are initialized, such as those of a head before fine-tuning.
        untrained: receives the names of the weights that the files lack, outside of `part`.
        as_stored: keeps the weights that the files hold in another precision than the model's as its
            `stored_weights`: a model that carries this one writes them as they are.
        loading: arguments of `from_pretrained`. By default, only safetensors are read, and `trust_remote_code` is off.

    Raises:
        ModelFolderError: if there is no such folder or repository, or one of its files is missing or damaged.
        UntrustedCodeError: if the model needs code that comes with it.
        ModelKindError: if the Auto class has no model of this kind.
    """
    source, loading = str(source), {"use_safetensors": True} | located(source, **loading)
    if not loading["trust_remote_code"]:
        refuse_kernels({name: loading.get(name) for name in KERNELS}, source)
    load_config(source, **loading)
    if problems := misplaced_shards(Path(source)):
        raise ModelFolderError(_together(problems))
    with explained(source, loading, weights=True), without_report(*_ERRORS if part is None else ()):
        options = {"ignore_mismatched_sizes": True} | loading | {"output_loading_info": True}
        model, found = auto_class.from_pretrained(source, **options)
    if not loading.get("ignore_mismatched_sizes"):
        _check_shapes(model, found["mismatched_keys"], source)
    _check_weights(model, found["missing_keys"], part or (lambda whole: whole), source)
    if untrained is not None:
        untrained |= found["missing_keys"]
    if as_stored:
        model.stored_weights = _in_other_precision(model, source, loading)
    return model


def load_processor(auto_class: Any, source: str | Path, **loading: Any) -> Any:
    """Loads a processor, tokenizer or image processor, whichever the Auto class loads.

    A tokenizer reads texts as its files state (`as_stated`). Arguments and errors are those of `load_config`; it is an
    error, too, if the tokenizer has no vocabulary.
    """
    source, loading = str(source), located(source, **loading)
    with explained(source, loading, files=READERS):
        loaded = auto_class.from_pretrained(source, **_where(loading))
    tokenizer = getattr(loaded, "tokenizer", loaded)
    if isinstance(tokenizer, PreTrainedTokenizerBase) and len(tokenizer) <= len(tokenizer.added_tokens_decoder) + 1:
        # From a folder without the files of a tokenizer, transformers makes one of special tokens alone, to which
        # some kinds add the mark of a space.
        raise ModelFolderError(
            f"{source} has no vocabulary: the files of its tokenizer, such as tokenizer.json, are missing"
        )
    with explained(source, loading, files=OF_TOKENIZERS):
        stated = as_stated(tokenizer, source, {k: v for k, v in _where(loading).items() if k != "backend"})
    if tokenizer is loaded:
        return stated
    if stated is not tokenizer:
        loaded.tokenizer = stated
    return loaded


def check_reading(processor: Any, source: str | Path) -> None:
    """Checks that the parts of a processor read a text and an image, as settings of a wrong kind let them not.

    Raises:
        ModelFolderError: if one does not; the message names the files that may be damaged.
    """

    for part in list(vars(processor).values()):
        if isinstance(part, PreTrainedTokenizerBase):
            read, files = partial(_read_text, part), OF_TOKENIZERS
        elif isinstance(part, BaseImageProcessor):
            read, files = partial(part, Image.new("RGB", (64, 64))), _OF_IMAGES
        else:
            continue
        with explained(str(source), {}, files=files):
            read()


def _read_text(tokenizer: PreTrainedTokenizerBase) -> None:
    """Reads a text, and leaves the tokenizer as it was: how a fast one last cut and padded texts is saved with it."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    truncation, padding = (None, None) if backend is None else (backend.truncation, backend.padding)
    tokenizer(["a", "a a"], truncation=True, padding=True, verbose=False)
    if backend is not None:
        backend.no_truncation() if truncation is None else backend.enable_truncation(**truncation)
        backend.no_padding() if padding is None else backend.enable_padding(**padding)


def located(source: str | Path, **loading: Any) -> dict[str, Any]:
    """Returns the arguments to load a source with, after checking where the source is.

    Code is not trusted unless `loading` says so. If the Hub does not answer, a copy that was downloaded before is
    used.

    Raises:
        ModelFolderError: if the source is neither a folder nor a repository of the Hub.
        HubUnreachableError: if the Hub does not answer, and there is no copy.
    """
    loading = {"trust_remote_code": False} | {name: value for name, value in loading.items() if value is not None}
    source = str(source)
    if Path(source).is_dir() or loading.get("local_files_only"):
        return loading
    if Path(source).exists():
        raise ModelFolderError(f"{source} is a file: name the folder that holds the model")
    try:
        validate_repo_id(source)
    except HFValidationError:
        raise ModelFolderError(no_folder(source)) from None
    if "/" not in source:  # of the Hub's names, only a few old ones, which were downloaded before
        if not _cached(source, loading):
            raise ModelFolderError(no_folder(source))
        return loading | {"local_files_only": True}
    reason = _why_not_on_hub(source, loading.get("revision"), loading.get("token"))
    if reason is None:
        return loading
    if not _cached(source, loading):
        raise HubUnreachableError(
            f"No folder {source!r} here, and the Hugging Face Hub could not be asked: {reason}. Check the spelling or "
            "your connection"
        )
    logger.warning("%s: %s; the copy that was downloaded before is used", source, reason)
    return loading | {"local_files_only": True}


@contextmanager
def explained(
    source: str, loading: Mapping[str, Any], *, weights: bool = False, files: Sequence[str] = ()
) -> Iterator[None]:
    """Turns any error while a source is read into one `ModelFolderError` that names the file.

    A damaged file can raise nearly any exception, from `AttributeError` to the bare `Exception` of tokenizers.

    Args:
        source: folder or repository that is read.
        loading: the arguments it is read with.
        weights: whether weights are read, and not only settings.
        files: the names of the files that are read, to be got again if nothing else is known.
    """
    try:
        yield
    except (BabelensError, MemoryError, torch.OutOfMemoryError):
        raise
    except BaseException as error:
        if not is_of_a_file(error):
            raise
        raise _explanation(source, error, loading, weights, files) from error


# ---- Where a source is ----


def _where(loading: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in loading.items() if name in _WHERE}


def _why_not_on_hub(repository: str, revision: str | None, token: Any) -> str | None:
    """Returns why the Hub could not be asked for a repository, or `None` if it answered.

    Raises:
        ModelFolderError: if the Hub has no such repository.
    """
    if huggingface_hub.constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    hub = huggingface_hub.constants.ENDPOINT
    try:  # one request, without the retries of a download
        answer = get_hf_file_metadata(
            hf_hub_url(repository, _SETTINGS[0], revision=revision), token=token, timeout=_HUB_ANSWERS_WITHIN
        )
        if answer.commit_hash is None:
            return f"{hub} did not answer as the Hub does, but as some other server"
    except EntryNotFoundError:
        return None  # the repository of an adapter or a tokenizer
    except RepositoryNotFoundError as error:
        raise ModelFolderError(
            f"No folder {repository!r} here, and no repository of that name on the Hub ({hub}), or a private one: "
            "`hf auth login`"
        ) from error
    except (OSError, httpx.HTTPError, ValueError) as error:
        return f"{hub} did not answer as the Hub does ({first_line(error)})"
    return None


def _cached(repository: str, loading: Mapping[str, Any]) -> Path | None:
    """Returns the folder to which files of a repository were downloaded before, or `None`."""
    where = {name: loading.get(name) for name in ("cache_dir", "revision")}
    for name in _SETTINGS:
        path = try_to_load_from_cache(repository, name, **where)
        if isinstance(path, str):
            return Path(path).parent
    return None


# ---- What went wrong ----


def _explanation(
    source: str, error: BaseException, loading: Mapping[str, Any], weights: bool, files: Sequence[str]
) -> BabelensError:
    message = str(error)
    folder = Path(source) if Path(source).is_dir() else _cached(source, loading)
    if "trust_remote_code=True" in message:
        return UntrustedCodeError(
            f"{source} needs code that comes with it, which runs only with --trust-remote-code "
            "(trust_remote_code=True): read it first"
        )
    if "Unrecognized configuration class" in message:
        return ModelKindError(f"{source}: {first_line(error)}")
    if isinstance(error, httpx.HTTPError) and not Path(source).is_dir():
        return HubUnreachableError(f"{source} could not be fetched: {first_line(error)}")
    if folder is not None:
        if problems := damaged_files(folder):
            return ModelFolderError(_together(problems))
        if not any((folder / name).is_file() for name in _SETTINGS):
            return ModelFolderError(f"{source} holds no model: there is none of {', '.join(_SETTINGS)} in it")
        if weights and not any(folder.glob("*.safetensors")) and loading.get("use_safetensors"):
            pickles = sorted(path.name for path in folder.glob("*.bin"))
            return ModelFolderError(
                f"{source} has its weights in {named(pickles)}, a pickle, which can run code while it is loaded; from "
                "somebody you trust, load it in Python with use_safetensors=False and save it again"
                if pickles
                else f"{source} has no weights: no model.safetensors"
            )
    reason = shorten(first_line(error), _LONGEST_REASON, placeholder=" …")
    present = [name for name in files if folder is not None and (folder / name).is_file()]
    again = f" ({type(error).__name__}); get {' and '.join(present)} again, or save them again" if present else ""
    return ModelFolderError(f"{source} cannot be loaded: {reason}{again}")


def _together(problems: list[str]) -> str:
    return "; ".join(problems)


# ---- Weights ----

_DTYPES = {torch.float64: "F64", torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}


def _in_other_precision(model: PreTrainedModel, source: str, loading: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Returns the weights that the files of a model hold in another precision than it was loaded in."""
    names = {SAFE_WEIGHTS_NAME}
    if index := optional_file(source, SAFE_WEIGHTS_INDEX_NAME, loading):
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    own, found = model.state_dict(), {}
    for path in filter(None, (optional_file(source, name, loading) for name in sorted(names))):
        with safe_open(path, framework="pt") as file:
            for name in own.keys() & set(file.keys()):
                stored = file.get_slice(name).get_dtype()
                if stored in _DTYPES.values() and stored != _DTYPES.get(own[name].dtype):
                    found[name] = file.get_tensor(name)
    return found


_ERRORS = ("MISSING", "MISMATCH")  # in a report of weights: these are errors of our own


@contextmanager
def without_report(*words: str) -> Iterator[None]:
    """Hides transformers' tables of weights that were missing or left over, if they have one of `words` in them."""

    def is_kept(record: logging.LogRecord) -> bool:
        return not any(word in record.getMessage() for word in words)

    report = logging.getLogger("transformers.modeling_utils")
    report.addFilter(is_kept)
    try:
        yield
    finally:
        report.removeFilter(is_kept)


def _check_shapes(model: PreTrainedModel, mismatched: set[tuple[str, Any, Any]], source: str) -> None:
    if mismatched:
        name, stored, needed = sorted(mismatched)[0]
        raise ModelFolderError(
            f"{source}: {len(mismatched)} weights have other shapes than {type(model).__name__} as it is configured; "
            f"{name} has {list(stored)}, and should have {list(needed)}"
        )


def _check_weights(
    model: PreTrainedModel, missing: set[str], part: Callable[[PreTrainedModel], nn.Module], source: str
) -> None:
    needed = {id(tensor) for tensor in part(model).state_dict(keep_vars=True).values()}
    tensors = model.state_dict(keep_vars=True)
    if lacking := sorted(name for name in missing if name in tensors and id(tensors[name]) in needed):
        raise ModelFolderError(
            f"{source} lacks the weights {named(lacking)} of {len(tensors)} that {type(model).__name__} has"
        )
    if bad := sorted(name for name, tensor in tensors.items() if not is_finite(tensor)):
        raise ModelFolderError(f"{source} has numbers that are NaN or infinite in {named(bad)}")


# ---- Model folders ----
# Checks of the files in a model's folder: each problem is one sentence. Nothing in the folder is executed.

_LFS_POINTER = b"version https://git-lfs"
_INDEX = "*.safetensors.index.json"
_MAPPINGS = ("config.json", "processor_config.json", "tokenizer_config.json", "adapter_config.json")
# What `tokenizer_config.json` may have under these keys.
_TOKEN = (str, dict, type(None))
_KINDS: dict[str, tuple[type, ...]] = {
    **{f"{name}_token": _TOKEN for name in ("bos", "cls", "eos", "mask", "pad", "sep", "unk")},
    "added_tokens_decoder": (dict,),
    "additional_special_tokens": (list, type(None)),
    "extra_special_tokens": (list, dict, type(None)),
    "model_input_names": (list, type(None)),
    "model_max_length": (int, float, type(None)),
    "tokenizer_class": (str, type(None)),
}


def damaged_files(folder: Path) -> list[str]:
    """Returns the problems of the settings, the tokenizer and the weights in a folder, one sentence for each file."""
    inner = (
        path for path in sorted(folder.glob("*/tokenizer*.json")) if path.parent.name != "evaluation"
    )  # of results
    settings = [*sorted(folder.glob("*.json")), *inner]
    problems = [problem for path in settings if (problem := _damaged_json(path))]
    problems += [problem for path in sorted(folder.glob("*.safetensors")) if (problem := _damaged_weights(path))]
    return problems + misplaced_shards(folder)


def misplaced_shards(folder: Path) -> list[str]:
    """Returns one sentence for each file outside of the folder that an index of weights names."""
    problems = []
    for index in sorted(folder.glob(_INDEX)):
        try:
            names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        except (ValueError, KeyError, TypeError, AttributeError):
            problems.append(f"{index} is not an index of weights: it has no weight_map from names to files")
            continue
        strangers = sorted(str(name) for name in names if not isinstance(name, str) or Path(name).name != name)
        problems += [f"{index} names weights in {name!r}, which is not a file of this folder" for name in strangers]
    return problems


def non_finite_weights(folder: Path) -> list[str]:
    """Returns one sentence for each file of weights that holds NaN or infinite values.

    Raises:
        ModelFolderError: if a file cannot be read.
    """
    problems = []
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, framework="pt") as file:
                bad = [name for name in file.keys() if not is_finite(file.get_tensor(name))]  # noqa: SIM118
        except SafetensorError as error:
            raise ModelFolderError(_damaged_weights(path) or f"{path}: {error}") from error
        if bad:
            problems.append(f"{path} has numbers that are NaN or infinite in {named(bad)}")
    return problems


def is_finite(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor holds neither NaN nor infinity; integers and booleans never do."""
    if not tensor.is_floating_point():
        return True
    wide = tensor.float() if tensor.element_size() == 1 else tensor  # PyTorch has no isfinite for 8-bit numbers
    # If the sum is finite, all numbers are, and it is fast to compute; a sum that is not finite may have overflowed.
    return bool(wide.sum().isfinite()) or bool(wide.isfinite().all())


def _damaged_json(path: Path) -> str | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        return f"{path} {_mistaken(path) or f'is truncated or damaged ({error})'}"
    if path.name == "tokenizer.json":
        try:
            Tokenizer.from_file(str(path))
        except BaseException as error:  # tokenizers raises the bare `Exception` for any error
            if not is_of_a_file(error):
                raise
            return f"{path} is not a tokenizer ({error})"
    elif path.name in _MAPPINGS and not isinstance(content, dict):
        return f"{path} holds no settings: they must be a JSON object"
    elif path.name == "tokenizer_config.json":
        wrong = [name for name, kinds in _KINDS.items() if name in content and not isinstance(content[name], kinds)]
        if wrong:
            given = ", ".join(f"{name} = {shorten(json.dumps(content[name]), 40)}" for name in wrong)
            return f"{path} has values of a wrong kind ({given}); get it again, or save the tokenizer again"
    return None


def _damaged_weights(path: Path) -> str | None:
    try:
        with safe_open(path, framework="pt") as file:
            file.keys()
    except (SafetensorError, OSError) as error:
        return f"{path} {_mistaken(path) or f'is truncated or damaged ({error})'}; get it again"
    return None


def _mistaken(path: Path) -> str | None:
    """Returns what a file contains if that is known not to be what its name says, else `None`."""
    with path.open("rb") as file:
        start = file.read(512).lstrip()
    if not start:
        return "is empty"
    if start.startswith(_LFS_POINTER):
        return "is a pointer of git-lfs in the place of the file (`git lfs pull` fetches it)"
    if start[:1] == b"<":
        return "is a web page in the place of the file"
    return None
