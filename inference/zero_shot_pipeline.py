"""transformers' pipeline `zero-shot-image-classification` with a language.

    classify = pipeline("zero-shot-image-classification", model="runs/mural")
    classify("cat.jpg", candidate_labels=["猫", "犬"], language="ja")  # "これは猫の写真です。", …
    classify("cat.jpg", candidate_labels=["eine Katze"], language="de", hypothesis_template="{}")

Without `language`, the template is transformers' own, which is English, or that of the model's native language. Saved
models hold its code, so that it runs where babelens is not installed too.
"""

import logging
from typing import Any, ClassVar

from transformers.pipelines.zero_shot_image_classification import ZeroShotImageClassificationPipeline

from ..configuration.errors import InputError
from ..configuration.languages import language_for_each
from ..processing.text_inputs import UNDETERMINED, default_language, takes_language
from .photo_templates import LABEL_ALONE, check_templates, filled, photo_template
from .pipeline_inputs import fetched

logger = logging.getLogger(__name__)

_TEMPLATE = "This is a photo of {}."  # that of transformers' pipeline


class MultilingualZeroShotPipeline(ZeroShotImageClassificationPipeline):
    """Classifies images by labels in any language.

    It takes what transformers' pipeline takes, and `language`: the BCP-47 tag of all labels, or a list with one tag
    for each. The template is then one of that language (`inference.photo_templates`) unless `hypothesis_template` is
    given; labels in a language without a template are read alone, which a warning says. Texts and image are prepared
    by the model's own processor, which is told the language: MLA reads acquired languages, SMALR and LIWE read words,
    and prompts such as E5's are not left out.
    """

    hub_task: ClassVar[tuple[str, str]] = ("zero-shot-image-classification", "AutoModelForZeroShotImageClassification")
    _load_processor = None  # where the model has one
    _load_tokenizer = None  # models of words have none

    def check_model_type(self, supported_models: Any) -> None:
        """Checks nothing: transformers' list has its own models alone, and it would report all others as errors."""

    def _sanitize_parameters(self, **given: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        preprocessing, forward, postprocessing = super()._sanitize_parameters(**given)
        read = {name: given[name] for name in ("language", "tokenizer_kwargs") if given.get(name) is not None}
        return preprocessing | read, forward, postprocessing

    def preprocess(
        self,
        image: Any,
        candidate_labels: list[str],
        hypothesis_template: str | None = None,
        timeout: float | None = None,
        tokenizer_kwargs: dict[str, Any] | None = None,
        language: str | list[str] | None = None,
    ) -> Any:
        """The model's inputs.

        Raises:
            ImageError: for an image that cannot be read.
            InputError: for labels that are no list, for a template without `{}`, and for a list of languages that is
                not as long as the labels.
            LanguageTagError: for a tag that names no language.
            MissingLanguageError: without a language, for a model that reads several, each in its own way.
            UnknownLanguageError: for a language that the model has not learned.
        """
        options = {"timeout": timeout, "tokenizer_kwargs": tokenizer_kwargs}
        if language is None and takes_language(self.processor):
            language = default_language(self.processor)
            if language == UNDETERMINED and hypothesis_template is None:
                hypothesis_template = _TEMPLATE
        if language is None:
            given = {} if hypothesis_template is None else {"hypothesis_template": hypothesis_template}
            return super().preprocess(image, candidate_labels, **given, **options)
        if isinstance(candidate_labels, str):  # its characters would be the labels
            raise InputError(f"candidate_labels is {candidate_labels!r}: give a list of labels")
        languages = language_for_each(language, len(candidate_labels))
        texts = _texts(candidate_labels, languages, hypothesis_template)
        if not takes_language(self.processor):
            inputs = super().preprocess(image, texts, hypothesis_template=LABEL_ALONE, **options)
        else:
            inputs = self.processor(images=[fetched(image, timeout)], return_tensors="pt").to(self.dtype)
            prepared = self.processor(text=texts, language=languages, return_tensors="pt", **tokenizer_kwargs or {})
            inputs["text_inputs"] = [prepared]
        inputs["candidate_labels"] = candidate_labels
        return inputs


def _texts(labels: list[str], languages: list[str], template: str | None) -> list[str]:
    """The text of each label, by the user's template or that of the label's language."""
    if template is not None:
        check_templates([template], "hypothesis_template")
        return [filled(template, label) for label in labels]
    templates = {language: photo_template(language) for language in languages}
    if missing := [language for language, found in templates.items() if found is None]:
        logger.warning(
            "there is no template in %s: its labels are read alone; hypothesis_template= gives one", ", ".join(missing)
        )
    return [filled(templates[tag] or LABEL_ALONE, label) for label, tag in zip(labels, languages, strict=True)]
