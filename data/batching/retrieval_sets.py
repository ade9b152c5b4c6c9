"""Retrieval on a corpus: the queries in one language, the searched images, and the correct ones."""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from datasets import Dataset, IterableDataset

from ...utils.errors import CorpusError
from ...utils.languages import normalize_language
from ..corpus.caption_index import CaptionIndex, repeats
from ..corpus.corpus import describe, languages_of
from .views import ImageFeatures, Images, images_of, text_table


@dataclass(frozen=True)
class RetrievalSet:
    """Queries in one language, the searched images, and the correct images of each query."""

    language: str  # of the texts
    images: Images | ImageFeatures  # [n_images], read on access, or their features
    image_ids: list[str]  # [n_images]
    texts: list[str]  # [n_texts]; a text is listed once for all rows that share an image_id
    text_image_ids: list[str]  # the image_id that each text describes [n_texts]
    text_to_images: list[list[int]]  # for each text, the indices of all images with its image_id
    rows: np.ndarray  # the row of each image in the corpus [n_images]

    def with_equal_texts(self) -> "RetrievalSet":
        """Returns the same queries, but a text is correct for every image that has an equal caption. By `image_id`,
        chance decides between two images with the same caption, and no model can find both."""
        by_text: dict[str, set[int]] = {}
        for text, images in zip(self.texts, self.text_to_images, strict=True):
            by_text.setdefault(text, set()).update(images)
        return replace(self, text_to_images=[sorted(by_text[text]) for text in self.texts])


def retrieval_set(corpus: Dataset, language: str, *, only_captioned: bool = False) -> RetrievalSet:
    """Returns the captions of a corpus in one language and its images, for retrieval in both directions. All languages
    search all images, so results compare; with `only_captioned`, those with a caption in it (WIT's protocol)."""
    return RetrievalSets(corpus).of(language, only_captioned=only_captioned)


class RetrievalSets:
    """Makes a `retrieval_set` for several languages of one corpus, whose captions are read once."""

    def __init__(self, corpus: Dataset) -> None:
        if isinstance(corpus, IterableDataset):
            raise CorpusError("retrieval ranks all images at once, and cannot use a stream: load it as a Dataset")
        self._corpus = corpus
        self._index = CaptionIndex(text_table(corpus))
        self._image_ids = np.array(corpus["image_id"][:], dtype=object)

    def of(self, language: str, *, only_captioned: bool = False) -> RetrievalSet:
        language = normalize_language(language)
        index = self._index
        captions = index.captions_in(language)
        if not len(captions):
            raise CorpusError(f"no captions in {language}; the corpus has {describe(languages_of(self._corpus))}")
        rows = index.rows[captions]
        searched = np.unique(rows) if only_captioned else np.arange(len(self._corpus))
        captions = captions[~repeats(rows, index.concepts[rows], index.text_codes[captions])]
        image_ids = self._image_ids[searched].tolist()
        positions: dict[str, list[int]] = {}
        for position, image_id in enumerate(image_ids):
            positions.setdefault(image_id, []).append(position)
        described = self._image_ids[index.rows[captions]].tolist()
        return RetrievalSet(
            language,
            images_of(self._corpus.select(searched) if only_captioned else self._corpus),
            image_ids,
            texts=index.texts.take(pa.array(captions)).to_pylist(),
            text_image_ids=described,
            text_to_images=[positions[image_id] for image_id in described],
            rows=searched,
        )
