"""Images with all that is said of them, for methods that learn from several sentences of an image at once."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from datasets import Dataset

from ...configuration.errors import CorpusError
from ...configuration.languages import normalize_languages
from ..corpus.corpus import describe, languages_of
from .views import ImageFeatures, Images, images_of


class CaptionedImages:
    """Examples {image, image_id, captions: {language: [texts]}}: the images that have captions in all languages.
    Where the corpus has features in the place of images, examples have `image_features` in that of `image`.

    Args:
        corpus: a caption corpus, or a translation corpus, whose examples have no image.
        languages: of the captions; by default all.
        with_images: read the images, or their features.

    Raises:
        CorpusError: when no row has captions in all of the languages.
        LanguageTagError: for an unknown language.
    """

    def __init__(self, corpus: Dataset, languages: Sequence[str] | None = None, *, with_images: bool = True) -> None:
        present = languages_of(corpus)
        self.languages = normalize_languages(list(languages or present))
        captions = corpus.select_columns("captions")[:]["captions"]
        wanted = set(self.languages)
        complete = [wanted <= {caption["language"] for caption in row} for row in captions]
        self.rows = np.flatnonzero(complete)
        if not len(self.rows):
            languages_wanted = ", ".join(self.languages)
            raise CorpusError(f"no row has captions in all of {languages_wanted}; the corpus has {describe(present)}")
        self.corpus = corpus
        self._captions = [_by_language(captions[row], self.languages) for row in self.rows]
        names = corpus["image_id"] if "image_id" in corpus.column_names else [str(row) for row in range(len(corpus))]
        self._names = [names[row] for row in self.rows]
        found = images_of(corpus) if with_images and {"image", "features"} & set(corpus.column_names) else None
        self.images = found if isinstance(found, Images) else None
        self.features = found if isinstance(found, ImageFeatures) else None

    def __len__(self) -> int:
        return len(self.rows)

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        examples: list[dict[str, Any]] = [
            {"image_id": self._names[index], "captions": self._captions[index]} for index in indices
        ]
        if self.features is not None:
            features = self.features[self.rows[indices].tolist()]
            return [example | {"image_features": own} for example, own in zip(examples, features, strict=True)]
        if self.images is None:
            return examples
        read = (self.images[int(self.rows[index])] for index in indices)
        return [example | {"image": image} for example, image in zip(examples, read, strict=True)]

    def without_images(self) -> "CaptionedImages":
        """The same examples, of which no image is read."""
        return CaptionedImages(self.corpus, self.languages, with_images=False)


def _by_language(captions: list[dict[str, str]], languages: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {language: [] for language in languages}
    for caption in captions:
        if caption["language"] in found:
            found[caption["language"]].append(caption["text"])
    return found
