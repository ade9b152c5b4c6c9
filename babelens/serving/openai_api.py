"""OpenAI's `/v1/embeddings` and `/v1/models`: programs that embed texts by that API use the server as it is.

https://platform.openai.com/docs/api-reference/embeddings
"""

import asyncio
import base64
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from ..configuration.errors import BabelensError
from ..configuration.languages import normalize_language
from ..processing.text_inputs import default_language
from .gate import OPENAI_PATH, error_content
from .service import ImageService

MOST_TEXTS = 2048  # of a request, as OpenAI's own


class EmbeddingRequest(BaseModel):
    """What is embedded, and how."""

    model_config = ConfigDict(extra="ignore")

    input: Annotated[str | list[str], Field(description="A text, or a list of texts.")]
    model: str = Field(description="The name of the model, as `/v1/models` lists it.")
    encoding_format: Literal["float", "base64"] = Field(
        default="float", description="Numbers, or the bytes of float32 numbers (little-endian) in base64."
    )
    dimensions: int | None = Field(
        default=None, ge=1, description="The first numbers of each embedding alone, scaled to unit length."
    )
    language: str | None = Field(
        default=None,
        max_length=64,
        description="The language of the texts, a BCP-47 tag. OpenAI's API has no such key.",
    )


class OpenAIError(BabelensError):
    """A request that is refused in OpenAI's form, with a status, a sentence, the argument and a code."""

    def __init__(self, status: int, sentence: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.param, self.code = status, sentence, param, code


def add_openai_api(app: FastAPI, service: ImageService) -> None:
    """Adds both addresses to an application."""
    name = service.model.rstrip("/").rpartition("/")[2]

    @app.get(f"{OPENAI_PATH}models", summary="The model, as OpenAI's API lists models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [{"id": name, "object": "model", "created": 0, "owned_by": "babelens"}]}

    @app.post(f"{OPENAI_PATH}embeddings", summary="Embeddings of texts, as OpenAI's API gives them")
    async def embeddings(given: EmbeddingRequest) -> dict[str, Any]:
        """Texts are cut where the model cuts them. The embeddings are of unit length."""
        texts = [given.input] if isinstance(given.input, str) else given.input
        if not texts or len(texts) > MOST_TEXTS:
            raise OpenAIError(400, f"input: there are {len(texts)} texts; give 1 to {MOST_TEXTS}", "input")
        if given.model not in (name, service.model):
            told = f"model: there is no {given.model!r} here; this server has {name!r}"
            raise OpenAIError(404, told, "model", "model_not_found")
        stated = given.language or service.default_language
        tag = normalize_language(stated) if stated else default_language(service.embedder.processor)
        found, step = list[np.ndarray](), service.limits.batch_size
        for start in range(0, len(texts), step):  # no more at a time, so that searches get their turn
            part = [service.text_embedding(text, tag) for text in texts[start : start + step]]
            found += await asyncio.gather(*part)
        vectors = _shortened(np.stack(found).astype("<f4"), given.dimensions)
        tokens = await asyncio.to_thread(_count_tokens, service, texts, tag)
        return {
            "object": "list",
            "data": [
                {"object": "embedding", "index": index, "embedding": _encoded(vector, given.encoding_format)}
                for index, vector in enumerate(vectors)
            ],
            "model": name,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }

    @app.exception_handler(OpenAIError)
    async def refused(request: Request, error: OpenAIError) -> JSONResponse:
        content = error_content(OPENAI_PATH, error.status, error.sentence, error.param, error.code)
        return JSONResponse(content, error.status)


def _shortened(vectors: np.ndarray, width: int | None) -> np.ndarray:
    if width is None or width == vectors.shape[1]:
        return vectors
    if width > vectors.shape[1]:
        raise OpenAIError(400, f"dimensions: {width} are more than the {vectors.shape[1]} of the model", "dimensions")
    short = vectors[:, :width]
    return short / np.maximum(np.linalg.norm(short, axis=1, keepdims=True), np.finfo(np.float32).tiny)


def _encoded(vector: np.ndarray, form: str) -> list[float] | str:
    return base64.b64encode(vector.tobytes()).decode() if form == "base64" else vector.tolist()


def _count_tokens(service: ImageService, texts: list[str], language: str) -> int:
    """The number of tokens that the model reads of the texts."""
    inputs: Mapping[str, Any] = service.embedder.process_texts(texts, [language] * len(texts))
    if "texts" in inputs:  # sentence-transformers prepares them itself
        inputs = service.embedder.model.prepared_texts(texts)
    return int(inputs["attention_mask"].sum() if "attention_mask" in inputs else inputs["input_ids"].numel())
