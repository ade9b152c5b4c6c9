"""Features of frozen encoders, computed once for all epochs: a training step then runs only the other layers."""

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutputWithPooling

from ..data.batching.mixture import FEATURES_OF, FeatureView, SizedView
from ..data.batching.views import CorpusView, Images
from ..modeling.modeling_dual_encoder import in_dtype_of
from ..utils.errors import InputError
from ..utils.identity import model_identity
from .arguments import ContrastiveTrainingArguments
from .frozen_features import frozen_features

if TYPE_CHECKING:
    from ..inference.embedder import Embedder

IMAGE, TEXT = "image", "text"


class FrozenEncoder:
    """The features of texts and images by a frozen model, which are kept on disk.

    Args:
        embedder: makes the embedder of the model, when features have to be computed.
        text, image: digests of the towers whose features are computed once, and of how their inputs are read.
        language: the language of all texts.
    """

    def __init__(
        self,
        embedder: Callable[[], "Embedder"],
        args: ContrastiveTrainingArguments,
        cache_dir: str | None = None,
        *,
        text: str | None = None,
        image: str | None = None,
        language: str = "und",
    ) -> None:
        self.embedder, self.args, self.cache_dir = embedder, args, cache_dir
        self.text, self.image, self.language = text, image, language

    def with_features(self, view: Any) -> SizedView:
        """Returns the examples of a view with features instead of the inputs of frozen towers; streams and other kinds
        of views are returned unchanged."""
        if not isinstance(view, CorpusView) or (self.text is None and self.image is None):
            return view
        with self.args.main_process_first(desc="features of frozen towers"):
            bare = view.without_images() if self.image else view
            featured = self.with_texts(bare, bare)
            if self.image and view.has_images:
                featured = FeatureView(featured, "image_features", self.image_features(view.images), view.rows)
            return featured

    def with_texts(
        self, view: SizedView, source: CorpusView, columns: Collection[str] = tuple(FEATURES_OF)
    ) -> SizedView:
        """Returns the examples of a view with features of the texts in `columns` of `source`, a view of the same
        examples."""
        if self.text is None:
            return view
        texts = {name: column for name, column in source.texts().items() if name in columns}
        distinct = list(dict.fromkeys(text for column in texts.values() for text in column))
        features = self._kept(
            self.text,
            lambda: self.embedder().encode_text(distinct, language=self.language, normalize=False),
            (text.encode() for text in distinct),
        )
        index = {text: k for k, text in enumerate(distinct)}
        for name, column in texts.items():
            view = FeatureView(view, FEATURES_OF[name], features, np.array([index[text] for text in column]))
        return view

    def image_features(self, images: Images) -> np.ndarray:
        """Returns the features of images, [n, F]."""
        assert self.image is not None
        items = (images.encoded(row) for row in range(len(images)))
        return self._kept(self.image, lambda: self.embedder().encode_image(images, normalize=False), items)

    def _kept(self, tower: str, compute: Callable[[], np.ndarray], items: Iterable[bytes]) -> np.ndarray:
        identity = f"{tower} {self.args.chosen_precision}"
        compute = self.args.autocast()(compute)
        return frozen_features(compute, identity=identity, items=items, cache_dir=self.cache_dir)


def frozen_towers(
    model: Any, processor: Any, args: ContrastiveTrainingArguments, cache_dir: str | None = None
) -> FrozenEncoder:
    """Returns the frozen towers of a model with two towers; other models have none here."""
    names = getattr(model, "frozen_towers", ()) if args.cache_frozen_features else ()
    for name, option in ((IMAGE, "image_augmentation"), (TEXT, "text_augmentation")):
        if name in names and getattr(args, option) is not None:
            raise InputError(
                f"{option} has no effect: the {name} tower is frozen, so its features are computed once; leave it "
                "out, or set cache_frozen_features=False"
            )

    def embedder() -> "Embedder":
        from ..inference.embedder import Embedder  # imports what loads encoders of every kind

        # The memory layout with the fastest convolutions.
        model.to(device=args.device, memory_format=torch.channels_last)
        return Embedder(TowerFeatures(model), processor, batch_size=args.per_device_eval_batch_size)

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
        return BaseModelOutputWithPooling(pooler_output=self.model.pooled_texts(output, input_ids, attention_mask))

    def get_image_features(self, pixel_values: Tensor, **kwargs: Any) -> BaseModelOutputWithPooling:
        pixel_values = in_dtype_of(self.model.vision_model, pixel_values)
        output = self.model.vision_model(pixel_values=pixel_values, return_dict=True, **kwargs)
        return BaseModelOutputWithPooling(pooler_output=self.model.pooled_images(output))
