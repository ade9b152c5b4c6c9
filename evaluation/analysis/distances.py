"""Distance ratios: how training moves languages closer to each other (RC3, arXiv 2305.07927, appendix C, figure 5).

The paper takes an image with its English text as the anchor, and the same image with a text in another language. The
ratio is the Euclidean distance of their representations in a model trained with a term of the loss (in the paper, the
regularization KL(P_vtr || P_tr)), divided by their distance in a model trained without it. A ratio below 1 means that
training has brought the language closer to the anchor. RC3 reads a text together with its image, so the representation
is its VtR, the state at [CLS]. For a dual encoder, the representation is the embedding of the text, which does not
depend on the image.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from transformers import PreTrainedModel, ProcessorMixin

from ...inference.embedder import ImageLike
from ...modeling.encoding import evaluation_mode, progress_bar
from ...utils.errors import InputError


@dataclass(frozen=True)
class DistanceRatios:
    """The distances of languages to an anchor in two models.

    Args:
        anchor: the language of the anchor. languages: the other languages, BCP-47 tags, [L].
        ids: the image of each index, [N].
        distances, baseline_distances: the distances for each language and image, in the model and in the baseline, [L,
            N].
        ratios: the distances divided by the baseline's, [L, N]; null if the baseline's distance is 0.
        median: language -> the median of its ratios.
        nearer: language -> the percentage of images with a ratio below 1.
    """

    anchor: str
    languages: list[str]
    ids: list[str]
    distances: np.ndarray
    baseline_distances: np.ndarray
    ratios: np.ndarray
    median: dict[str, float]
    nearer: dict[str, float]


def distance_ratios(
    representations: Mapping[str, np.ndarray], baseline: Mapping[str, np.ndarray], ids: Sequence[str], *, anchor: str
) -> DistanceRatios:
    """Compares the distances to an anchor in two models.

    Args:
        representations: language -> the representations of parallel captions, [N, d], with their images
            (`joint_representations`) or without (`encode_parallel`).
        baseline: the same for the model trained without the term, [N, e].
        ids: the `image_id` of each index, [N].
        anchor: the language of the anchor.
    """
    languages = [language for language in representations if language != anchor]
    for name, given in (("the model", representations), ("the baseline", baseline)):
        if missing := [language for language in (anchor, *languages) if language not in given]:
            raise InputError(f"{name} has no representations in {', '.join(missing)}")
        if {len(each) for each in given.values()} != {len(ids)}:
            raise InputError(f"{name}: there are {len(ids)} ids, but not every language has as many representations")
    if not languages:
        raise InputError(f"there is no language other than the anchor {anchor}")
    own, base = (
        np.stack([np.linalg.norm(given[language] - given[anchor], axis=1) for language in languages])
        for given in (representations, baseline)
    )
    ratios = np.divide(own, base, out=np.full_like(own, np.nan), where=base > 0)
    for language, row in zip(languages, ratios, strict=True):
        if np.isnan(row).all():
            raise InputError(f"the baseline does not distinguish {language} from {anchor}: all distances are 0")
    return DistanceRatios(
        anchor=anchor,
        languages=languages,
        ids=list(ids),
        distances=own,
        baseline_distances=base,
        ratios=ratios,
        median={language: float(np.nanmedian(row)) for language, row in zip(languages, ratios, strict=True)},
        nearer={
            language: 100 * float(np.mean(row[np.isfinite(row)] < 1))
            for language, row in zip(languages, ratios, strict=True)
        },
    )


def joint_representations(
    model: PreTrainedModel,
    processor: ProcessorMixin,
    texts: Mapping[str, Sequence[str]],
    images: Sequence[ImageLike],
    *,
    find_regions: Callable[[Sequence[Any]], np.ndarray] | None = None,
    batch_size: int = 64,
    show_progress: bool | None = None,
) -> dict[str, np.ndarray]:
    """Returns RC3's joint representations of texts and their images (VtR): language -> float32 [N, d].

    Args:
        model: an `Rc3Model`, whose encoder reads a text together with an image.
        processor: its processor.
        texts: language -> the texts of the images, [N].
        images: the images, [N], read on each access.
        find_regions: computes the regions of images for a model that reads regions, such as a `RegionExtractor`.
        batch_size: the number of texts to read at a time.
        show_progress: as in `Embedder.encode_text`.
    """
    if {len(each) for each in texts.values()} != {len(images)}:
        raise InputError(f"there are {len(images)} images, but not every language has as many texts")
    found: dict[str, list[np.ndarray]] = {language: [] for language in texts}
    bar = progress_bar(len(images), "Encoding texts with images", show_progress)
    with evaluation_mode(model), bar:
        for start in range(0, len(images), batch_size):
            rows = range(start, min(start + batch_size, len(images)))
            batch = [images[row] for row in rows]
            visual: dict[str, Any] = {"images": batch}
            if find_regions is not None:
                visual = {"regions": list(find_regions(batch))} | (visual if model.config.has_patches else {})
            for language, given in texts.items():
                inputs = processor(text=[given[row] for row in rows], language=language, return_tensors="pt", **visual)
                states = model.encode(**inputs.to(model.device, model.dtype)).pooler_output  # [n, d]
                found[language].append(states.float().cpu().numpy())
            bar.update(len(rows))
    representations = {language: np.concatenate(parts) for language, parts in found.items()}
    for language, rows_of in representations.items():
        if not np.isfinite(rows_of).all():
            raise InputError(f"the representations of {type(model).__name__} in {language} are not finite")
    return representations
