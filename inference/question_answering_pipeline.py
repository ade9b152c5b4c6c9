"""The pipeline `visual-question-answering` with a language: questions about images, such as xGQA's.

    answer = pipeline("visual-question-answering", model="runs/rc3-xgqa")
    answer("car.jpg", "Welche Farbe hat das Auto?", language="de")  # [{"score": 0.7, "answer": "red"}]
    answer([{"image": "car.jpg", "question": "是什么颜色？", "language": "zh"}], top_k=3, batch_size=8)

transformers removed the task in version 5; it is called as it was there.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from torch import Tensor
from transformers.pipelines.base import Pipeline

from ..configuration.errors import InputError
from ..processing.text_inputs import takes_language
from .pipeline_inputs import Rows, as_rows, fetched, stated


class QuestionAnsweringPipeline(Pipeline):
    """Answers questions with the answers that a model was trained on, best first, as `{"score", "answer"}`; each score
    is the probability that the answer is right."""

    hub_task: ClassVar[tuple[str, str]] = ("visual-question-answering", "AutoModelForVisualQuestionAnswering")
    _load_processor = True
    _load_image_processor = _load_feature_extractor = _load_tokenizer = False

    def __call__(
        self, image: Any, question: str | list[str] | None = None, *, language: str | None = None, **kwargs: Any
    ) -> Any:
        """Answers a question about an image, or several.

        Args:
            image: an image (a Pillow image, an array, a path or an address); or all in one: `{"image", "question",
                "language", "regions"}`, of which the last two may be left out, or a list, a data set or a generator
                of such items.
            question: the question about the image; a list of questions is asked about the same image or, with a list
                of images, each about its own.
            language: the BCP-47 tag of the questions that do not name theirs.
            kwargs: `top_k`, the number of answers to each question, by default 1; and what every pipeline takes, such
                as `batch_size`.

        Returns:
            The answers to a question, `[{"score", "answer"}, …]`, or a list of them for several.

        Raises:
            ImageError: for an image that cannot be read.
            InputError: when there are not as many images as questions, or an item has no question.
            MissingLanguageError: when the model reads a language and there is none.
            UnknownLanguageError: for a language that the model has not learned.
        """
        if question is None:
            asked = image
        elif isinstance(question, str) and not isinstance(image, list):
            asked = {"image": image, "question": question}
        else:
            asked = _paired(image, question)
        return super().__call__(asked, **kwargs, **({} if language is None else {"language": language}))

    def _sanitize_parameters(
        self,
        top_k: int | None = None,
        language: str | None = None,
        timeout: float | None = None,
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        given = {"language": language, "timeout": timeout}
        preprocessing = {name: value for name, value in given.items() if value is not None}
        return preprocessing, {}, {} if top_k is None else {"top_k": top_k}

    def preprocess(self, asked: Any, language: str | None = None, timeout: float | None = None) -> Rows:
        """A question with its image, for the processor."""
        if not (isinstance(asked, Mapping) and isinstance(asked.get("question"), str)):
            raise InputError(f"a question is given with its image, {{'image': …, 'question': '…'}}, not {asked!r}")
        row: Rows = {"images": fetched(asked.get("image"), timeout), "text": asked["question"]}
        if takes_language(self.processor):
            regions = asked.get("regions")
            row["language"] = stated(asked, "language", language)
            row["regions"] = None if regions is None else np.asarray(regions)
        return row

    def _forward(self, inputs: Rows) -> Tensor:
        """Logits [N, answers]."""
        return self.model(**prepared(self, as_rows(inputs))).logits

    def postprocess(self, logits: Tensor, top_k: int = 1) -> list[dict[str, Any]]:
        found = logits.float().sigmoid().flatten().sort(descending=True, stable=True)  # [answers]
        pairs = zip(found.values.tolist(), found.indices.tolist(), strict=True)
        return [{"score": score, "answer": self.model.config.id2label[index]} for score, index in pairs][:top_k]


def prepared(pipeline: Pipeline, rows: Rows) -> Any:
    """The inputs of a model that reads texts with images, from the rows of a batch."""
    given: Rows = {name: values for name, values in rows.items() if any(value is not None for value in values)}
    if "language" not in given:
        # The processor of such a model asks for it; others pad only when they are told.
        given |= {} if takes_language(pipeline.processor) else {"padding": True}
    return pipeline.processor(**given, return_tensors="pt").to(pipeline.device, pipeline.dtype)


def _paired(images: Any, questions: str | list[str]) -> list[dict[str, Any]]:
    many = questions if isinstance(questions, list) else [questions] * len(images)
    each = images if isinstance(images, list) else [images] * len(many)
    if len(each) != len(many):
        raise InputError(f"{len(each)} images came with {len(many)} questions: give one for each, or one image")
    return [{"image": image, "question": question} for image, question in zip(each, many, strict=True)]
