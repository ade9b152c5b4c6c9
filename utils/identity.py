"""What an answer depends on: the identity of a model, and of data.

Whatever is kept on disk for later (caches, indexes, shards of embeddings, ONNX graphs, results) states the identity of
what it was made of, so that it is never taken for that of another model or of other data. A cached answer depends on
more than weights: the number of attention heads, for one, is in no weight.

A model in memory is identified by `model_identity`, what its embeddings of images depend on by `image_identity`, a
model's folder by `folder_identity`, a local file by its size and time of modification (`file_states`), a file
elsewhere by what its store tells of it (`remote_state`), and inputs that are read anyway by their content
(`contents_digest`). torch is imported only where there are weights.
"""

import hashlib
import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol

import xxhash

if TYPE_CHECKING:
    from torch import Tensor, nn

logger = logging.getLogger(__name__)

_PIECE = 1 << 20  # bytes that are read at a time
# Keys of configurations, processors and tokenizers without influence on what a model computes: where it came from,
# what loads it, by which loss it was trained, and how many dimensions of its embeddings are kept, which whoever keeps
# them records. The type of the weights is told with the weights.
_WITHOUT_INFLUENCE = frozenset(
    """
    _attn_implementation_internal _commit_hash _experts_implementation_internal _name_or_path architectures auto_map
    base_model_name_or_path custom_pipelines dtype embedding image_text_loss inference_mode is_local local_files_only
    logit_bias_init_value matryoshka_dims name_or_path processor_class revision tokenizer_file torch_dtype
    transformers_version truncate_dim
    """.split()  # noqa: SIM905
)
_CHANGE_WITH_CALLS = ("padding", "truncation")  # in tokenizer.json
_CHANGE_WITH_LANGUAGE = ("post_processor", "src_lang", "tgt_lang")  # of tokenizers for translation
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
_CONFIGURATION = ("config.json", "adapter_config.json", "generation_config.json")
_PROCESSOR = (
    *("processor_config.json", "preprocessor_config.json", "tokenizer_config.json", "tokenizer.json", "vocab.json"),
    *("vocab.txt", "vocabularies.json", "glossary.tsv", "merges.txt", "special_tokens_map.json"),
    *("added_tokens.json", "*.model"),
)
# Folders in a model's folder that hold other things, such as the assembled model of an adapter.
_NO_PARTS = ("checkpoint*", "evaluation", "examples", "model", "onnx", "seed-*", ".*")
_SEPARATOR = "-"
_DIGESTS = 3  # in the identity of a model

# The parts that embed images, by `model_type`: of models that have a tower for images alone. What is not here may have
# one tower for images and texts.
_IMAGE_PARTS = {
    **dict.fromkeys(
        ("altclip", "chinese_clip", "clip", "metaclip_2", "vision-text-dual-encoder"),
        ("vision_model", "visual_projection"),
    ),
    **dict.fromkeys(("align", "siglip", "siglip2"), ("vision_model",)),
    **dict.fromkeys(("etcl", "mural"), ("vision_model", "image_projection")),
}
_NATIVE = ("mla", "mla_student", "ridge")  # embed images by their `native_model`
_KNOWN_CODE = ("babelens", "torch", "transformers")
# Keys of the configurations of such models that say how texts are embedded, or compared with images.
_OF_TEXTS = ("label_smoothing", "logit_", "shared_text_head", "tasks", "temperature_", "text_", "languages")


class Digest(Protocol):
    """A digest of `hashlib`, such as `hashlib.sha256()`."""

    def update(self, data: bytes, /) -> None: ...


# ---- Models ----


def model_identity(model: "nn.Module", processor: Any = None, *settings: str) -> str:
    """The identity of a model in memory with its processor: what its answers depend on, other than their inputs.

    Args:
        model: the model. Its configuration, with those of its towers, is `config`. A model that keeps weights in files
            of its own names them in `weight_files`; what its answers further depend on stands in `identity_settings`.
        processor: its processor, tokenizer or image processor.
        settings: whatever else its answers depend on.

    Returns:
        Three digests, joined by hyphens: of the weights and the image processor, which earlier versions had alone; of
        the configuration, the adapters, the processor and `settings`; and of the versions of the code.
    """
    image_processor = getattr(processor, "image_processor", None)
    config, adapters = getattr(model, "config", None), getattr(model, "peft_config", None) or {}
    described = {
        "config": "" if config is None else settings_of(config),
        "adapters": {str(name): settings_of(adapter) for name, adapter in adapters.items()},
        "model": str(getattr(model, "identity_settings", "")),
        "processor": _saved_settings(processor),
        "settings": settings,
    }
    return _identity(
        image_processor.to_json_string() if image_processor else "",
        model.state_dict(),
        getattr(model, "weight_files", ()),
        described,
        code_of(model, processor),
    )


def image_identity(model: "nn.Module", processor: Any) -> str:
    """The identity of a model as far as its embeddings of images depend on it: of the weights and the configuration of
    what embeds images, of the image processor, and of their code. A language that is added, or a glossary that is
    corrected, leaves it as it is.

    It is the identity of the whole model where what embeds images is not known, such as of code that came with a model
    or of one tower for images and texts.

    Args:
        model, processor: as in `model_identity`.
    """
    native: Any = model
    if _is_known(model) and getattr(native.config, "model_type", "") in _NATIVE:
        native = getattr(model, "native_model", model)
    names = _IMAGE_PARTS.get(getattr(native.config, "model_type", ""), ())
    parts = {name: getattr(native, name) for name in names if hasattr(native, name)}  # graphs have no parts
    image_processor = getattr(processor, "image_processor", None)
    modules = [module for part in parts.values() for module in part.modules()]
    if not parts or not all(map(_is_known, (native, processor, image_processor, *modules))):
        return model_identity(model, processor)
    weights = {f"{name}.{key}": value for name, part in parts.items() for key, value in part.state_dict().items()}
    config = {key: value for key, value in _content_of(native.config).items() if not key.startswith(_OF_TEXTS)}
    described = {
        "config": _canonical(config),
        "image_processor": f"{type(image_processor).__name__} {settings_of(image_processor)}",
    }
    return _identity("", weights, (), described, code_of(native.config, image_processor, *modules))


def index_identity(model: "nn.Module", processor: Any) -> str:
    """What an index of embeddings of images states: the identity of the model, which earlier versions stated alone,
    and that of its embeddings of images, where that is another (`image_identity`)."""
    of_all, of_images = model_identity(model, processor), image_identity(model, processor)
    return of_all if of_all == of_images else f"{of_all}{_SEPARATOR}{of_images}"


def _identity(
    image_processor: str, weights: "Mapping[str, Tensor]", files: Iterable[str | Path], described: Any, code: str
) -> str:
    digest = hashlib.blake2b(image_processor.encode(), digest_size=12)
    add_weights(digest, weights, lambda name, value: f"{name} {value.dtype}")
    for file in files:
        digest.update(file_digest(file).encode())
    return _SEPARATOR.join((digest.hexdigest(), _short(json.dumps(described, sort_keys=True)), code))


def _is_known(part: Any) -> bool:
    return type(part).__module__.partition(".")[0] in _KNOWN_CODE


def is_same_model(stored: str, found: str, called: str) -> bool:
    """Whether an identity on disk is that of a model (`model_identity`), or of its embeddings of images, where both
    state it (`index_identity`).

    An identity that an earlier version wrote, of weights and image processor alone, or one with other versions of the
    code, passes with a warning.

    Args:
        stored: the identity on disk.
        found: that of the model.
        called: what the warning calls the place of the stored one.
    """
    there, here = stored.split(_SEPARATOR), found.split(_SEPARATOR)
    compared = slice(_DIGESTS, None) if len(there) == len(here) == 2 * _DIGESTS else slice(_DIGESTS)
    there, here = there[compared], here[compared]
    if there == here:
        return True
    is_older = len(there) == 1 or len(here) == 1
    if there[0] != here[0] or not (is_older or there[1:2] == here[1:2]):
        return False
    if is_older:
        logger.warning(
            "%s was written by an earlier version, which recorded the weights and the image processor alone: whether "
            "the configuration and the tokenizer are the same is not known. Build it again to be sure",
            called,
        )
    else:
        logger.warning("%s was computed with other versions of babelens or transformers, by the same weights", called)
    return True


def folder_identity(folder: str | Path, *, with_processor: bool = True) -> str | None:
    """The identity of the model in a folder: a digest of its weights and its configuration, in 32 hexadecimal digits.
    None for a folder without weights. The files are read, and no model is loaded.

    Args:
        folder: the folder of a model or of an adapter.
        with_processor: whether the processor and the tokenizers belong to it.
    """
    folder = Path(folder)
    if not holds_weights(folder):
        return None
    return _short(
        json.dumps(_digests(folder, (*_WEIGHTS, *_CONFIGURATION, *(_PROCESSOR if with_processor else ())))), 16
    )


def holds_weights(folder: str | Path) -> bool:
    """Whether there are weights in a folder."""
    return any(any(Path(folder).glob(pattern)) for pattern in _WEIGHTS)


def check_free(output: str | Path) -> None:
    """Checks that no model would be overwritten.

    Raises:
        FileExistsError: for a folder with a model.
    """
    if holds_weights(output):
        raise FileExistsError(f"{output} holds a model already: choose another folder")


def settings_of(config: Any) -> str:
    """A configuration of transformers or PEFT as JSON, without what has no influence on what a model computes."""
    return _canonical(_content_of(config))


def _content_of(config: Any) -> dict[str, Any]:
    content: dict[str, Any] = (
        json.loads(config.to_json_string()) if hasattr(config, "to_json_string") else config.to_dict()
    )
    return content


def code_of(*parts: Any) -> str:
    """A digest of the code that computes: the versions of the packages that have the classes of a model, its modules
    and its processor; of code that came with a model, its content."""
    kinds = {type(part) for part in parts} | {type(each) for part in parts for each in _members(part)}
    return _short("\n".join(sorted({_version_of(kind) for kind in kinds})), 4)


def _members(part: Any) -> Iterable[Any]:
    if hasattr(part, "modules"):
        return part.modules()
    return [each for each in getattr(part, "__dict__", {}).values() if hasattr(each, "save_pretrained")]


def _version_of(kind: type) -> str:
    name = kind.__module__
    package = name.partition(".")[0]
    if package in ("builtins", "torch"):
        return ""
    version = getattr(sys.modules.get(package), "__version__", None)
    if version is not None:
        return f"{package} {version}"
    beside = f"{name.rpartition('.')[0]}."
    files = {
        getattr(module, "__file__", None)
        for other, module in list(sys.modules.items())
        if other == name or (beside != "." and other.startswith(beside))
    }
    return " ".join(sorted(file_digest(file) for file in files if file and os.path.isfile(file)))


def _saved_settings(processor: Any) -> dict[str, str]:
    """What a processor or tokenizer saves: the digest of each file by its name."""
    if not hasattr(processor, "save_pretrained"):
        return {}
    without_code = {"is_main_process": False} if hasattr(processor, "export_code") else {}  # `HubCodeMixin`
    with TemporaryDirectory() as scratch:
        processor.save_pretrained(scratch, **without_code)
        return _digests(Path(scratch), _PROCESSOR, _CHANGE_WITH_LANGUAGE if hasattr(processor, "src_lang") else ())


def _digests(folder: Path, patterns: Iterable[str], unread: Iterable[str] = ()) -> dict[str, str]:
    """The digests of files in a folder and in the folders in it, by name; of JSON, without the keys `unread`."""
    subfolders = sorted(path for path in folder.iterdir() if path.is_dir())
    parts = [folder, *(path for path in subfolders if not any(path.match(pattern) for pattern in _NO_PARTS))]
    found = {}
    for file in sorted({file for part in parts for pattern in patterns for file in part.glob(pattern)}):
        # The same image processor once more, which an export to ONNX writes.
        is_copy = file.name == "preprocessor_config.json" and file.with_name("processor_config.json").is_file()
        if file.is_file() and not is_copy:
            found[file.relative_to(folder).as_posix()] = _digest_of(file, unread)
    return found


def _digest_of(file: Path, unread: Iterable[str]) -> str:
    try:
        content = json.loads(file.read_text("utf-8")) if file.suffix == ".json" else None
    except ValueError:  # whoever loads it says what is wrong
        content = None
    if content is None:
        return file_digest(file)
    if isinstance(content, dict):
        changing = (*unread, *(_CHANGE_WITH_CALLS if file.name == "tokenizer.json" else ()))
        content = {name: value for name, value in content.items() if name not in changing}
    return _short(_canonical(content))


def _canonical(content: Any) -> str:
    return json.dumps(_with_influence(content), sort_keys=True, default=_as_json)


def _as_json(value: Any) -> Any:
    return sorted(map(str, value)) if isinstance(value, set | frozenset) else str(value)


def _with_influence(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _with_influence(each) for key, each in value.items() if key not in _WITHOUT_INFLUENCE}
    return [_with_influence(each) for each in value] if isinstance(value, list | tuple) else value


def _short(text: str, size: int = 8) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).hexdigest()


# ---- Weights ----


def add_weights(
    digest: Digest, weights: "Mapping[str, Tensor]", describe: "Callable[[str, Tensor], str] | None" = None
) -> None:
    """Updates a digest with the bytes of weights, one after another in the order of the mapping.

    Adapters that exist name a digest of their embedding, and indexes one of their model, which differ in the
    algorithm, in the order of the weights and in what is added of each weight beside its bytes. Callers choose these
    and must not change them.

    Args:
        digest: is updated.
        weights: by name; on any device, of any data type.
        describe: returns a text about a weight, from its name and its value, that is added before its bytes.
    """
    import torch

    for name, value in weights.items():
        if describe is not None:
            digest.update(describe(name, value).encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())


def contents_digest(weights: "Mapping[str, Tensor]", settings: str = "", items: Iterable[bytes] = ()) -> str:
    """A digest of weights, by name, of settings, and of inputs; the order of the weights does not matter."""
    digest = hashlib.sha256(settings.encode())
    in_order = dict(sorted(weights.items()))
    add_weights(digest, in_order, lambda name, value: f"{name} {value.dtype} {tuple(value.shape)}")
    for item in items:
        digest.update(len(item).to_bytes(8, "big"))
        digest.update(item)
    return digest.hexdigest()


# ---- Files ----


def file_digest(file: str | Path) -> str:
    """The XXH3 digest of a file's content, in 32 hexadecimal digits: it finds changes, and does not resist attacks."""
    digest = xxhash.xxh3_128()
    with open(file, "rb") as content:
        while piece := content.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def state_of(facts: os.stat_result) -> tuple[int, int]:
    """By which a file is recognized that is not read: its size in bytes, and its time of modification in
    nanoseconds."""
    return facts.st_size, facts.st_mtime_ns


def file_states(files: Iterable[Path]) -> list[tuple[str, int, int]]:
    """The path of each file with its state (`state_of`)."""
    return [(str(file.absolute()), *state_of(file.stat())) for file in files]


def remote_state(address: str) -> str:
    """By which a file is recognized at an address of fsspec: its size, and its ETag, checksum or time of modification,
    as far as the store tells them; empty where it tells nothing, such as of a file that is not there."""
    from fsspec.core import url_to_fs

    try:
        system, path = url_to_fs(address)
        facts = system.info(path)
    except Exception:  # of any store's client; whoever reads the file says what is wrong
        return ""
    told = {str(name).lower().replace("_", "").replace("-", ""): value for name, value in facts.items()}
    marks = ("etag", "md5hash", "contentmd5", "generation", "mtime", "lastmodified", "updated", "created")
    mark = next((f"{name} {told[name]}" for name in marks if told.get(name) is not None), "")
    return f"{told.get('size')} bytes {mark}".rstrip()
