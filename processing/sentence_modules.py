"""The module with which sentence-transformers runs a saved dual encoder (`modules.json`), with or without babelens. It
has an input module's methods without being a subclass: saving a model must not require the library."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from torch import Tensor, nn
from transformers import AutoModel, AutoProcessor

from ..configuration.configuration_two_tower import head_of_task
from ..utils.errors import InputError
from ..utils.languages import normalize_language
from .images import open_image, truncated_repr

_PROMPTS = "config_sentence_transformers.json"
# sentence-transformers distinguishes paths of images from texts in the same way.
_IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".tiff", ".webp")
_OWN_TASKS = (None, "query", "document")  # set by `encode_query` and `encode_document`


class SentenceModule(nn.Module):
    """Base class of this module and of `CrossEncoderModule`: loading, saving, and the language of texts."""

    auto_model: ClassVar[Any]
    forward_kwargs: ClassVar[set[str]] = {"language"}  # additional arguments of `encode` and `predict`
    save_in_root: ClassVar[bool] = True

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
        path = Path(output_path, _PROMPTS)
        prompts = path.read_bytes() if path.is_file() else None
        self.model.save_pretrained(output_path)
        self.processor.save_pretrained(output_path)
        if prompts is not None:
            path.write_bytes(prompts)

    @property
    def modalities(self) -> list[str]:
        return ["text"] if getattr(self.model.config, "vision_config", {}) is None else ["text", "image"]

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
        try:
            return self.make_inputs(inputs, None if given is None else normalize_language(given))
        except TypeError as error:  # sentence-transformers would then put the prompt before the texts
            raise InputError(str(error)) from error

    def make_inputs(self, inputs: Sequence[Any], language: str | None) -> dict[str, Tensor]:
        raise NotImplementedError

    def read_texts(self, given: Sequence[tuple[str, str | None]], language: str | None) -> dict[str, Any]:
        languages = [own or language for _, own in given]
        if None in languages:
            default = self.processor.default_language
            languages = [each or default for each in languages]
        return {"text": [text for text, _ in given], "language": languages}

    def on_device(self, features: dict[str, Any]) -> dict[str, Any]:
        device, dtype = self.model.device, self.model.dtype
        return {key: each.to(device, dtype if each.is_floating_point() else None) for key, each in features.items()}

    def check_finite(self, values: Tensor, what: str) -> None:
        """Raises an error if the model computed NaN or infinity; in training, the loss shows it."""
        if not self.training and not bool(values.isfinite().all()):
            raise InputError(f"{type(self.model).__name__} computed {what} with values that are NaN or infinite")


class DualEncoderModule(SentenceModule):
    """A dual encoder in a `SentenceTransformer`, with the embeddings of babelens' `Embedder`. `encode(texts,
    task="text_text")` uses that head of a model that has one for each task, such as MURAL."""

    auto_model = AutoModel
    forward_kwargs: ClassVar[set[str]] = {"language", "task"}

    def get_embedding_dimension(self) -> int:
        return int(self.model.config.projection_dim)

    def make_inputs(self, inputs: Sequence[Any], language: str | None) -> dict[str, Tensor]:
        read = [read_input(item, f"inputs[{index}]") for index, item in enumerate(inputs)]
        images = [image for image, _, _ in read if image is not None]
        if not images:
            texts = self.read_texts([(text, own) for _, text, own in read], language)
            return dict(self.processor(**texts, return_tensors="pt"))
        if len(images) < len(read):
            raise InputError("texts and images came in one batch: encode them in two calls")
        return dict(self.processor(images=images, return_tensors="pt"))

    def forward(
        self, features: dict[str, Any], language: str | None = None, task: str | None = None
    ) -> dict[str, Any]:
        """Adds `sentence_embedding`, unit length, float32 [N, d]; `preprocess` has read `language`."""
        inputs = self.on_device(features)
        if "pixel_values" in inputs:
            output = self.model.get_image_features(**inputs)
        else:
            head = head_of_task(self.model, None if task in _OWN_TASKS else task)
            output = self.model.get_text_features(**inputs, **head)
        embeddings = output.pooler_output.float()
        self.check_finite(embeddings, "embeddings")
        return features | {"sentence_embedding": nn.functional.normalize(embeddings, dim=-1)}


def read_input(item: Any, called: str) -> tuple[Any, str, str | None]:
    language = None
    if isinstance(item, dict):
        if len({"text", "image"} & set(item)) != 1 or set(item) - {"text", "image", "language"}:
            raise InputError(f"{called} has {', '.join(map(repr, item))}: give 'text' with 'language', or 'image'")
        if "image" in item:
            return open_image(item["image"], called=called), "", None
        item, language = item["text"], item.get("language")
        if not isinstance(item, str):
            raise InputError(f"{called} is {truncated_repr(item)}, which is not a text")
    elif not isinstance(item, str) or _is_image(item):
        return open_image(item, called=called), "", None
    return None, item, language


def _is_image(text: str) -> bool:
    if text.startswith("data:image/") or (text.startswith(("http://", "https://")) and " " not in text):
        return text.startswith("data:") or text.partition("?")[0].lower().endswith(_IMAGE_ENDINGS)
    return text.lower().endswith(_IMAGE_ENDINGS) and os.path.isfile(text)
