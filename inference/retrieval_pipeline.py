"""The pipeline `image-text-retrieval`: a cross-encoder ranks images for a text, or texts for an image.

    retrieve = pipeline("image-text-retrieval", model="runs/rc3-retrieval")
    retrieve("ein rotes Auto", images=["a.jpg", "b.jpg"], language="de")  # [{"score": 3.1, "index": 1}, …]
    retrieve("b.jpg", texts=["ein rotes Auto", "ein Hund"], language="de")

transformers has no task of this kind; saved models hold the code of this one. Every candidate takes a pass of the
model; in a large gallery, rerank what a dual encoder finds (`inference.cross_encoder`).
"""

from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers.pipelines.base import Pipeline

from ..configuration.errors import InputError
from .pipeline_inputs import fetched

_CANDIDATES_AT_ONCE = 64
_PARTS = ("text", "visual", "candidates")


class ImageTextRetrievalPipeline(Pipeline):
    """Ranks candidates for a query, best first, as `{"score", "index"}`; a higher score means a better fit."""

    hub_task: ClassVar[tuple[str, str]] = ("image-text-retrieval", "AutoModelForMultipleChoice")
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
        """Ranks the candidates of a query, or of each query in a list.

        Args:
            query: a text for `images`, or an image (a Pillow image, a path or an address) for `texts`.
            language: the BCP-47 tag of the texts.
            images, texts: the candidates, either images or texts.
            top_k: number of candidates to return; by default all.
            kwargs: what every pipeline takes.

        Raises:
            InputError: when there are no candidates, or candidates of both kinds.
            UnknownLanguageError: for a language that the model has not learned.
        """
        if (images is None) == (texts is None) or not (images or texts):
            raise InputError("give images= to find images by a text, or texts= to find texts by an image")
        candidates = {"images": images, "texts": texts}
        return super().__call__(query, language=language, top_k=top_k, **candidates, **kwargs)

    def _sanitize_parameters(
        self, top_k: int | None = None, **preprocessing: Any
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        return preprocessing, {}, {"top_k": top_k}

    def preprocess(
        self, query: Any, language: str, images: list[Any] | None = None, texts: list[str] | None = None
    ) -> dict[str, Any]:
        """The model's inputs: [1, …] for the query, [n, …] for the candidates."""
        loaded = [fetched(image) for image in images or [query]]
        words = self.processor(text=texts or [query], language=language, return_tensors="pt")
        visual = self.processor(images=loaded, return_tensors="pt").to(self.dtype)
        return dict(zip(_PARTS, (dict(words), dict(visual), len(texts or loaded)), strict=True))

    def _forward(self, inputs: dict[str, Any]) -> Tensor:
        """The scores of all candidates, [n]; for a batch of queries, whose inputs are lists, [queries, n]."""
        if isinstance(inputs["candidates"], int):
            return self._scores(**inputs)
        return torch.stack([self._scores(*each) for each in zip(*map(inputs.get, _PARTS), strict=True)])

    def _scores(self, text: dict[str, Tensor], visual: dict[str, Tensor], candidates: int) -> Tensor:
        """The scores of one query with its candidates, [n], some candidates at a time."""
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
    """The inputs of some candidates; or the single row of the query, repeated for each of them."""
    return given.expand(len(rows), *given.shape[1:]) if len(given) == 1 else given[rows.to(given.device)]
