"""Cross-encoders, such as `Rc3ForImageTextRetrieval`, which read a text and an image together, with a pass of the
whole model for each pair; and a `Reranker` of a dual encoder's results."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForMultipleChoice, AutoProcessor, PreTrainedModel, ProcessorMixin

from ..data.batching.views import ImageFeatures, RetrievalSet
from ..processing.images import open_image
from ..processing.processing_dual_encoder import as_texts
from ..utils.errors import InputError
from ..utils.languages import language_for_each
from ..utils.pretrained import load_model, load_processor
from .embedder import COSINE_TIE, ImageLike, default_device, evaluation_mode, progress_bar, unit_rows
from .texts import reporting_cut_texts, token_counts

Scores = Callable[[Tensor], Tensor]  # indices of queries [rows] -> scores with all items [rows, n_items]
# Images whose inputs are held at once: 150 MB of 224 x 224 pixels in float32.
_IMAGES_AT_ONCE = 256


class CrossEncoder:
    """Computes scores of texts with images: a higher score means a better fit. Scores of one model are comparable.
    Images are as for an `Embedder`. A model that reads regions takes `regions`, features [R, region_size] of each
    image (`RegionExtractor`), instead of images or with them."""

    def __init__(
        self,
        model: PreTrainedModel,
        processor: ProcessorMixin,
        *,
        batch_size: int = 64,
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if device is not None or dtype is not None:
            model = model.to(device=device, dtype=dtype)
        self.model, self.processor, self.batch_size = model, processor, batch_size

    @classmethod
    def from_pretrained(
        cls,
        folder_or_repo: str | Path,
        *,
        batch_size: int = 64,
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
        **loading: Any,
    ) -> Self:
        """Loads model and processor from a folder or from the Hub; arguments as in `Embedder.from_pretrained`."""
        model = load_model(AutoModelForMultipleChoice, folder_or_repo, **loading)
        processor = load_processor(AutoProcessor, folder_or_repo, **loading)
        return cls(model, processor, batch_size=batch_size, device=device or default_device(), dtype=dtype)

    def score(self, texts: Sequence[str], images: Sequence[ImageLike] | None = None, **options: Any) -> np.ndarray:
        """Scores each text with the image of the same index, float32 [N]; `options` are those of `score_pairs`."""
        if _count(images, options.get("regions")) != len(texts):
            raise InputError(f"{len(texts)} texts need as many images: score_all scores each text with each image")
        return self.score_pairs(texts, images, np.repeat(np.arange(len(texts))[:, None], 2, axis=1), **options)

    def score_all(self, texts: Sequence[str], images: Sequence[ImageLike] | None = None, **options: Any) -> np.ndarray:
        """Scores every text with every image, float32 [n_texts, n_images]; `options` are those of `score_pairs`."""
        n_images = _count(images, options.get("regions"))
        pairs = np.indices((len(texts), n_images)).reshape(2, -1).T
        return self.score_pairs(texts, images, pairs, **options).reshape(len(texts), n_images)

    def score_pairs(
        self,
        texts: Sequence[str],
        images: Sequence[ImageLike] | None,
        pairs: np.ndarray,
        *,
        language: str | Sequence[str],
        regions: Sequence[Any] | None = None,
    ) -> np.ndarray:
        """Scores pairs [M, 2] of the indices of a text and an image, float32 [M]; each image is read once. `language`
        is the tag of all texts, or one for each. Texts that are longer than the model reads are cut, and counted."""
        _count(images, regions)
        texts = as_texts(texts, "texts", none_is_fine=True)
        languages = language_for_each(language, len(texts))
        lengths = np.array(token_counts(self.processor.tokenizer, texts))
        scores = np.empty(len(pairs), dtype=np.float32)
        scoring = progress_bar(len(pairs), "Scoring pairs")
        with reporting_cut_texts(texts), evaluation_mode(self.model), scoring as bar:
            distinct = np.unique(pairs[:, 1])
            for first in range(0, len(distinct), _IMAGES_AT_ONCE):
                block = distinct[first : first + _IMAGES_AT_ONCE]
                members = np.flatnonzero(np.isin(pairs[:, 1], block))
                shown: dict[str, list[Any]] = {}
                if images is not None:
                    shown["images"] = [open_image(images[int(row)], called=f"images[{row}]") for row in block]
                if regions is not None:
                    shown["regions"] = [regions[int(row)] for row in block]
                visual = self.processor(**shown, return_tensors="pt")
                # Texts of similar length share a batch, the longest first, as in `Embedder.encode_text`.
                members = members[np.argsort(-lengths[pairs[members, 0]], kind="stable")]
                for start in range(0, len(members), self.batch_size):
                    chosen = members[start : start + self.batch_size]
                    rows = torch.from_numpy(np.searchsorted(block, pairs[chosen, 1]))
                    words, tags = ([given[text] for text in pairs[chosen, 0]] for given in (texts, languages))
                    inputs = self.processor(text=words, language=tags, return_tensors="pt")
                    inputs.update({name: given[rows] for name, given in visual.items()})
                    output = self.model(**inputs.to(self.model.device, self.model.dtype))
                    scores[chosen] = output.scores.float().cpu().numpy()
                    bar.update(len(chosen))
        if bad := np.flatnonzero(~np.isfinite(scores)).tolist():
            text, image = pairs[bad[0]]
            raise InputError(f"{texts[text]!r} with image {image} has a score that is NaN or infinite")
        return scores


def _count(images: Sequence[Any] | None, regions: Sequence[Any] | None) -> int:
    counts = {len(each) for each in (images, regions) if each is not None}
    if len(counts) != 1:
        raise InputError(f"give images=, regions=, or both of the same images: {sorted(counts) or 'none'} were given")
    return counts.pop()


# ---- Reranking: a dual encoder finds the best k candidates of a query, and a cross-encoder reorders them ----
# The other items keep the dual encoder's order. Ties count against the query, as in `evaluation.ranking`: an item is
# on the shortlist when it is among the best k even if all items that tie with it come before it.

_ABOVE_COSINES = 2.0  # the scores of candidates on a shortlist


@dataclass(frozen=True)
class Reranker:
    """A cross-encoder that reorders the `top_k` best candidates of a dual encoder, for `evaluate_retrieval`.
    `regions` computes the region features that it reads instead of a set's images:
    `lambda queries: extractor(queries.images)`, or
    `lambda queries: [features[image_id] for image_id in queries.image_ids]`."""

    cross_encoder: CrossEncoder
    top_k: int = 50
    regions: Callable[[RetrievalSet], Sequence[Any]] | None = None

    def scores(
        self, queries: RetrievalSet, image_embeddings: np.ndarray, text_embeddings: np.ndarray
    ) -> tuple[Scores, Scores]:
        """The scores of texts with all images, and of images with all texts: cosines, but for the candidates those of
        the cross-encoder, above all cosines. Each pair is scored once. Ties are within `COSINE_TIE`."""
        shown, regions = (queries.images, None) if self.regions is None else (None, self.regions(queries))
        if isinstance(shown, ImageFeatures):
            raise InputError("a cross-encoder reads images or regions, and not features of images: give regions=")
        cosines = unit_rows(text_embeddings) @ unit_rows(image_embeddings).T  # [n_texts, n_images]
        of_texts, of_images = _shortlists(cosines, self.top_k), _shortlists(cosines.T, self.top_k).T
        pairs = (of_texts | of_images).nonzero()
        scores = self.cross_encoder.score_pairs(
            queries.texts, shown, pairs.numpy(), language=queries.language, regions=regions
        )
        levels = cosines.clone()
        places = torch.from_numpy(np.unique(scores, return_inverse=True)[1])
        levels[pairs[:, 0], pairs[:, 1]] = _ABOVE_COSINES + places.float()
        by_text, by_image = torch.where(of_texts, levels, cosines), torch.where(of_images, levels, cosines).T
        return by_text.__getitem__, by_image.__getitem__


def _shortlists(scores: Tensor, top_k: int) -> Tensor:
    """Returns whether items are among the best of each query, by scores [n, m]: boolean [n, m]."""
    if top_k >= scores.shape[1]:
        return torch.ones_like(scores, dtype=torch.bool)
    first_left_out = scores.topk(top_k + 1).values[:, -1:]
    return scores - COSINE_TIE > first_left_out
