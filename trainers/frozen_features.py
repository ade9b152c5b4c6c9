"""Features of frozen encoders, computed once and kept on disk: a training step then runs only the other layers. The
key of a cached file is a digest of everything that the features depend on: the model, its processor, the version of
transformers, and every input."""

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import transformers
from datasets import config
from filelock import FileLock
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutputWithPooling

from ..data.batching.mixture import FEATURES_OF, FeatureView, SizedView
from ..data.batching.views import CorpusView, Images
from ..inference.embedder import Embedder, autocasting
from ..modeling.modeling_dual_encoder import in_dtype_of, pool_image, pool_text
from ..utils.errors import InputError
from ..utils.files import atomic_file, ensure_parents
from ..utils.identity import contents_digest, model_identity
from .arguments import ContrastiveTrainingArguments

logger = logging.getLogger(__name__)

DEFAULT_CACHE = Path(config.HF_DATASETS_CACHE) / "babelens" / "features"
IMAGE, TEXT = "image", "text"


def frozen_features(
    compute: Callable[[], Any], *, identity: str, items: Iterable[bytes], cache_dir: str | Path | None = None
) -> np.ndarray:
    """Returns `compute()` [N, ...] or its cached result for the same model (`identity` is a digest of it and its
    processor) and items (bytes, in order). The result is memory-mapped, so the processes of one machine share it, and
    wait while one of them computes it. Damaged files are computed again. `cache_dir` is by default a folder in the
    Hugging Face datasets cache."""
    folder = Path(cache_dir or DEFAULT_CACHE)
    file = folder / f"{contents_digest({}, f'{identity} {transformers.__version__}', items)}.safetensors"
    if (kept := _kept(file)) is not None:
        return kept
    lock = file.with_name(f".{file.name}.lock")
    with ensure_parents(folder), FileLock(lock):
        try:
            if (kept := _kept(file)) is not None:  # another process has computed them while this one waited
                return kept
            TemporaryDirectory(dir=folder).cleanup()  # raises before hours of computing if nothing can be written here
            features = torch.as_tensor(compute())
            if not features.isfinite().all():
                raise InputError(f"{len(features)} features of a frozen model: some are NaN or infinite")
            with atomic_file(file) as unfinished:
                save_file({"features": features.contiguous()}, unfinished)
            return load_file(file)["features"].numpy()
        finally:
            lock.unlink(missing_ok=True)


def features_of_images(
    compute: Callable[[], np.ndarray], images: Images, identity: str, cache_dir: str | None
) -> np.ndarray:
    """Like `frozen_features`, for the images of a corpus."""
    items = (images.encoded(row) for row in range(len(images)))
    return frozen_features(compute, identity=identity, items=items, cache_dir=cache_dir)


def _kept(file: Path) -> np.ndarray | None:
    if not file.is_file():
        return None
    try:
        features: Tensor = load_file(file)["features"]
    except (OSError, SafetensorError, KeyError):
        logger.warning("%s is damaged: its features are computed again", file)
        return None
    return features.numpy()


@dataclass
class FrozenEncoder:
    """The features of texts and images by a frozen model."""

    embedder: Embedder
    args: ContrastiveTrainingArguments
    cache_dir: str | None = None
    # Digests of the towers whose features are computed once, and of how their inputs are read.
    text: str | None = None
    image: str | None = None
    language: str = "und"  # of all texts

    def with_features(self, view: Any) -> SizedView:
        """The view with features instead of frozen towers' inputs; streams and other views are returned unchanged."""
        if not isinstance(view, CorpusView) or (self.text is None and self.image is None):
            return view
        bare = view.without_images() if self.image else view
        featured = self.with_texts(bare, bare)
        if self.image and "image" in view.columns:
            featured = FeatureView(featured, "image_features", self.image_features(view.images), view.rows)
        return featured

    def with_texts(
        self, view: SizedView, source: CorpusView, columns: Collection[str] = tuple(FEATURES_OF)
    ) -> SizedView:
        """The view with features of the texts in `columns` of `source`, a view of the same examples."""
        if self.text is None:
            return view
        texts = {name: column for name, column in source.texts().items() if name in columns}
        distinct = list(dict.fromkeys(text for column in texts.values() for text in column))
        features = frozen_features(
            partial(self._encode, self.embedder.encode_text, distinct, language=self.language),
            identity=f"{self.text} {self.args.chosen_precision}",
            items=(text.encode() for text in distinct),
            cache_dir=self.cache_dir,
        )
        index = {text: k for k, text in enumerate(distinct)}
        for name, column in texts.items():
            view = FeatureView(view, FEATURES_OF[name], features, np.array([index[text] for text in column]))
        return view

    def image_features(self, images: Images) -> np.ndarray:
        """Returns the features of images, [n, F]."""
        compute = partial(self._encode, self.embedder.encode_image, images)
        return features_of_images(compute, images, f"{self.image} {self.args.chosen_precision}", self.cache_dir)

    def _encode(self, encode: Callable[..., np.ndarray], inputs: Any, **options: Any) -> np.ndarray:
        """Encodes with the embedder, in the precision of training."""
        with autocasting(self.args.device, self.args.chosen_precision):
            return encode(inputs, normalize=False, **options)


def refuse_augmentation(args: ContrastiveTrainingArguments, kind: str) -> None:
    """Raises an `InputError` if images or texts (`kind`) are augmented although their features are computed once."""
    if getattr(args, f"{kind}_augmentation") is not None:
        raise InputError(
            f"{kind}_augmentation has no effect: the features of {kind}s are computed once, by a frozen model; leave "
            "it out, or set cache_frozen_features to false"
        )


def frozen_names(model: Any) -> tuple[str, ...]:
    """Returns the names of the towers without a trained weight, of `image` and `text`."""
    towers = getattr(model, "towers", {})
    return tuple(name for name, tower in towers.items() if not any(p.requires_grad for p in tower.parameters()))


def frozen_towers(
    model: Any, processor: Any, args: ContrastiveTrainingArguments, cache_dir: str | None = None
) -> FrozenEncoder:
    """Returns the frozen towers of a model with two towers; other models have none here."""
    names = frozen_names(model) if args.cache_frozen_features else ()
    for name in names:
        refuse_augmentation(args, name)

    if names:  # in the memory layout with the fastest convolutions
        model.to(device=args.device, memory_format=torch.channels_last)
    embedder = Embedder(TowerFeatures(model), processor, batch_size=args.per_device_eval_batch_size)
    text = image = None
    if TEXT in names:
        text = model_identity(model.text_model, processor, model.config.text_pooling)
    if IMAGE in names:
        image = model_identity(model.vision_model, processor.image_processor, model.config.image_pooling)
    return FrozenEncoder(embedder, args, cache_dir, text=text, image=image)


class TowerFeatures(nn.Module):
    """The towers of a model as a dual encoder: its embeddings are the pooled features, [N, W] and [N, F]."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model, self.config = model, model.config
        self.device, self.dtype = model.device, model.dtype

    def get_text_features(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> BaseModelOutputWithPooling:
        output = self.model.text_model(input_ids=input_ids, attention_mask=attention_mask, return_dict=True)
        return BaseModelOutputWithPooling(pooler_output=pool_text(output, input_ids, attention_mask, self.config))

    def get_image_features(self, pixel_values: Tensor, **kwargs: Any) -> BaseModelOutputWithPooling:
        pixel_values = in_dtype_of(self.model.vision_model, pixel_values)
        output = self.model.vision_model(pixel_values=pixel_values, return_dict=True, **kwargs)
        return BaseModelOutputWithPooling(pooler_output=pool_image(output, self.config.image_pooling))
