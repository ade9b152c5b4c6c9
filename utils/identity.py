"""Digests that identify models and files in caches, indexes and embeddings. torch is imported only for weights."""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import xxhash

if TYPE_CHECKING:
    from torch import Tensor, nn

# Keys of configurations, processors and tokenizers that do not affect what a model computes; the type of the weights
# is recorded with the weights, and the number of kept dimensions by each user of the digest.
_WITHOUT_INFLUENCE = frozenset(
    """
    _attn_implementation_internal _commit_hash _experts_implementation_internal _name_or_path architectures
    auto_map base_model_name_or_path custom_pipelines dtype inference_mode is_local local_files_only
    matryoshka_dims name_or_path processor_class revision tokenizer_file torch_dtype transformers_version
    truncate_dim
    """.split()  # noqa: SIM905
)
# These change with the calls of a tokenizer, and with the language of a translation tokenizer.
_CHANGING = ("padding", "truncation", "post_processor", "src_lang", "tgt_lang")
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
_CONFIGURATION = ("config.json", "adapter_config.json", "generation_config.json")
_PROCESSOR = (
    *("processor_config.json", "preprocessor_config.json", "tokenizer_config.json", "tokenizer.json", "vocab.json"),
    *("vocab.txt", "vocabularies.json", "glossary.tsv", "merges.txt", "special_tokens_map.json"),
    *("added_tokens.json", "*.model"),
)
# Subfolders of a model's folder with other content, such as the assembled model of an adapter.
_NO_PARTS = ("checkpoint*", "evaluation", "examples", "model", "onnx", "seed-*", ".*")


def model_identity(model: "nn.Module", processor: Any = None, *settings: str) -> str:
    """Returns a digest, 32 hexadecimal digits, of everything that determines the outputs of a model in memory: weights
    (also those in `weight_files`), configuration, adapters, processor, `identity_settings` and `settings`."""
    config, adapters = getattr(model, "config", None), getattr(model, "peft_config", None) or {}
    described = {
        "config": "" if config is None else settings_of(config),
        "adapters": {str(name): settings_of(adapter) for name, adapter in adapters.items()},
        "model": str(getattr(model, "identity_settings", "")),
        "processor": {},
        "settings": settings,
        "files": [file_digest(file) for file in getattr(model, "weight_files", ())],
    }
    if hasattr(processor, "save_pretrained"):
        without_code = {"is_main_process": False} if hasattr(processor, "export_code") else {}  # `HubCodeMixin`
        with TemporaryDirectory() as scratch:
            processor.save_pretrained(scratch, **without_code)
            described["processor"] = _digests(Path(scratch), _PROCESSOR)
    return contents_digest(model.state_dict(), json.dumps(described, sort_keys=True))[:32]


def folder_identity(folder: str | Path, *, with_processor: bool = True) -> str | None:
    """Returns a digest of the files of a model's or an adapter's folder, without loading it; None if it has no
    weights."""
    if not holds_weights(folder):
        return None
    patterns = (*_WEIGHTS, *_CONFIGURATION, *(_PROCESSOR if with_processor else ()))
    return _short(json.dumps(_digests(Path(folder), patterns)), 16)


def holds_weights(folder: str | Path) -> bool:
    return any(any(Path(folder).glob(pattern)) for pattern in _WEIGHTS)


def settings_of(config: Any) -> str:
    """Returns a transformers or PEFT configuration as JSON, without keys that do not affect what a model computes."""
    return _canonical(json.loads(config.to_json_string()) if hasattr(config, "to_json_string") else config.to_dict())


def _digests(folder: Path, patterns: Iterable[str]) -> dict[str, str]:
    subfolders = sorted(path for path in folder.iterdir() if path.is_dir())
    parts = [folder, *(path for path in subfolders if not any(path.match(pattern) for pattern in _NO_PARTS))]
    found = {}
    for file in sorted({file for part in parts for pattern in patterns for file in part.glob(pattern)}):
        # A copy of the image processor, which an ONNX export writes.
        is_copy = file.name == "preprocessor_config.json" and file.with_name("processor_config.json").is_file()
        if file.is_file() and not is_copy:
            found[file.relative_to(folder).as_posix()] = _digest_of(file)
    return found


def _digest_of(file: Path) -> str:
    if file.suffix != ".json":
        return file_digest(file)
    content = json.loads(file.read_text("utf-8"))
    return _short(_canonical({name: value for name, value in content.items() if name not in _CHANGING}))


def _canonical(content: Any) -> str:
    def kept(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {str(key): kept(each) for key, each in value.items() if key not in _WITHOUT_INFLUENCE}
        if isinstance(value, set | frozenset):
            return sorted(map(str, value))
        return [kept(each) for each in value] if isinstance(value, list | tuple) else value

    return json.dumps(kept(content), sort_keys=True, default=str)


def _short(text: str, size: int = 8) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).hexdigest()


def contents_digest(weights: "Mapping[str, Tensor]", settings: str = "", items: Iterable[bytes] = ()) -> str:
    """Returns a digest of weights, settings, and inputs; the order of the weights does not matter."""
    digest = hashlib.sha256(settings.encode())
    for name, value in sorted(weights.items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        add_weights(digest, {name: value})
    for item in items:
        digest.update(len(item).to_bytes(8, "big"))
        digest.update(item)
    return digest.hexdigest()


def add_weights(digest: Any, weights: "Mapping[str, Tensor]") -> None:
    """Updates a `hashlib` digest with the bytes of weights; adapters store such a digest of their embedding."""
    import torch

    for value in weights.values():
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())


def file_digest(file: str | Path) -> str:
    """Returns the XXH3 digest of a file's content, in 32 hexadecimal digits: it detects changes, but not tampering."""
    with open(file, "rb") as content:
        return hashlib.file_digest(content, xxhash.xxh3_128).hexdigest()


def file_state(address: str | Path) -> str:
    """Returns what changes with a file, without reading it: its size and its modification time in ns; for an address
    of fsspec, its size and its ETag, checksum or time, as far as its store has them, or ""."""
    if os.path.exists(address):
        local = os.stat(address)
        return f"{local.st_size} bytes mtime {local.st_mtime_ns}"
    from fsspec.core import url_to_fs

    try:
        system, path = url_to_fs(str(address))
        facts = system.info(path)
    except Exception:  # from any store's client; the code that reads the file reports the problem
        return ""
    told = {str(name).lower().replace("_", "").replace("-", ""): value for name, value in facts.items()}
    marks = ("etag", "md5hash", "contentmd5", "generation", "mtime", "lastmodified", "updated", "created")
    mark = next((f"{name} {told[name]}" for name in marks if told.get(name) is not None), "")
    return f"{told.get('size')} bytes {mark}".rstrip()
