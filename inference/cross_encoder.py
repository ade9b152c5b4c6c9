"""The cross-encoder: how well texts and images fit, each pair read together by one model.

What `Embedder` is for dual encoders, for `Rc3ForImageTextRetrieval` (Zhou et al. 2023, appendix B). A cross-encoder is
the better judge and costs a pass of the whole model for every pair, where a dual encoder costs one for every text and
every image: on large galleries, let it judge what a dual encoder found (`reranking.Reranker`).
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForMultipleChoice, AutoProcessor, BatchFeature, PreTrainedModel, ProcessorMixin

from ..configuration.errors import ModelKindError, NonFiniteError
from ..configuration.languages import language_for_each
from ..configuration.pretrained import load_model, load_processor
from ..processing.image_inputs import as_rgb_image
from ..processing.text_inputs import as_texts, counting_cut_texts
from .embedder import ImageLike, default_device, evaluation_mode, progress_bar

# Images whose inputs are held at once: 150 MB of 224 x 224 pixels in float32.
_IMAGES_AT_ONCE = 256


class CrossEncoder:
    """Scores of texts with images, higher where they fit better; scores of one model can be compared.

    As with `Embedder`, the model is in eval mode meanwhile and draws no random numbers. Images are Pillow images,
    arrays [height, width, 3] or paths, in any sequence that loads one when it is asked for. A model that reads the
    regions of an object detector is given `regions`, features [R, region_size] of each image, in place of the
    images or beside them.

    Args:
        model: takes texts with images, and answers with `scores` [N].
        processor: its processor, which takes `language=`.
        find_regions: N images -> their regions [N, R, region_size], such as a `RegionExtractor`, where nobody gives
            them.
        batch_size: pairs scored at a time.
        device, dtype: as in `Embedder`.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        processor: ProcessorMixin,
        *,
        find_regions: Callable[[Sequence[Any]], np.ndarray] | None = None,
        batch_size: int = 64,
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        if device is not None or dtype is not None:
            model = model.to(device=device, dtype=dtype)
        self.model = model
        self.processor = processor
        self.find_regions = find_regions
        self.batch_size = batch_size

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
        """Loads model and processor from a folder or from the Hub; arguments as in `Embedder.from_pretrained`.

        Raises:
            ModelFolderError: when there is no such folder or repository, or it lacks weights or a processor; so does
                a model that was never trained as a cross-encoder.
            ModelKindError: when the model is no cross-encoder.
        """
        try:
            model = load_model(AutoModelForMultipleChoice, folder_or_repo, **loading)
        except ModelKindError as error:
            raise ModelKindError(f"{folder_or_repo} is no cross-encoder: {error}") from error
        processor = load_processor(AutoProcessor, folder_or_repo, **loading)
        return cls(model, processor, batch_size=batch_size, device=device or default_device(), dtype=dtype)

    def score(
        self,
        texts: Sequence[str],
        images: Sequence[ImageLike] | None = None,
        *,
        language: str | Sequence[str],
        regions: Sequence[Any] | None = None,
        show_progress: bool | None = None,
    ) -> np.ndarray:
        """The scores of each text with the image at its place, float32 [N].

        Args:
            texts: of any length; those that are longer than the model reads are cut, and counted in the log.
            images, regions: as many as texts.
            language: BCP-47 tag of all texts, or one for each.
            show_progress: as in `Embedder.encode_text`.

        Raises:
            LanguageTagError: for an unknown language.
            UnknownLanguageError: for a language that the model has not learned.
            ImageError: for an image that cannot be read.
            InputError: for images or regions that the model has no layer for.
            NonFiniteError: when a score is not finite.
            ValueError: when there are not as many images, or languages, as texts.
        """
        pairs = np.repeat(np.arange(len(texts))[:, None], 2, axis=1)
        if any(len(given) != len(texts) for given in (images, regions) if given is not None):
            raise ValueError(f"{len(texts)} texts need as many images: score_all scores each text with each image")
        return self.score_pairs(texts, images, pairs, language=language, regions=regions, show_progress=show_progress)

    def score_all(
        self,
        texts: Sequence[str],
        images: Sequence[ImageLike] | None = None,
        *,
        language: str | Sequence[str],
        regions: Sequence[Any] | None = None,
        show_progress: bool | None = None,
    ) -> np.ndarray:
        """The scores of every text with every image, float32 [n_texts, n_images]: what `score_ranks` takes.

        Arguments and errors are those of `score`.
        """
        n_images = _count(images, regions)
        pairs = np.indices((len(texts), n_images)).reshape(2, -1).T
        scores = self.score_pairs(
            texts, images, pairs, language=language, regions=regions, show_progress=show_progress
        )
        return scores.reshape(len(texts), n_images)

    def score_pairs(
        self,
        texts: Sequence[str],
        images: Sequence[ImageLike] | None,
        pairs: np.ndarray,
        *,
        language: str | Sequence[str],
        regions: Sequence[Any] | None = None,
        show_progress: bool | None = None,
    ) -> np.ndarray:
        """The scores of some of the texts with some of the images, float32 [M]; each image is read once.

        Args:
            pairs ([M, 2]): positions of a text and of an image.

        Other arguments, and errors, are those of `score`.
        """
        _count(images, regions)
        texts = as_texts(texts, "texts", none_is_fine=True)
        languages = language_for_each(language, len(texts))
        lengths = np.array([len(tokens) for tokens in self._tokens(texts)])
        scores = np.empty(len(pairs), dtype=np.float32)
        scoring = progress_bar(len(pairs), "Scoring pairs", show_progress)
        with counting_cut_texts() as cut, evaluation_mode(self.model), scoring as bar:
            for block, members in _blocks(pairs[:, 1]):
                visual = self._visual_inputs(images, regions, block)
                # Texts of similar length share a batch, the longest first, as in `Embedder.encode_text`.
                members = members[np.argsort(-lengths[pairs[members, 0]], kind="stable")]
                for start in range(0, len(members), self.batch_size):
                    chosen = members[start : start + self.batch_size]
                    rows = torch.from_numpy(np.searchsorted(block, pairs[chosen, 1]))
                    read = [(texts[text], languages[text]) for text in pairs[chosen, 0]]
                    scores[chosen] = self._scores(read, {name: given[rows] for name, given in visual.items()})
                    bar.update(len(chosen))
        cut.warn(texts)
        if bad := np.flatnonzero(~np.isfinite(scores)).tolist():
            text, image = pairs[bad[0]]
            raise NonFiniteError(f"{texts[text]!r} with image {image} has a score that is NaN or infinite")
        return scores

    def _tokens(self, texts: Sequence[str]) -> list[list[int]]:
        return self.processor.tokenizer(list(texts), verbose=False)["input_ids"] if len(texts) else []

    def _visual_inputs(
        self, images: Sequence[ImageLike] | None, regions: Sequence[Any] | None, rows: np.ndarray
    ) -> BatchFeature:
        """What the model reads of some images, on the CPU."""
        given: dict[str, list[Any]] = {}
        if images is not None:
            given["images"] = [as_rgb_image(images[int(row)], f"images[{row}]") for row in rows]
        if regions is not None:
            given["regions"] = [regions[int(row)] for row in rows]
        elif self.find_regions is not None and images is not None:
            given["regions"] = list(self.find_regions(given["images"]))
            if not self.model.config.has_patches:
                del given["images"]
        return self.processor(**given, return_tensors="pt")

    def _scores(self, texts: list[tuple[str, str]], visual: dict[str, Tensor]) -> np.ndarray:
        """Of texts with their languages, and of as many images."""
        words, languages = zip(*texts, strict=True)
        inputs = self.processor(text=list(words), language=list(languages), return_tensors="pt")
        inputs.update(visual)
        output = self.model(**inputs.to(self.model.device, self.model.dtype))
        if not hasattr(output, "scores"):
            raise TypeError(f"{type(self.model).__name__} is no cross-encoder: its output has no scores")
        return output.scores.float().cpu().numpy()


def _count(images: Sequence[Any] | None, regions: Sequence[Any] | None) -> int:
    """How many images there are."""
    if images is None and regions is None:
        raise ValueError("give images=, regions=, or both")
    given = [len(each) for each in (images, regions) if each is not None]
    if len(set(given)) > 1:
        raise ValueError(f"{given[0]} images and {given[1]} regions: give both of the same images")
    return given[0]


def _blocks(images: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Some images at a time, ascending, with the positions of all pairs of which they are part."""
    order = np.argsort(images, kind="stable")
    distinct, starts = np.unique(images[order], return_index=True)
    for first in range(0, len(distinct), _IMAGES_AT_ONCE):
        last = first + _IMAGES_AT_ONCE
        end = starts[last] if last < len(starts) else None
        yield distinct[first:last], order[starts[first] : end]
