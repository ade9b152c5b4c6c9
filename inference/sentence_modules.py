"""The module with which sentence-transformers runs a saved dual encoder (`modules.json`), with or without babelens. It
has an input module's methods without being a subclass: saving a model must not require the library."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Self

from torch import Tensor, nn
from transformers import AutoModel, AutoProcessor, BatchFeature

from ..configuration.configuration_two_tower import head_of_task
from ..utils.errors import InputError


class DualEncoderModule(nn.Module):
    """A dual encoder in a `SentenceTransformer`, with the embeddings of babelens' `Embedder`. `encode(texts,
    task="text_text")` uses that head of a model that has one for each task, such as MURAL."""

    auto_model: ClassVar[Any] = AutoModel
    forward_kwargs: ClassVar[set[str]] = {"language", "task"}  # additional arguments of `encode`
    save_in_root: ClassVar[bool] = True
    output: ClassVar[str] = "sentence_embedding"

    def __init__(self, model: Any, processor: Any) -> None:
        super().__init__()
        self.model, self.processor = model, processor

    @classmethod
    def load(cls, model_name_or_path: str, backend: str = "torch", **given: Any) -> Self:
        """Loads model and processor with the arguments that sentence-transformers passes to its own modules."""
        if backend != "torch":
            raise InputError(f"backend={backend!r}: only torch runs here; `babelens export` exports to ONNX")
        names = ("subfolder", "token", "revision", "local_files_only", "trust_remote_code")
        place = {name: given[name] for name in names if name in given} | {"cache_dir": given.get("cache_folder")}
        chosen = (given.get("config_kwargs") or {}) | (given.get("model_kwargs") or {})
        model = cls.auto_model.from_pretrained(model_name_or_path, **place | chosen)
        chosen = given.get("processor_kwargs") or {}
        return cls(model, AutoProcessor.from_pretrained(model_name_or_path, **place | chosen))

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Saves model and processor, and keeps the prompts that sentence-transformers wrote just before."""
        path = Path(output_path, "config_sentence_transformers.json")
        prompts = path.read_bytes() if path.is_file() else None
        self.model.save_pretrained(output_path)
        self.processor.save_pretrained(output_path)
        if prompts is not None:
            path.write_bytes(prompts)

    @property
    def modalities(self) -> list[str]:
        return ["text"] if getattr(self.model.config, "vision_config", {}) is None else ["text", "image"]

    def get_embedding_dimension(self) -> int:
        return int(self.model.config.projection_dim)

    @property
    def tokenizer(self) -> Any:
        return self.processor.tokenizer

    @property
    def max_seq_length(self) -> int:
        return int(self.processor.max_text_length)

    @max_seq_length.setter
    def max_seq_length(self, length: int) -> None:
        self.processor.max_text_length = length

    def preprocess(
        self, inputs: Sequence[Any], prompt: str | None = None, language: str | None = None, **kwargs: Any
    ) -> dict[str, Tensor]:
        """Makes the model's inputs from texts, images, or pairs of them. A text is a string or `{"text": …,
        "language": …}`; an image is a Pillow image, an array, a path, or `{"image": …}`. `prompt` or `language` is the
        tag of all texts."""
        if kwargs.get("processing_kwargs"):
            raise InputError("this model does not accept processing_kwargs; texts are cut at model.max_seq_length")
        if prompt and language is not None:
            raise InputError(f"language={language!r} and the prompt {prompt!r} both name a language; give one")
        given = prompt or language
        if given is not None and not isinstance(given, str):
            raise InputError("language= is one tag; give several as {'text': '…', 'language': 'sw'}")
        items = self.read_inputs(inputs)
        texts = [item for item in items if "text" in item]
        read: dict[str, Any] = {"images": [item["image"] for item in items if "image" in item] or None}
        if texts:
            languages = [item.get("language") or given for item in texts]
            if None in languages:
                default = self.processor.default_language
                languages = [each or default for each in languages]
            read |= {"text": [item["text"] for item in texts], "language": languages}
        return dict(self.processor(**read, return_tensors="pt"))

    def read_inputs(self, inputs: Sequence[Any]) -> list[dict[str, Any]]:
        items = [read_input(each) for each in inputs]
        if len({"text" in item for item in items}) > 1:
            raise InputError("texts and images came in one batch: encode them in two calls")
        return items

    def forward(
        self, features: dict[str, Any], language: str | None = None, task: str | None = None
    ) -> dict[str, Any]:
        """Adds the `output`, float32; `preprocess` has read `language`."""
        values = self.compute(BatchFeature(features).to(self.model.device, self.model.dtype), task)
        if not self.training and not bool(values.isfinite().all()):  # in training, the loss shows it
            raise InputError(
                f"{type(self.model).__name__} computed {self.output} with values that are NaN or infinite"
            )
        return features | {self.output: values}

    def compute(self, inputs: BatchFeature, task: str | None) -> Tensor:
        """Returns embeddings of unit length [N, d]."""
        if "pixel_values" in inputs:
            output = self.model.get_image_features(**inputs)
        else:
            is_of_library = task in ("query", "document")  # set by `encode_query` and `encode_document`
            head = head_of_task(self.model, None if is_of_library else task)
            output = self.model.get_text_features(**inputs, **head)
        return nn.functional.normalize(output.pooler_output.float(), dim=-1)


def read_input(item: Any) -> dict[str, Any]:
    """Returns an input as `{"text": …, "language": …}` or `{"image": …}`. Strings that sentence-transformers takes for
    paths or addresses of images are images."""
    if not isinstance(item, dict):
        # transformers would refuse a folder whose code has an import of a package that is not installed.
        modality = import_module("sentence_transformers.base.modality")
        is_image = not isinstance(item, str) or modality.is_image_url_or_path(item)
        return {"image" if is_image else "text": item}
    if item.keys() - {"language"} not in ({"text"}, {"image"}):
        raise InputError(f"an input has {', '.join(map(repr, item))}: give 'text' with 'language', or 'image'")
    return item
