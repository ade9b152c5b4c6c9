"""transformers' pipeline `image-text-to-text` with languages: texts translated with a look at their image.

    translate = pipeline("image-text-to-text", model="runs/rc3-translation")
    translate("bank.jpg", "He sits on the bank.", language="en", target_language="de")
    # [{"input_text": "He sits on the bank.", "generated_text": "Er sitzt am Ufer."}]

For a model whose processor reads no language, it is transformers' own pipeline.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from torch import Tensor
from transformers.pipelines.base import Pipeline
from transformers.pipelines.image_text_to_text import ImageTextToTextPipeline

from ..configuration.errors import InputError
from ..processing.text_inputs import takes_language
from .pipeline_inputs import Rows, as_rows, fetched, stated
from .question_answering_pipeline import prepared

_TRANSLATION = ("language", "target_language", "max_new_tokens", "generate_kwargs", "timeout")


class ImageTranslationPipeline(ImageTextToTextPipeline):
    """Writes texts in a language, each from a text and its image, as `{"input_text", "generated_text"}`.

    Unlike with language models, `generated_text` is what the model writes, without the text that it read.
    """

    hub_task: ClassVar[tuple[str, str]] = ("image-text-to-text", "AutoModelForImageTextToText")

    def check_model_type(self, supported_models: Any) -> None:
        """Checks nothing: transformers' list has its own models alone, and it would report all others as errors."""

    def __call__(self, images: Any = None, text: Any = None, **kwargs: Any) -> Any:
        """Translates a text, or several.

        Args:
            images: the image of the text (a Pillow image, an array, a path or an address), or a list of images; None
                without an image. Or all in one: a list, a data set or a generator of `{"images", "text", "language",
                "target_language", "regions"}`, of which all but `text` may be left out.
            text: the text, or a list with one for each image.
            kwargs: `language` and `target_language`, the BCP-47 tags of what is read and of what is written;
                `max_new_tokens` and `generate_kwargs` of `generate`, by default 256 tokens at most; and what every
                pipeline takes, such as `batch_size`.

        Returns:
            For each text `[{"input_text", "generated_text"}]`, with as many entries as `num_return_sequences`; several
            texts given as a list have a list of these.

        Raises:
            ImageError: for an image that cannot be read.
            InputError: when there are not as many images as texts, or an item has no text.
            MissingLanguageError: when one of the languages is missing.
            UnknownLanguageError: for a language that the model has not learned.
        """
        if not takes_language(self.processor):
            return super().__call__(images, text, **kwargs)
        if isinstance(text, list):
            each = [None] * len(text) if images is None else images
            if not isinstance(each, list) or len(each) != len(text):
                raise InputError(f"{len(text)} texts need a list of as many images, or none")
            asked: Any = [{"images": image, "text": one} for image, one in zip(each, text, strict=True)]
        else:
            asked = images if text is None else {"images": images, "text": text}
        return Pipeline.__call__(self, asked, **kwargs)

    def _sanitize_parameters(self, **given: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        if not takes_language(self.processor):
            return super()._sanitize_parameters(**given)
        # As transformers' own pipeline is told what the processor reads.
        told = given.pop("processor_kwargs", None) or {}
        told = given.pop("text_kwargs", None) or told.get("text_kwargs") or told
        given = {name: told[name] for name in ("language", "target_language") if name in told} | given
        if unknown := [name for name in given if name not in _TRANSLATION]:
            raise InputError(f"a translation takes no {', '.join(unknown)}; it takes {', '.join(_TRANSLATION)}")
        _, forward, _ = super()._sanitize_parameters(
            **{k: given.get(k) for k in ("max_new_tokens", "generate_kwargs")}
        )
        own = ("language", "target_language", "timeout")
        return {name: given[name] for name in own if given.get(name) is not None}, forward, {}

    def preprocess(
        self,
        inputs: Any = None,
        timeout: float | None = None,
        language: str | None = None,
        target_language: str | None = None,
        **processing_kwargs: Any,
    ) -> Any:
        """A text with its image, for the processor."""
        if not takes_language(self.processor):
            return super().preprocess(inputs, timeout=timeout, **processing_kwargs)
        if not (isinstance(inputs, Mapping) and isinstance(inputs.get("text"), str)):
            raise InputError(f"a text is given with its image, {{'images': …, 'text': '…'}}, not {inputs!r}")
        regions = inputs.get("regions")
        return {
            "images": fetched(inputs.get("images"), timeout),
            "regions": None if regions is None else np.asarray(regions),
            "text": inputs["text"],
            "language": stated(inputs, "language", language),
            "target_language": stated(inputs, "target_language", target_language),
        }

    def _forward(self, model_inputs: Rows, generate_kwargs: dict[str, Any] | None = None) -> Any:
        if not takes_language(self.processor):
            return super()._forward(model_inputs, generate_kwargs)
        rows = as_rows(model_inputs)
        targets = rows.pop("target_language")
        language = {} if None in targets else {"language": targets}  # which `generate` asks for
        options = self._prepare_generate_kwargs(generate_kwargs or {}, return_dict_in_generate=False)
        written: Tensor = self.model.generate(**prepared(self, rows), **language, **options)
        return {"written": written.unflatten(0, (len(targets), -1)), "text": rows["text"]}  # [N, sequences, U]

    def postprocess(self, model_outputs: Any, **options: Any) -> Any:
        if not takes_language(self.processor):
            return super().postprocess(model_outputs, **options)
        text = model_outputs["text"]
        read = text[0] if isinstance(text, list) else text  # a list of one where there was no batch
        texts = self.processor.batch_decode(model_outputs["written"].flatten(0, 1))
        return [{"input_text": read, "generated_text": written} for written in texts]
