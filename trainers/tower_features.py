"""Features of frozen towers, computed once for all epochs: a training step then runs only the linear layers.

A frozen tower gives the same features for the same image or text in every step.
"""

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..data.batching.features import FEATURES_OF, FeatureView, features_alone
from ..data.batching.mixture import SizedView
from ..data.batching.views import CorpusView, Images
from ..modeling.encoding import autocasting
from ..utils.errors import InputError
from ..utils.identity import code_of, settings_of
from .arguments import ContrastiveTrainingArguments
from .frozen_features import frozen_features

if TYPE_CHECKING:
    from ..inference.embedder import Embedder

IMAGE, TEXT = "image", "text"


class FrozenTowers:
    """The frozen towers of a model, and their features for the examples of a view.

    Args:
        model: a model with two towers, or a student of MLA; other models have no frozen towers here.
        cached: whether the features are computed once.

    Raises:
        InputError: if the inputs of a tower whose features are computed once are augmented.
    """

    def __init__(
        self,
        model: Any,
        processor: Any,
        args: ContrastiveTrainingArguments,
        *,
        cache_dir: str | Path | None = None,
        cached: bool = True,
    ) -> None:
        self.model, self.processor, self.args, self.cache_dir = model, processor, args, cache_dir
        self.names: tuple[str, ...] = getattr(model, "frozen_towers", ()) if cached else ()
        self._known_texts: dict[str, np.ndarray] = {}  # text -> its features
        for tower, option in ((IMAGE, "image_augmentation"), (TEXT, "text_augmentation")):
            if tower in self.names and getattr(args, option) is not None:
                raise InputError(
                    f"{option} has no effect: the {tower} tower is frozen, so its features are computed once; "
                    "out, or set cache_frozen_features=False"
                )

    def with_features(self, view: Any) -> SizedView:
        """Returns the examples of a view with features of frozen towers instead of the inputs of these towers; streams
        and other kinds of views are returned unchanged."""
        if not isinstance(view, CorpusView):
            return view
        if not self.names:
            return self.with_texts(view, view)
        with self.args.main_process_first(desc="features of frozen towers"):
            bare = view.without_images() if IMAGE in self.names else view
            featured = self.with_texts(bare, bare)
            if IMAGE in self.names and view.has_images:
                featured = FeatureView(featured, "image_features", self._image_features(view.images), view.rows)
            return features_alone(featured, view, equal_texts=self.args.equal_texts_are_positives)

    def with_texts(
        self, view: SizedView, source: CorpusView, columns: Collection[str] = tuple(FEATURES_OF)
    ) -> SizedView:
        """Returns the examples of a view with a frozen text tower's features of the texts in `columns` of `source`, a
        view of the same examples."""
        if TEXT not in self.names:
            return view
        texts = {name: column for name, column in source.texts().items() if name in columns}
        distinct = list(dict.fromkeys(text for column in texts.values() for text in column))
        features = self._text_features(distinct)
        index = {text: k for k, text in enumerate(distinct)}
        self._known_texts |= zip(distinct, features, strict=True)
        for name, column in texts.items():
            view = FeatureView(view, FEATURES_OF[name], features, np.array([index[text] for text in column]))
        return view

    # ---- Features ----

    def _text_features(self, texts: list[str]) -> np.ndarray:
        """The features of texts, [n, W]."""
        tokens = self.processor(text=texts, language="und", padding=False)["input_ids"]
        return self._cached(
            lambda: self._encoded(texts),
            self.model.text_model,
            f"{self.model.config.text_pooling} padded: {self.processor.pad_to_max_length}",
            (np.array(ids, dtype=np.int64).tobytes() for ids in tokens),
        )

    def _encoded(self, texts: list[str]) -> np.ndarray:
        """The features of texts [n, W]. Texts of earlier views are not encoded again: tasks share texts, such as
        captions and their translations."""
        new = [text for text in texts if text not in self._known_texts]
        if new:
            encoded = self._embedder().encode_text(new, language="und", normalize=False)
            self._known_texts |= zip(new, encoded, strict=True)
        return np.stack([self._known_texts[text] for text in texts])

    def finish(self) -> None:
        """Frees the memory that is only needed while views are made."""
        self._known_texts.clear()

    def _image_features(self, images: Images) -> np.ndarray:
        """The features of images, [n, F]."""
        return self._cached(
            lambda: self._embedder().encode_image(images, normalize=False),
            self.model.vision_model,
            f"{self.model.config.image_pooling} {self.processor.image_processor.to_json_string()}",
            (images.encoded(row) for row in range(len(images))),
        )

    def _embedder(self) -> "Embedder":
        from ..inference.embedder import Embedder  # imports what loads encoders of every kind

        # The memory layout with the fastest convolutions.
        self.model.to(device=self.args.device, memory_format=torch.channels_last)
        size = self.args.per_device_eval_batch_size
        return Embedder(self.model.tower_features, self.processor, batch_size=size)

    def in_precision(self, compute: Callable[[], np.ndarray]) -> Callable[[], np.ndarray]:
        """Returns a function that computes the same features in the precision of a trained tower."""
        return autocasting(self.args.device, self.precision)(compute)

    @property
    def precision(self) -> str:
        """The name of that precision."""
        return self.args.chosen_precision

    def _cached(
        self, compute: Callable[[], np.ndarray], tower: Any, settings: str, items: Iterator[bytes]
    ) -> np.ndarray:
        return frozen_features(
            self.in_precision(compute),
            weights=tower.state_dict(),
            settings=f"{settings_of(tower.config)}\n{settings} {self.precision} {code_of(tower, self.processor)}",
            items=items,
            cache_dir=self.cache_dir,
        )
