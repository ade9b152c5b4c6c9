"""Views with features that were computed before: of frozen models, and the regions of images."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from .mixture import SizedView


class FeatureView:
    """The examples of a view, each with one of several features as column `name`.

    Args:
        view: the examples [N].
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


class RegionView:
    """The examples of a view with the `regions` of their images, which are looked up by `image_id`.

    Args:
        view: the examples.
        regions: image_id -> regions [R, region_size].
    """

    def __init__(self, view: SizedView, regions: Mapping[str, np.ndarray]) -> None:
        self.view, self.regions = view, regions

    def __len__(self) -> int:
        return len(self.view)

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        examples = self.view.__getitems__(indices)
        return [example | {"regions": self.regions[example["image_id"]]} for example in examples]
