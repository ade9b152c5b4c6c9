"""transformers' pipelines of RC3's tasks, with languages, and the module with which sentence-transformers runs its
cross-encoder. Saved models hold the code of these.

    retrieve = pipeline("image-text-retrieval", model="runs/rc3-retrieval")
    retrieve("ein rotes Auto", images=["a.jpg", "b.jpg"], language="de")  # [{"score": 3.1, "index": 1}, …]
    answer = pipeline("visual-question-answering", model="runs/rc3-xgqa")
    answer("car.jpg", "Welche Farbe hat das Auto?", language="de")  # [{"score": 0.7, "answer": "red"}]
    translate = pipeline("image-text-to-text", model="runs/rc3-translation")
    translate("bank.jpg", "He sits on the bank.", language="en", target_language="de")
    # [{"input_text": "He sits on the bank.", "generated_text": "Er sitzt am Ufer."}]

For a model whose processor reads no language, the third one is transformers' own pipeline.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForMultipleChoice, BatchFeature
from transformers.pipelines.base import Pipeline
from transformers.pipelines.image_text_to_text import ImageTextToTextPipeline

from ..processing.images import truncated_repr
from ..processing.processing_dual_encoder import takes_language
from ..utils.errors import InputError
from .pipelines import Parameters, Rows, as_rows, fetched, stated
from .sentence_modules import DualEncoderModule, read_input

_CANDIDATES_AT_ONCE = 64

logger = logging.getLogger(__name__)


def _check_visual_inputs(pipeline: Pipeline, *, pixels: bool, regions: bool) -> None:
    """Refuses pixels for a model of regions, and warns once if a model of both gets no regions."""
    visual = getattr(pipeline.model.config, "visual", None)
    if pixels and not regions and visual == "regions":
        raise InputError("this model reads images as regions, the features of an object detector, and no pixels")
    if pixels and not regions and visual == "both" and not getattr(pipeline, "has_warned", False):
        pipeline.has_warned = True
        logger.warning("this model was measured with pixels and regions; it reads pixels alone: no regions were given")


def _best(scores: Tensor, top_k: int | None, name: str, values: Mapping[int, str] | None = None) -> list[Any]:
    """The highest scores, first, with their indices or the values of these."""
    found = scores.float().flatten().sort(descending=True, stable=True)  # [1, n]
    pairs = list(zip(found.values.tolist(), found.indices.tolist(), strict=True))[:top_k]
    return [{"score": score, name: values[index] if values else index} for score, index in pairs]


class ImageTextRetrievalPipeline(Pipeline):
    """Ranks candidates for a query, best first, as `{"score", "index"}`. Every candidate takes a pass of the model; in
    a large gallery, rerank the best of a dual encoder (`inference.cross_encoder`)."""

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
        """Ranks the best `top_k` candidates, by default all, of a query, or of each query in a list: `images` for a
        text, or `texts` for an image (a Pillow image, a path or an address)."""
        if (images is None) == (texts is None) or not (images or texts):
            raise InputError("give images= to find images by a text, or texts= to find texts by an image")
        candidates = {"images": images, "texts": texts}
        return super().__call__(query, language=language, top_k=top_k, **candidates, **kwargs)

    def _sanitize_parameters(self, top_k: int | None = None, **preprocessing: Any) -> Parameters:
        return preprocessing, {}, {"top_k": top_k}

    def preprocess(
        self, query: Any, language: str, images: list[Any] | None = None, texts: list[str] | None = None
    ) -> dict[str, Any]:
        """The model's inputs: [1, …] for the query, [n, …] for the candidates."""
        _check_visual_inputs(self, pixels=True, regions=False)
        loaded = [fetched(image) for image in images or [query]]
        words = self.processor(text=texts or [query], language=language, return_tensors="pt")
        visual = self.processor(images=loaded, return_tensors="pt").to(self.dtype)
        return {"inputs": {**words, **visual}, "candidates": len(texts or loaded)}

    def _forward(self, queries: Rows) -> Tensor:
        """The scores of all candidates, [queries, n]."""
        rows = as_rows(queries)
        return torch.stack([self._scores(*each) for each in zip(rows["inputs"], rows["candidates"], strict=True)])

    def _scores(self, inputs: dict[str, Tensor], candidates: int) -> Tensor:
        """The scores of one query with its candidates, [n], some candidates at a time."""

        def rows(given: Tensor, chunk: Tensor) -> Tensor:  # the single row of the query is repeated
            return given.expand(len(chunk), *given.shape[1:]) if len(given) == 1 else given[chunk.to(given.device)]

        return torch.cat(
            [
                self.model(**{name: rows(given, chunk) for name, given in inputs.items()}).scores
                for chunk in torch.arange(candidates).split(_CANDIDATES_AT_ONCE)
            ]
        )

    def postprocess(self, scores: Tensor, top_k: int | None = None) -> list[dict[str, Any]]:
        return _best(scores, top_k, "index")


class QuestionAnsweringPipeline(Pipeline):
    """Answers questions from the answers of training, best first: `{"score", "answer"}`, with probabilities."""

    hub_task: ClassVar[tuple[str, str]] = ("visual-question-answering", "AutoModelForVisualQuestionAnswering")
    _load_processor = True
    _load_image_processor = _load_feature_extractor = _load_tokenizer = False

    def __call__(
        self, image: Any, question: str | list[str] | None = None, *, language: str | None = None, **kwargs: Any
    ) -> Any:
        """Answers a question about an image, or several: `[{"score", "answer"}, …]`, or a list of these. `image` may
        be all in one, `{"image", "question", "language", "regions"}`, where the last two are optional, or a list, a
        data set or a generator of them. `question` may be a list, about the same image or, with a list of images, each
        about its own. `kwargs` are `top_k`, by default 1, and what every pipeline takes."""
        asked = _paired("image", image, "question", question)
        return super().__call__(asked, **kwargs, **({} if language is None else {"language": language}))

    def _sanitize_parameters(self, top_k: int | None = None, **given: Any) -> Parameters:
        return given, {}, {} if top_k is None else {"top_k": top_k}

    def preprocess(self, asked: Any, language: str | None = None, timeout: float | None = None) -> Rows:
        row = _row(asked, "image", "question", timeout)
        return row | {"language": stated(asked, "language", language)} if takes_language(self.processor) else row

    def _forward(self, inputs: Rows) -> Tensor:
        """Logits [N, answers]."""
        return self.model(**prepared(self, as_rows(inputs))).logits

    def postprocess(self, logits: Tensor, top_k: int = 1) -> list[dict[str, Any]]:
        return _best(logits.float().sigmoid(), top_k, "answer", self.model.config.id2label)


def _paired(image_name: str, images: Any, text_name: str, texts: Any) -> Any:
    """Images with texts as items by these names; a single one goes with each of several others."""
    if texts is None:
        return images
    if not isinstance(images, list) and not isinstance(texts, list):
        return {image_name: images, text_name: texts}
    texts = texts if isinstance(texts, list) else [texts] * len(images)
    images = images if isinstance(images, list) else [images] * len(texts)
    if len(images) != len(texts):
        raise InputError(f"{len(images)} images came with {len(texts)} texts: give one for each")
    return [{image_name: image, text_name: text} for image, text in zip(images, texts, strict=True)]


def _row(item: Any, image_name: str, text_name: str, timeout: float | None) -> Rows:
    if not (isinstance(item, Mapping) and isinstance(item.get(text_name), str)):
        raise InputError(f"give an image with its text, {{{image_name!r}: …, {text_name!r}: '…'}}, not {item!r}")
    regions = None if item.get("regions") is None else np.asarray(item["regions"])
    return {"images": fetched(item.get(image_name), timeout), "text": item[text_name], "regions": regions}


def prepared(pipeline: Pipeline, rows: Rows) -> Any:
    """The inputs of a model that reads texts with images, from the rows of a batch."""
    given: Rows = {name: values for name, values in rows.items() if any(value is not None for value in values)}
    _check_visual_inputs(pipeline, pixels="images" in given, regions="regions" in given)
    if "language" not in given and not takes_language(pipeline.processor):
        given["padding"] = True  # which processors of babelens do by themselves
    return pipeline.processor(**given, return_tensors="pt").to(pipeline.device, pipeline.dtype)


class ImageTranslationPipeline(ImageTextToTextPipeline):
    """Writes texts in a language, each from a text and its image: `{"input_text", "generated_text"}`."""

    hub_task: ClassVar[tuple[str, str]] = ("image-text-to-text", "AutoModelForImageTextToText")

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        is_ours = takes_language(kwargs.get("processor"))
        return super().__new__(cls) if is_ours else ImageTextToTextPipeline(*args, **kwargs)

    def check_model_type(self, supported_models: Any) -> None:
        """Checks nothing: transformers' list has only its own models, and would report all others as errors."""

    def __call__(self, images: Any = None, text: Any = None, **kwargs: Any) -> Any:
        """Translates a text, or several: `[{"input_text", "generated_text"}]` for each. `images` are the image of the
        text, if any, or a list; or all in one, a list, data set or generator of
        `{"images", "text", "language", "target_language", "regions"}`, where only `text` is required. `kwargs` are the
        tags `language` and `target_language`; `max_new_tokens` (256), `generate_kwargs`, and any pipeline's."""
        return Pipeline.__call__(self, _paired("images", images, "text", text), **kwargs)

    def _sanitize_parameters(self, **given: Any) -> Parameters:
        options = {name: given.pop(name, None) for name in ("max_new_tokens", "generate_kwargs")}
        _, forward, _ = super()._sanitize_parameters(**options)
        return {name: value for name, value in given.items() if value is not None}, forward, {}

    def preprocess(
        self,
        inputs: Any = None,
        timeout: float | None = None,
        language: str | None = None,
        target_language: str | None = None,
    ) -> Any:
        row = _row(inputs, "images", "text", timeout)
        languages = {"language": language, "target_language": target_language}
        return row | {name: stated(inputs, name, default) for name, default in languages.items()}

    def _forward(self, model_inputs: Rows, generate_kwargs: dict[str, Any] | None = None) -> Any:
        rows = as_rows(model_inputs)
        targets = rows.pop("target_language")
        language = {} if None in targets else {"language": targets}  # which `generate` asks for
        options = self._prepare_generate_kwargs(generate_kwargs or {}, return_dict_in_generate=False)
        written: Tensor = self.model.generate(**prepared(self, rows), **language, **options)
        return {"written": written.unflatten(0, (len(targets), -1)), "text": rows["text"]}  # [N, sequences, U]

    def postprocess(self, model_outputs: Any, **options: Any) -> Any:
        text = model_outputs["text"]
        read = text[0] if isinstance(text, list) else text  # a list of one where there was no batch
        texts = self.processor.batch_decode(model_outputs["written"].flatten(0, 1))
        return [{"input_text": read, "generated_text": written} for written in texts]


class CrossEncoderModule(DualEncoderModule):
    """A model that scores pairs of a text and an image, in either order, in a `CrossEncoder`. Loading, saving and
    languages are those of a dual encoder."""

    auto_model = AutoModelForMultipleChoice
    forward_kwargs: ClassVar[set[str]] = {"language"}
    output = "scores"

    def read_inputs(self, inputs: Sequence[Any]) -> list[dict[str, Any]]:
        items = []
        for index, pair in enumerate(inputs):
            read = [read_input(item) for item in pair]
            if sorted("image" in item for item in read) != [False, True]:
                raise InputError(f"inputs[{index}] must be a pair of a text and an image, not {truncated_repr(pair)}")
            items += read
        return items

    def compute(self, inputs: BatchFeature, task: str | None) -> Tensor:
        """Returns scores [N, 1]."""
        scores: Tensor = self.model(**inputs).scores.float()
        return scores.unsqueeze(1)
