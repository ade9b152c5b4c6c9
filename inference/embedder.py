"""Encodes texts and images with any dual encoder, adapters on it, or models of sentence-transformers (`loading`)."""

import inspect
import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, cast

import numpy as np
import torch
from datasets.utils.logging import tqdm
from PIL import Image
from torch import Tensor, nn
from transformers import BatchFeature, PreTrainedModel, ProcessorMixin

from ..configuration.configuration_mla import text_positions
from ..configuration.configuration_two_tower import head_of_task
from ..data.batching.views import ImageFeatures
from ..processing.images import open_image
from ..processing.processing_dual_encoder import (
    LARGEST_LENGTH,
    as_texts,
    call_tokenizer,
    note_cut_texts,
    takes_language,
)
from ..utils.errors import BabelensError, ImageError, InputError, ModelKindError, first_line
from ..utils.languages import language_for_each
from .loading import SentenceEncoder, SentenceInputs, as_output, load_encoder, stated_truncation
from .onnx.model import OnnxDualEncoder, load_onnx
from .texts import default_language, reporting_cut_texts, token_counts

ImageLike = Image.Image | np.ndarray | str | Path | bytes
# Images that each thread of a processor convolves at a time: the states of more of them leave its caches. It is a
# constant, and not measured at run time, so an image has the same embedding in every run.
_CONVOLVED_AT_ONCE = 16
MAX_THREADS = 8  # that prepare images while the model encodes others: more wait for each other, and each holds a batch
# Cosines of float32 embeddings carry rounding errors of this size: a smaller difference is a tie.
COSINE_TIE = 1e-6
# Scores held at once, 64 MB in float32: memory grows with the larger of the two sides, not with their product.
SCORES_AT_ONCE = 2**24
Result = TypeVar("Result")


class Embedder:
    """Encodes texts and images as L2-normalised float32 vectors [N, d], so a dot product is a cosine. The model
    encodes in eval mode; afterwards each of its modules is in the mode it was in. No random numbers are drawn, so an
    evaluation does not change the course of a training run. `takes_images` is false for text-only encoders.

    Args:
        device, dtype: the device and the type of the weights; by default the model stays as it is.
        draft_jpegs: decode large JPEG files at a half, a quarter or an eighth of their size, with at least twice as
            many pixels on each side as the model reads. Photographs are prepared in a third of the time; their
            embeddings change in the third digit.
        truncate_dim: number of first dimensions to keep, for models trained with `matryoshka_dims`; by default all.

    Examples:
        >>> embedder = Embedder.from_pretrained("openai/clip-vit-base-patch32")
        >>> images = embedder.encode_image(["cat.jpg", "dog.jpg"])
        >>> query = embedder.encode_text("a dog", language="en")
        >>> (images @ query[0]).argmax()
    """

    def __init__(
        self,
        model: PreTrainedModel | SentenceEncoder | OnnxDualEncoder,
        processor: ProcessorMixin | SentenceInputs,
        *,
        batch_size: int = 64,
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
        draft_jpegs: bool = False,
        truncate_dim: int | None = None,
    ) -> None:
        for name, value in (("truncate_dim", truncate_dim), ("batch_size", batch_size)):
            if value is not None and value < 1:
                raise InputError(f"{name}={value} must be at least 1")
        if not (hasattr(model, "get_text_features") and hasattr(model, "get_image_features")):
            raise ModelKindError(
                f"{type(model).__name__} is not a dual encoder: it lacks get_text_features or get_image_features. "
                "Save a text encoder with its pooling by sentence-transformers; babelens evaluate task measures RC3's "
                "models of tasks"
            )
        if device is not None or dtype is not None:
            model = model.to(device=device, dtype=dtype)
        self.model: Any = model
        self.processor: Any = processor
        self.batch_size, self.truncate_dim = batch_size, truncate_dim
        # A JPEG file keeps twice the sides of the image that is read, so most of the scaling stays as it was.
        size = getattr(getattr(processor, "image_processor", None), "size", None) or {}
        sides = [2 * size[name] for name in ("shortest_edge", "height", "width") if size.get(name)]
        self.draft = max(sides, default=None) if draft_jpegs else None
        self.takes_images = getattr(model, "takes_images", True)
        self._takes_features = "image_features" in inspect.signature(self.model.get_image_features).parameters
        # A transformer has a single convolution, which cuts the image into patches.
        self._is_convolutional = sum(isinstance(part, nn.Conv2d) for part in self.model.modules()) > 1

    @classmethod
    def from_pretrained(
        cls,
        folder_or_repo: str | Path,
        *,
        batch_size: int = 64,
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
        draft_jpegs: bool = False,
        truncate_dim: int | None = None,
        backend: Literal["torch", "onnx"] = "torch",
        **loading: Any,
    ) -> Self:
        """Loads model and processor from a folder or from the Hub, by default onto the accelerator if there is one.

        Args:
            truncate_dim: as in `Embedder`; by default as the model's folder states (`stated_truncation`).
            backend: `onnx` runs the graphs of `babelens export`, at a `precision`, with onnxruntime on the processor.
            loading: passed to `AutoModel` and `AutoProcessor`: `revision`, `token`, `trust_remote_code`, …. With
                `use_safetensors=False`, weights are read from a pickle, which can run code. Models of
                sentence-transformers also take `text_prompt`, by default the one that their folder states.
        """
        settings: dict[str, Any] = {"batch_size": batch_size, "draft_jpegs": draft_jpegs}
        model: Any
        if backend == "onnx":
            if dtype is not None or (device is not None and torch.device(device).type != "cpu"):
                raise InputError("backend='onnx' runs on the processor, at a precision that was chosen at the export")
            model, processor = load_onnx(folder_or_repo, **loading)
        elif backend == "torch":
            model, processor = load_encoder(folder_or_repo, **loading)
            settings |= {"device": device or default_device(), "dtype": dtype}
        else:
            raise InputError(f"backend={backend!r} is neither 'torch' nor 'onnx'")
        if truncate_dim is None:
            truncate_dim = stated_truncation(folder_or_repo, model.config, **loading)
        return cls(model, processor, truncate_dim=truncate_dim, **settings)

    def encode_text(
        self,
        texts: str | Sequence[str],
        *,
        language: str | Sequence[str] | None = None,
        task: str | None = None,
        show_progress: bool | None = None,
        normalize: bool = True,
    ) -> np.ndarray:
        """Embeddings of texts, [N, d]; a single text gives [1, d]. Texts that are longer than the model reads are cut,
        and counted in the log.

        Args:
            language: the BCP-47 tag of all texts, or a list with one tag for each text. It may be left out where the
                embeddings do not depend on it, and for a model of one language; a model that was extended from a
                native language then reads texts in that one, which is logged once.
            task: the head of a model that has one for each task: MURAL's `"text_text"` gives the space in which it
                compares texts with texts. By default, texts are in the space of the images.
            normalize: whether vectors have unit length, instead of the model's own.
        """
        head = head_of_task(self.model, task) if task else {}
        texts = as_texts(texts, "texts", none_is_fine=True)
        languages = language_for_each(default_language(self.processor) if language is None else language, len(texts))
        # Texts of similar length share a batch, so little of it is padding. The longest come first: a batch that
        # does not fit in memory fails at once. Where words are tokens, characters are counted.
        tokenizer = self.processor.tokenizer
        lengths = token_counts(tokenizer, texts) if callable(tokenizer) else list(map(len, texts))
        order = sorted(range(len(texts)), key=lambda position: -lengths[position])

        def encode(positions: list[int]) -> Tensor:
            inputs = self.process_texts([texts[p] for p in positions], [languages[p] for p in positions])
            return as_output(self.model.get_text_features(**inputs.to(self.model.device), **head)).pooler_output

        with reporting_cut_texts(texts):
            return self._encode(order, encode, "texts", show_progress, normalize, lambda p: repr(texts[p]))

    def process_texts(self, texts: list[str], languages: list[str]) -> BatchFeature:
        """The inputs of texts in languages, padded and cut as the model reads them, as tensors."""
        if takes_language(self.processor):
            return self.processor(text=texts, language=languages, return_tensors="pt")
        # transformers' processors leave padding and cutting to the caller, and do not report the texts that they cut.
        longest = self._longest_text
        settings: dict[str, Any] = {"max_length": longest} if longest < LARGEST_LENGTH else {}
        settings["padding"] = "max_length" if "siglip" in self.model.config.model_type else True  # as in training
        inputs = call_tokenizer(self.processor, text=texts, truncation=True, return_tensors="pt", **settings)
        if inputs["input_ids"].shape[1] >= longest:
            counts = token_counts(self.processor.tokenizer, texts)
            too_long = [text for text, count in zip(texts, counts, strict=True) if count > longest]
            note_cut_texts(too_long, f"{longest} tokens")
        return inputs

    @cached_property
    def _longest_text(self) -> int:
        """The most tokens that the positions of the text tower, its tokenizer and its processor allow."""
        config = self.model.config
        positions = text_positions(getattr(config, "text_config", config))
        longest = min(positions or LARGEST_LENGTH, self.processor.tokenizer.model_max_length, LARGEST_LENGTH)
        return int(min(longest, getattr(self.processor, "text_kwargs", {}).get("max_length") or longest))

    def encode_image(
        self,
        images: ImageLike | Sequence[ImageLike] | ImageFeatures,
        *,
        show_progress: bool | None = None,
        normalize: bool = True,
    ) -> np.ndarray:
        """Embeddings of images, [N, d]; a single image gives [1, d]. Images are Pillow images, arrays or tensors of
        uint8, paths, or bytes of image files (`as_image`), in a list or any sequence that loads an image at each
        access, by one thread (others prepare a few batches while the model encodes); or features of a corpus."""
        self.check_takes_images()
        is_one = isinstance(images, np.ndarray | Tensor) and images.ndim <= 3
        is_one |= isinstance(images, Image.Image | str | Path | bytes)
        items = cast(Sequence[ImageLike] | ImageFeatures, [images] if is_one else images)
        if isinstance(items, Mapping) or not (hasattr(items, "__len__") and hasattr(items, "__getitem__")):
            raise ImageError(f"a {type(images).__name__} is neither an image nor a sequence of images")
        if isinstance(items, ImageFeatures) and not self._takes_features:
            raise ModelKindError(f"{type(self.model).__name__} reads images, and not features of images")

        def preparation(start: int) -> Callable[[], BatchFeature]:
            positions = range(start, min(start + self.batch_size, len(items)))
            if isinstance(items, ImageFeatures):
                features = items[list(positions)]
                return lambda: BatchFeature({"image_features": features}, tensor_type="pt")
            named = [(items[position], f"images[{position}]") for position in positions]
            return lambda: self.processor(
                images=[open_image(image, called=name, draft=self.draft) for image, name in named], return_tensors="pt"
            )

        def describe(position: int) -> str:
            item = None if isinstance(items, ImageFeatures) else items[position]
            return str(item) if isinstance(item, str | Path) else f"image {position}"

        jobs = map(preparation, range(0, len(items), self.batch_size))
        with closing(prefetch(jobs, in_threads=len(items) > self.batch_size)) as prepared:
            order = list(range(len(items)))
            given = "images", show_progress, normalize, describe
            return self._encode(order, lambda _: self._image_features(next(prepared)), *given)

    def encode_prepared(self, inputs: BatchFeature, names: Sequence[str]) -> np.ndarray:
        """Embeddings [N, d] of at most `batch_size` images from their inputs; errors call them by `names`."""
        order = list(range(len(names)))
        return self._encode(order, lambda _: self._image_features(inputs), "images", False, True, names.__getitem__)

    def check_takes_images(self) -> None:
        if not self.takes_images:
            raise ModelKindError(f"a {self.model.config.model_type!r} text encoder sees no images")

    def _image_features(self, inputs: BatchFeature) -> Tensor:
        inputs = inputs.to(self.model.device, self.model.dtype)
        parts: list[Mapping[str, Any]] = [inputs]
        if self._is_convolutional and [*inputs] == ["pixel_values"] and self.model.device.type == "cpu":
            # On a processor, convolutions are twice as fast with the channels of a pixel side by side.
            pixels = inputs["pixel_values"].contiguous(memory_format=torch.channels_last)
            parts = [{"pixel_values": part} for part in pixels.split(_CONVOLVED_AT_ONCE * torch.get_num_threads())]
        try:
            return torch.cat([as_output(self.model.get_image_features(**part)).pooler_output for part in parts])
        except BabelensError:
            raise
        except ValueError as error:  # of towers, for images of another size
            told = f"{type(self.model).__name__} does not read the images that its processor prepares"
            raise ModelKindError(f"{told}: {first_line(error)}") from error

    def _encode(
        self,
        order: list[int],
        encode: Callable[[list[int]], Tensor],
        what: str,
        show_progress: bool | None,
        normalize: bool,
        describe: Callable[[int], str],
    ) -> np.ndarray:
        """Encodes the items in this order, batch by batch; the embedding of each item is in the row of its index."""
        embeddings: np.ndarray | None = None
        kept, name = self.truncate_dim, type(self.model).__name__
        with evaluation_mode(self.model):
            for positions in batches(order, self.batch_size, f"Encoding {what}", show_progress):
                features = encode(positions).float()
                if kept is not None and kept > (width := features.shape[1]):
                    raise InputError(f"truncate_dim={kept}: the embeddings of this {name} have {width} dimensions")
                features = features[:, :kept]
                if bad := (~features.isfinite().all(-1)).nonzero().flatten().tolist():
                    raise InputError(f"{describe(positions[bad[0]])}: {name} computes NaN or infinity from it")
                rows = (nn.functional.normalize(features, dim=-1) if normalize else features).cpu().numpy()
                if embeddings is None:
                    embeddings = np.empty((len(order), rows.shape[1]), dtype=np.float32)
                embeddings[positions] = rows
        return np.empty((0, 0), dtype=np.float32) if embeddings is None else embeddings


def default_device() -> torch.device | None:
    """The accelerator, when there is one."""
    return torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None


def prefetch(jobs: Iterator[Callable[[], Result]], *, in_threads: bool) -> Generator[Result, None, None]:
    """Yields the results of jobs in their order; threads compute a few ahead, so memory stays bounded."""
    threads = min(MAX_THREADS, os.cpu_count() or 1) if in_threads else 0
    if not threads:
        yield from (job() for job in jobs)
        return
    with ThreadPoolExecutor(threads, thread_name_prefix="prepare") as pool:
        begun = deque(pool.submit(job) for job in islice(jobs, threads))
        try:
            while begun:
                begun += (pool.submit(job) for job in islice(jobs, 1))
                yield begun.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


# ---- Cosines of embeddings ----


def unit_rows(embeddings: np.ndarray) -> Tensor:
    """Embeddings as unit vectors, float32 [N, d]; they must be finite."""
    return nn.functional.normalize(finite_matrix(embeddings, "embeddings").float(), dim=1)


def finite_matrix(values: np.ndarray, name: str) -> Tensor:
    tensor = torch.as_tensor(np.asarray(values))
    if tensor.dim() != 2 or 0 in tensor.shape:
        raise ValueError(f"{name} must be a matrix with at least one row and column, got shape {tuple(tensor.shape)}")
    # Every comparison with NaN is false: the right items of a model that diverged would always rank first.
    broken = (~tensor.isfinite()).any(1).nonzero()
    if len(broken):
        raise InputError(f"{name}: {len(broken)} of {len(tensor)} rows hold NaN or infinity: row {int(broken[0])}, …")
    return tensor


def first_dimensions(embeddings: np.ndarray, width: int) -> np.ndarray:
    """The first dimensions of embeddings, as vectors of unit length. [N, d], width -> [N, width]"""
    return nn.functional.normalize(torch.from_numpy(embeddings[:, :width]), dim=-1).numpy()


# ---- Encoders outside of training ----

# The models in evaluation: how many blocks each is in, and its modules that were in training mode before.
_EVALUATED: dict[nn.Module, tuple[int, dict[nn.Module, bool]]] = {}
_LOCK = threading.Lock()


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Puts a model into evaluation mode, without gradients, inside the block; afterwards, each module returns to its
    previous mode. If several threads use one model, the first one saves the modes, and the last one restores them."""
    with _LOCK:
        entered, modes = _EVALUATED.get(model, (0, {}))
        if not entered:
            modes = {module: module.training for module in model.modules() if module.training}
            if modes:
                model.eval()
        _EVALUATED[model] = entered + 1, modes
    try:
        # Not inference_mode: tensors that a model caches here (position tables, masks) must remain usable in training.
        with torch.no_grad():
            yield
    finally:
        with _LOCK:
            entered, modes = _EVALUATED.pop(model)
            if entered > 1:
                _EVALUATED[model] = entered - 1, modes
            else:
                for module in modes:
                    module.training = True


def autocasting(device: torch.device, precision: str) -> torch.autocast:
    """Returns a context manager for matrix products and convolutions in `precision`; all else stays in float32."""
    return torch.autocast(device.type, getattr(torch, precision), enabled=precision != "float32")


def progress_bar(total: int, description: str, show: bool | None = None) -> tqdm:
    """Returns a progress bar; by default it appears on a terminal, for jobs of more than two seconds."""
    shown = {"delay": 2.0, "disable": None} if show is None else {"disable": not show}
    return tqdm(total=total, desc=description, leave=False, **shown)


def batches(items: Any, size: int, description: str, show: bool | None = None) -> Iterator[Any]:
    """Yields slices of a sequence, with `size` items each, and shows how many are done (`progress_bar`)."""
    with progress_bar(len(items), description, show) as bar:
        for start in range(0, len(items), size):
            batch = items[start : start + size]
            yield batch
            bar.update(len(batch))
