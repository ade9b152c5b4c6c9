"""What the processors of the dual encoders share: texts with their languages and pictures, in one call."""

from typing import Any

from transformers import BatchFeature, ProcessorMixin

from ..configuration.hub_code import HubCodeMixin
from ..configuration.languages import language_for_each

MAX_TEXT_TOKENS = 64  # MURAL and ETCL


class DualEncoderProcessor(HubCodeMixin, ProcessorMixin):
    """Pictures and texts -> `pixel_values`, `input_ids`, `attention_mask`.

    Texts are padded to the longest of the batch and cut at 64 tokens.
    """

    text_kwargs = {"padding": True, "truncation": True, "max_length": MAX_TEXT_TOKENS}

    def __init__(self, image_processor: Any, tokenizer: Any, **more: Any) -> None:
        super().__init__(image_processor, tokenizer, **more)
        # A text is one segment: BERT's tokenizers would number segments, for which not every text tower has an input.
        # What is in `init_kwargs` is saved, so that pipelines, which load the tokenizer alone, agree.
        tokenizer.model_input_names = ["input_ids", "attention_mask"]
        tokenizer.init_kwargs["model_input_names"] = tokenizer.model_input_names

    def __call__(
        self,
        images: Any = None,
        text: str | list[str] | None = None,
        language: str | list[str] | None = None,
        **kwargs: Any,
    ) -> BatchFeature:
        """
        Args:
            images: a picture or a list of them (Pillow, arrays, tensors, paths).
            text: a text or a list of them.
            language: BCP-47 tag of all texts, or one for each. A shared vocabulary reads every language alike, so that
                the tag is checked and otherwise without effect here; methods with one tokenizer for each language need
                it.
            kwargs: as transformers' processors take them; `return_tensors="pt"`.

        Raises:
            LanguageTagError: for an unknown language tag.
            ValueError: when there are not as many languages as texts, or an empty list instead of texts or pictures.
        """
        for name, given in (("images", images), ("text", text)):
            if isinstance(given, list) and not given:
                raise ValueError(f"{name} is an empty list")
        if language is not None:
            if text is None:
                raise ValueError("language= was given without text=")
            language_for_each(language, 1 if isinstance(text, str) else len(text))
        # Given by name, they also go before the length that a tokenizer was last used with, which is saved with it.
        defaults = {name: value for name, value in self.text_kwargs.items() if name not in kwargs}
        kwargs["text_kwargs"] = defaults | kwargs.get("text_kwargs", {})
        return super().__call__(images=images, text=text, **kwargs)
