"""The description of a model for mteb (`ModelMeta`), from the files of the model's folder or repository."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

import langcodes
from huggingface_hub import ModelCard

from ..inference.embedder import Embedder
from ..utils.errors import InputError, MissingExtraError
from ..utils.hub_code import optional_file
from ..utils.identity import model_identity

try:
    import mteb as mteb
    from mteb.languages import check_language_code
    from mteb.models import ModelMeta
    from mteb.models.abs_encoder import AbsEncoder as AbsEncoder
    from mteb.types import Licenses
except ModuleNotFoundError as error:
    raise MissingExtraError("mteb is not installed, on whose tasks models are measured: pip install mteb") from error

_CODE = "https://github.com/babelens/babelens"
_HUB = "https://huggingface.co/"
_SCRIPTS = {"Kore": "Hang"}  # as mteb writes Korean
_LOCAL = "local"  # the owner of models that are in a folder
_UNLIMITED = 10**9  # of tokenizers that state no length, `model_max_length` is larger


class LoadableMeta(ModelMeta):
    """A description whose model is loaded by babelens, which needs none of mteb's extras for images."""

    def load_model(self, device: str | None = None, *, embed_dim: int | None = None, **options: Any) -> Any:
        """Loads the model, as `ModelMeta.load_model` does."""
        if embed_dim not in (None, self.embed_dim):
            raise InputError(f"{self.name} has embeddings of {self.embed_dim} numbers, not of {embed_dim}")
        settings: dict[str, Any] = {**self.loader_kwargs, **(self.experiment_kwargs or {}), **options}
        if self.loader is None or "source" not in settings:
            raise InputError(f"{self.name} is no folder and no repository, and cannot be loaded by its description")
        if device is not None:
            settings["device"] = device
        return self.loader(settings.pop("source"), name=self.name, **settings)


def described(
    embedder: Embedder,
    source: str | None,
    name: str | None,
    loading: Mapping[str, Any],
    loader: Callable[..., Any],
) -> ModelMeta:
    """The description of a model.

    Args:
        embedder: the model with its processor.
        source: its folder or repository; `None` for a model in memory.
        name: its name with an owner; by default the repository's, or `local/` and the name of the folder.
        loading: the arguments with which it was loaded.
        loader: makes the model of mteb from `source` and `loading`.
    """
    model, processor = embedder.model, embedder.processor
    on_hub = source is not None and not Path(source).is_dir()
    folder = Path(source or getattr(model, "name_or_path", "") or type(model).__name__)
    card = {} if source is None else _card(source, loading)
    known = known_languages(embedder)
    base, license = card.get("base_model"), str(card.get("license") or "").lower()
    is_ours = type(model).__module__.partition(".")[0] == __name__.partition(".")[0]
    return LoadableMeta(
        loader=loader,
        loader_kwargs={"source": source, **loading} if source else {},
        name=name or (source if on_hub else f"{_LOCAL}/{folder.resolve().name}"),
        revision=(_commit(source, loading) if source and on_hub else None) or model_identity(model, processor),
        release_date=None,
        languages=_mteb_codes(known or card.get("language_bcp47") or card.get("language") or []),
        n_parameters=sum(parameter.numel() for parameter in model.parameters()),
        n_embedding_parameters=_embedding_parameters(model),
        memory_usage_mb=sum(each.numel() * each.element_size() for each in model.parameters()) / 2**20,
        max_tokens=_longest_text(processor, model),
        # Of any text, in a language that the model has learned.
        embed_dim=embedder.encode_text(["1"], language=(known or ["en"])[0]).shape[1],
        license=license if license in get_args(Licenses) else None,
        open_weights=True,
        public_training_code=_CODE if is_ours else None,
        public_training_data=None,
        framework=["PyTorch", "Transformers", "safetensors"],
        reference=f"{_HUB}{source}" if on_hub else None,
        similarity_fn_name="cosine",
        use_instructions=bool(getattr(processor, "text_prompt", "")),
        training_datasets=None,
        adapted_from=base if isinstance(base, str) else None,
        modalities=["image", "text"] if embedder.takes_images else ["text"],
    )


def known_languages(embedder: Embedder) -> list[str]:
    """The languages that a model has learned, where it lists them, the native language first."""
    native = getattr(embedder.processor, "native_language", None)
    return [*([native] if native else []), *getattr(embedder.processor, "languages", [])]


def _card(source: str, loading: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of a model's card; none where it has no card."""
    file = optional_file(source, "README.md", loading)
    return {} if file is None else ModelCard.load(file).data.to_dict()


def _commit(source: str, loading: Mapping[str, Any]) -> str | None:
    """The commit of a repository that was loaded, which names the folder of its files in the Hub's cache."""
    for name in ("config.json", "adapter_config.json"):
        file = optional_file(source, name, loading)
        if file is not None and (folder := file.parent).parent.name == "snapshots":
            return folder.name
    return None


def _mteb_codes(tags: str | list[str]) -> list[str] | None:
    """Languages as mteb writes them, `ukr-Cyrl`; none for those that mteb does not have."""
    codes = set()
    for tag in [tags] if isinstance(tags, str) else tags:
        language = langcodes.Language.get(tag).maximize()
        code = f"{language.to_alpha3()}-{_SCRIPTS.get(language.script or '', language.script)}"
        try:
            check_language_code(code)
        except ValueError:
            continue
        codes.add(code)
    return sorted(codes) or None


def _embedding_parameters(model: Any) -> int | None:
    """The number of weights of the table of tokens; none for a model that reads words by other means."""
    for part in filter(None, (model, getattr(model, "text_model", None))):
        try:
            return sum(parameter.numel() for parameter in part.get_input_embeddings().parameters())
        except (AttributeError, NotImplementedError):
            continue
    return None


def _longest_text(processor: Any, model: Any) -> int | None:
    tokenizer = getattr(processor, "tokenizer", None)
    longest = getattr(processor, "max_text_length", None) or getattr(tokenizer, "model_max_length", None)
    longest = longest or getattr(getattr(model, "sentence_transformer", None), "max_seq_length", None)
    return longest if longest and longest < _UNLIMITED else None
