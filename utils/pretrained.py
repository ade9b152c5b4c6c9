"""transformers' `from_pretrained` with guarantees: weights are safetensors, complete and finite; a model's code runs
only if the caller allowed it; every problem is one error that names the source and any damaged file."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch
from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import EntryNotFoundError, HFValidationError
from huggingface_hub.utils import httpx, validate_repo_id
from safetensors import safe_open
from tokenizers import Tokenizer, normalizers
from torch import nn
from transformers import (
    AutoConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    Siglip2Tokenizer,
)
from transformers.utils import CONFIG_NAME, SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, logging

from .errors import BabelensError, ModelFolderError, ModelKindError, SourceUnavailableError, first_line
from .files import no_folder, optional_file

# Arguments that `from_pretrained` of configurations and processors has too; the others are only for models.
_WHERE = {"backend", "cache_dir", "code_revision", "force_download", "local_files_only", "proxies", "revision"}
_WHERE |= {"subfolder", "token", "trust_remote_code"}
# Every repository of a model, an adapter or a processor has at least one of these.
_SETTINGS = (
    *("config.json", "adapter_config.json", "tokenizer_config.json", "preprocessor_config.json"),
    "processor_config.json",
)
_KERNELS = ("attn_implementation", "experts_implementation")  # settings that name the kernels of a model's attention
_HUB_ANSWERS_WITHIN = 5.0  # seconds
# Texts that tell how a tokenizer treats case, accents and special tokens.
_PROBES = ("A Red Heart", "ÖL, Café naïve", "ЁЛКА Й", "中文 字")
# The settings of a BERT normalizer in tokenizer.json, by their keys in tokenizer_config.json.
_OF_BERT = {"do_lower_case": "lowercase", "strip_accents": "strip_accents"}
# Keys of tokenizer_config.json for the tokens at the ends of a text.
_ENDS = {"add_bos_token", "add_eos_token"}
_OF_VOCABULARIES = {"backend", "merges", "name_or_path", "tokenizer_class", "tokenizer_file", "vocab"}
_DTYPES = {torch.float64: "F64", torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}
_NAMED = 5  # maximum number of names in a message

logger = logging.get_logger(__name__)


def load_config(source: str | Path, **loading: Any) -> PreTrainedConfig:
    """Loads the configuration of a model; ignores arguments of `from_pretrained` that concern only weights."""
    source, loading = str(source), located(source, **loading)
    with explained(source, loading):
        if not loading["trust_remote_code"]:
            refuse_kernels(PreTrainedConfig.get_config_dict(source, **_where(loading))[0], source)
            refuse_kernels({name: loading.get(name) for name in _KERNELS}, source)
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
    """Loads a model, and checks that its files contain every weight and that all are finite. By default, only
    safetensors are read, and no code of the model runs.

    Args:
        part: returns the part of the model whose weights must be in the files, by default all of it. Other missing
            weights are initialized, and their names added to `untrained`.
        as_stored: keeps the weights whose precision in the files differs from the model's as its `stored_weights`,
            which it saves unchanged.
    """
    source, loading = str(source), {"use_safetensors": True} | located(source, **loading)
    load_config(source, **loading)
    with explained(source, loading):
        for problem in _misplaced_shards(Path(source)):
            raise ModelFolderError(problem)
        model, found = auto_class.from_pretrained(source, **loading | {"output_loading_info": True})
    needed = {id(tensor) for tensor in (part(model) if part else model).state_dict(keep_vars=True).values()}
    tensors = model.state_dict(keep_vars=True)
    if missing := sorted(name for name in found["missing_keys"] if id(tensors.get(name)) in needed):
        raise ModelFolderError(f"{source} lacks the weights {_named(missing)} of {len(tensors)} of the model")
    check_finite(tensors, source)
    if untrained is not None:
        untrained |= found["missing_keys"]
    if as_stored:
        model.stored_weights = _in_other_precision(model, source, loading)
    return model


def load_processor(auto_class: Any, source: str | Path, **loading: Any) -> Any:
    """Loads a processor, tokenizer or image processor. A tokenizer reads texts as its files state (`_as_stated`)."""
    source, loading = str(source), located(source, **loading)
    with explained(source, loading):
        loaded = auto_class.from_pretrained(source, **_where(loading))
        tokenizer = getattr(loaded, "tokenizer", loaded)
        if not isinstance(tokenizer, PreTrainedTokenizerBase):
            return loaded
        if len(tokenizer) <= len(tokenizer.added_tokens_decoder) + 1:
            # Without tokenizer files, transformers builds a tokenizer of special tokens, and maybe a space.
            raise ModelFolderError(f"{source} has no vocabulary: the files of its tokenizer are missing")
        stated = _as_stated(tokenizer, source, {k: v for k, v in _where(loading).items() if k != "backend"})
    if tokenizer is loaded:
        return stated
    loaded.tokenizer = stated
    return loaded


# ---- Tokenizers ----


def _as_stated(tokenizer: Any, source: str, loading: Mapping[str, Any]) -> Any:
    """Returns a tokenizer that reads texts as its files state; other differences than these are warned of. SigLIP 2
    was trained on lower case, even if its tokenizer is loaded as Gemma's. If a BERT's tokenizer.json keeps case or
    accents and tokenizer_config.json does not mention them, tokenizer.json wins. A sentence-transformers embedder may
    state that its texts are lower-cased."""
    if not isinstance(tokenizer, PreTrainedTokenizerFast) or loading.get("subfolder"):
        return tokenizer

    def settings_in(name: str) -> dict[str, Any]:
        file = optional_file(source, name, loading)
        return {} if file is None else json.loads(file.read_text(encoding="utf-8"))

    is_siglip = str(settings_in(CONFIG_NAME).get("model_type", "")).startswith("siglip")
    if is_siglip and type(tokenizer).__name__.startswith("Gemma"):
        return Siglip2Tokenizer.from_pretrained(source, **loading)
    settings, file = settings_in("tokenizer_config.json"), optional_file(source, "tokenizer.json", loading)
    stated = None if file is None else Tokenizer.from_file(str(file))
    own, meant = tokenizer.backend_tokenizer.normalizer, None if stated is None else stated.normalizer
    if isinstance(own, normalizers.BertNormalizer) and isinstance(meant, normalizers.BertNormalizer):
        unsaid = {key: getattr(meant, name) for key, name in _OF_BERT.items() if key not in settings}
        if any(value != getattr(own, _OF_BERT[key]) for key, value in unsaid.items()):
            tokenizer = type(tokenizer).from_pretrained(source, **loading, **unsaid)
    if settings_in("sentence_bert_config.json").get("do_lower_case"):
        normalizer = tokenizer.backend_tokenizer.normalizer
        if normalizer is None or normalizer.normalize_str("AÖ") != normalizer.normalize_str("aö"):
            return _lower_cased(tokenizer)
    if stated is not None:
        _compare(tokenizer, stated, settings, source)
    return tokenizer


def _lower_cased(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """Returns a tokenizer that reads lower case, even after it is saved: its class follows tokenizer.json."""
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    others = [] if backend.normalizer is None else [backend.normalizer]
    backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), *others])
    kept = {key: value for key, value in tokenizer.init_kwargs.items() if key not in _OF_VOCABULARIES}
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, **kept | {"model_input_names": tokenizer.model_input_names}
    )


def _compare(tokenizer: PreTrainedTokenizerFast, stated: Tokenizer, settings: Mapping[str, Any], source: str) -> None:
    """Warns of the first text with other tokens than the files state, without padding, which all-MiniLM's file sets to
    128."""
    for text in _PROBES:
        both = [
            backend.encode(text, add_special_tokens=not _ENDS & settings.keys())
            for backend in (tokenizer.backend_tokenizer, stated)
        ]
        read, meant = ([t for t, real in zip(e.tokens, e.attention_mask, strict=True) if real] for e in both)
        if read != meant:
            logger.warning_once(
                "%s: %s reads %r as %s, tokenizer.json as %s; set tokenizer_class, do_lower_case and strip_accents, "
                "or add_bos_token and add_eos_token in tokenizer_config.json to what the model was trained with",
                *(source, type(tokenizer).__name__, text, str(read), str(meant)),
            )
            return


# ---- Sources ----


def located(source: str | Path, **loading: Any) -> dict[str, Any]:
    """Returns the arguments to load a source with. Code is not trusted unless `loading` says so."""
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
    if _cached(source, loading) is not None or (constants.HF_HUB_OFFLINE and "/" in source):
        return loading
    if "/" not in source:  # only a few old names on the Hub
        raise ModelFolderError(no_folder(source))
    # For a misspelled folder without a network, a download would try each of several files six times.
    url = hf_hub_url(source, _SETTINGS[0], revision=loading.get("revision"))
    try:
        get_hf_file_metadata(url, token=loading.get("token"), timeout=_HUB_ANSWERS_WITHIN)
    except EntryNotFoundError:
        pass  # the repository of an adapter or a tokenizer
    except (OSError, httpx.HTTPError) as error:
        raise _not_on_hub(source, error) from error
    return loading


def refuse_kernels(settings: dict[str, Any], source: str) -> None:
    """Rejects settings that would download an attention kernel from a repository and run it."""
    for key, value in settings.items():
        if isinstance(value, dict):
            refuse_kernels({f"{key}.{inner}": each for inner, each in value.items()}, source)
        elif isinstance(value, str) and "/" in value and any(name in key for name in _KERNELS):
            raise ModelFolderError(
                f"{source}: {key}={value!r} is code from the Hub, which runs only with --trust-remote-code "
                "(trust_remote_code=True)"
            )


def _where(loading: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in loading.items() if name in _WHERE}


def _cached(repository: str, loading: Mapping[str, Any]) -> Path | None:
    where = {name: loading.get(name) for name in ("cache_dir", "revision")}
    found = (try_to_load_from_cache(repository, name, **where) for name in _SETTINGS)
    return next((Path(path).parent for path in found if isinstance(path, str)), None)


# ---- Errors ----


@contextmanager
def explained(source: str, loading: Mapping[str, Any]) -> Iterator[None]:
    """Converts any error while reading a source to one error that names the damaged file, if there is one. A damaged
    file can raise nearly any exception, from `AttributeError` to a panic in the Rust code of tokenizers."""
    try:
        yield
    except (BabelensError, MemoryError, torch.OutOfMemoryError):
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise _explanation(source, error, loading) from error


def _explanation(source: str, error: BaseException, loading: Mapping[str, Any]) -> BabelensError:
    if "trust_remote_code=True" in str(error):
        return ModelFolderError(
            f"{source} needs code that comes with it, which runs only with trust_remote_code=True, or "
            "with --trust-remote-code in commands that have it: read it first"
        )
    if "Unrecognized configuration class" in str(error):
        return ModelKindError(f"{source}: {first_line(error)}")
    folder = Path(source) if Path(source).is_dir() else _cached(source, loading)
    if folder is None and isinstance(error, OSError | httpx.HTTPError):
        return _not_on_hub(source, error)
    if folder is not None and (problems := damaged_files(folder)):
        return ModelFolderError("; ".join(problems))
    if folder is not None and not any((folder / name).is_file() for name in _SETTINGS):
        return ModelFolderError(f"{source} holds no model: there is none of {', '.join(_SETTINGS)} in it")
    reason = shorten(first_line(error), 400, placeholder=" …")
    return ModelFolderError(f"{source} cannot be loaded: {reason} ({type(error).__name__})")


def _not_on_hub(source: str, error: BaseException) -> SourceUnavailableError:
    return SourceUnavailableError(
        f"No folder {source!r} here, and the Hub did not give it: {first_line(error)}. Check the spelling, your "
        "connection, and `hf auth login` for a private repository"
    )


def damaged_files(folder: Path) -> list[str]:
    """Returns one sentence for each damaged file of settings, tokenizer or weights; nothing in the folder is
    executed."""
    inner = [path for path in folder.glob("*/tokenizer*.json") if path.parent.name != "evaluation"]  # has results
    problems: list[str] = []
    for path in sorted([*folder.glob("*.json"), *inner, *folder.glob("*.safetensors")]):
        try:
            if path.suffix == ".safetensors":
                with safe_open(path, framework="pt"):
                    pass
            elif path.name == "tokenizer.json":
                Tokenizer.from_file(str(path))
            elif path.name.endswith(".safetensors.index.json"):
                problems += _misplaced_shards(folder)
            else:
                json.loads(path.read_text(encoding="utf-8"))
        except BaseException as error:  # tokenizers raises the bare `Exception` for any error, or panics
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            problems.append(f"{path} is truncated or damaged ({first_line(error)})")
    return problems


def _misplaced_shards(folder: Path) -> Iterator[str]:
    """Yields one sentence for each file outside of the folder that a weights index names."""
    for index in folder.glob("*.safetensors.index.json"):
        for name in sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())):
            if Path(name).name != name:
                yield f"{index} names weights in {name!r}, which is not a file of this folder"


# ---- Weights ----


def _in_other_precision(model: PreTrainedModel, source: str, loading: Mapping[str, Any]) -> dict[str, torch.Tensor]:
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


def check_finite(weights: Mapping[str, torch.Tensor], source: object) -> None:
    """Checks that weights are free of NaN and infinity."""
    if bad := sorted(name for name, tensor in weights.items() if not _is_finite(tensor)):
        raise ModelFolderError(f"{source} has numbers that are NaN or infinite in {_named(bad)}")


def _is_finite(tensor: torch.Tensor) -> bool:
    if not tensor.is_floating_point():
        return True
    wide = tensor.float() if tensor.element_size() == 1 else tensor  # PyTorch has no isfinite for 8-bit numbers
    return bool(wide.sum().isfinite()) or bool(wide.isfinite().all())  # a sum is fast, but may overflow


def _named(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
