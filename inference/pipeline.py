"""The pipeline `image-text-retrieval`: which images fit a text, or which texts an image, by a cross-encoder.

    retrieve = pipeline("image-text-retrieval", model="runs/rc3-retrieval")
    retrieve("ein rotes Auto", images=["a.jpg", "b.jpg"], language="de")  # [{"score": 3.1, "index": 1}, …]
    retrieve("b.jpg", texts=["ein rotes Auto", "ein Hund"], language="de")

transformers has no task of this kind. Every candidate costs a pass of the model: galleries are reranked
(`evaluation.reranking`), not searched in this way.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForMultipleChoice
from transformers.image_utils import load_image
from transformers.pipelines import PIPELINE_REGISTRY
from transformers.pipelines.base import Pipeline

TASK = "image-text-retrieval"
_CANDIDATES_AT_ONCE = 64
_PARTS = ("text", "visual", "candidates")


class ImageTextRetrievalPipeline(Pipeline):
    """A query and its candidates to the candidates, best first, as `{"score", "index"}`: higher scores fit better."""

    _load_processor = True
    _load_image_processor = _load_feature_extractor = _load_tokenizer = False

    def __call__(
        self,
        query: Any,
        *,
        language: str,
        images: list[Any] | None = None,
        texts: list[str] | None = None,
        top_k: int | None = None,
        **kwargs: Any,
    ) -> list[dict[str, Any]] | list[list[dict[str, Any]]]:
        """
        Args:
            query: a text for `images`, an image (Pillow, path or address) for `texts`; a list of them gives a list.
            language: BCP-47 tag of the texts.
            images, texts: the candidates, of one kind.
            top_k: how many to give; by default all.
            kwargs: as every pipeline takes them.

        Raises:
            ValueError: when there are no candidates, or both kinds.
            UnknownLanguageError: for a language that the model has not learned.
        """
        if (images is None) == (texts is None) or not (images or texts):
            raise ValueError("give images= to find images by a text, or texts= to find texts by an image")
        candidates = {"images": images, "texts": texts}
        return super().__call__(query, language=language, top_k=top_k, **candidates, **kwargs)

    def _sanitize_parameters(
        self, top_k: int | None = None, **preprocessing: Any
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        return preprocessing, {}, {"top_k": top_k}

    def preprocess(
        self, query: Any, language: str, images: list[Any] | None = None, texts: list[str] | None = None
    ) -> dict[str, Any]:
        """What the model reads of one side and of the other: [1, …] of the query, [n, …] of the candidates."""
        loaded = [load_image(image) for image in images or [query]]
        words = self.processor(text=texts or [query], language=language, return_tensors="pt")
        visual = self.processor(images=loaded, return_tensors="pt").to(self.dtype)
        return dict(zip(_PARTS, (dict(words), dict(visual), len(texts or loaded)), strict=True))

    def _forward(self, inputs: dict[str, Any]) -> Tensor:
        """The scores of all candidates, [n]; of a batch of queries, whose inputs come as lists, [queries, n]."""
        if isinstance(inputs["candidates"], int):
            return self._scores(**inputs)
        return torch.stack([self._scores(*each) for each in zip(*map(inputs.get, _PARTS), strict=True)])

    def _scores(self, text: dict[str, Tensor], visual: dict[str, Tensor], candidates: int) -> Tensor:
        """Of one query with its candidates, which are themselves a batch: [n]."""
        scores = []
        for chunk in torch.arange(candidates).split(_CANDIDATES_AT_ONCE):
            rows = {name: _rows(given, chunk) for side in (text, visual) for name, given in side.items()}
            scores.append(self.model(**rows).scores)
        return torch.cat(scores)

    def postprocess(self, scores: Tensor, top_k: int | None = None) -> list[dict[str, Any]]:
        found = scores.float().flatten().sort(descending=True, stable=True)  # [n], or [1, n] out of a batch
        pairs = zip(found.values.tolist(), found.indices.tolist(), strict=True)
        return [{"score": score, "index": index} for score, index in pairs][:top_k]


def _rows(given: Tensor, rows: Tensor) -> Tensor:
    """Those of the candidates, or the query's only one for each of them."""
    return given.expand(len(rows), *given.shape[1:]) if len(given) == 1 else given[rows.to(given.device)]


def register_pipeline() -> None:
    """Makes `transformers.pipeline` know the task; harmless when repeated."""
    if TASK not in PIPELINE_REGISTRY.get_supported_tasks():
        PIPELINE_REGISTRY.register_pipeline(
            TASK, ImageTextRetrievalPipeline, pt_model=AutoModelForMultipleChoice, type="multimodal"
        )
