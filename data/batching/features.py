"""Views with precomputed features: those of frozen models, and the regions of images."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from .mixture import IDENTITIES, SizedView, labels_of
from .views import CorpusView

# Model input -> the column of the features that replace it.
FEATURES_OF = {
    "image": "image_features",
    "text": "text_features",
    "text_a": "text_features",
    "text_b": "paired_text_features",
}


class FeatureView:
    """The examples of a view [N], each with a feature as column `name`.

    Args:
        view: the examples.
        name: name of the column.
        features: the features [n, d], or [n, ...].
        indices: index of each example's feature [N].
    """

    def __init__(self, view: SizedView, name: str, features: np.ndarray, indices: np.ndarray) -> None:
        self.view, self.name, self.features, self.indices = view, name, features, indices

    def __len__(self) -> int:
        return len(self.view)

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        examples = self.view.__getitems__(indices)
        chosen = self.features[self.indices[indices]]
        return [example | {self.name: feature} for example, feature in zip(examples, chosen, strict=True)]


class LabelView:
    """Examples that consist of the labels [N, k] of their images and texts (`labels_of`)."""

    def __init__(self, labels: np.ndarray) -> None:
        self.labels = labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        return [{IDENTITIES: labels} for labels in self.labels[indices]]


def features_alone(view: SizedView, source: SizedView, *, equal_texts: bool) -> SizedView:
    """Drops images and texts from a view whose images and texts all have features, so that training does not read the
    corpus in every step.

    Args:
        view: the examples, with features.
        source: the view from which the features were computed.
        equal_texts: whether equal texts make pairs positives of each other.
    """
    if not isinstance(source, CorpusView):
        return view
    added = []
    while isinstance(view, FeatureView):
        added.append(view)
        view = view.view
    names = {part.name for part in added}
    alone: SizedView = view
    if all(FEATURES_OF[column] in names for column in source.columns if column in FEATURES_OF):
        alone = LabelView(labels_of(source.identities(), equal_texts=equal_texts))
    for part in reversed(added):
        alone = FeatureView(alone, part.name, part.features, part.indices)
    return alone


def has_images(view: Any) -> bool:
    """Returns whether the examples of a view have images, not only features of them."""
    while isinstance(view, FeatureView):
        view = view.view
    return view.has_images if isinstance(view, CorpusView) else not isinstance(view, LabelView)


class RegionView:
    """The examples of a view with the `regions` [R, region_size] of their images, found by `image_id`."""

    def __init__(self, view: SizedView, regions: Mapping[str, np.ndarray]) -> None:
        self.view, self.regions = view, regions

    def __len__(self) -> int:
        return len(self.view)

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        examples = self.view.__getitems__(indices)
        return [example | {"regions": self.regions[example["image_id"]]} for example in examples]
