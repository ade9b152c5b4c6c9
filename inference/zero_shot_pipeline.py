"""transformers' pipeline `zero-shot-image-classification` with a language.

    classify = pipeline("zero-shot-image-classification", model="runs/mural")
    classify("cat.jpg", candidate_labels=["猫", "犬"], language="ja")  # "これは猫の写真です。", …
    classify("cat.jpg", candidate_labels=["eine Katze"], language="de", hypothesis_template="{}")

Without `language`, the template is transformers' own, which is English, or that of the model's native language. Saved
models hold its code, so that it runs where babelens is not installed too.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from transformers.pipelines.zero_shot_image_classification import ZeroShotImageClassificationPipeline

from ..processing.text_inputs import UNDETERMINED, default_language, takes_language
from ..utils.errors import InputError
from ..utils.language_matching import language_and_script
from ..utils.languages import language_for_each, normalize_language
from .pipeline_inputs import fetched

logger = logging.getLogger(__name__)

_TEMPLATE = "This is a photo of {}."  # as in transformers' pipeline


class MultilingualZeroShotPipeline(ZeroShotImageClassificationPipeline):
    """Classifies images by labels in any language.

    It takes what transformers' pipeline takes, and `language`: the BCP-47 tag of all labels, or a list with one tag
    for each. The template is then one of that language (below) unless `hypothesis_template` is
    given; labels in a language without a template are read without one, with a warning. Texts and image are prepared
    by the model's own processor, which is told the language: MLA reads acquired languages, SMALR and LIWE read words,
    and prompts such as E5's are not left out.
    """

    hub_task: ClassVar[tuple[str, str]] = ("zero-shot-image-classification", "AutoModelForZeroShotImageClassification")
    _load_processor = None  # where the model has one
    _load_tokenizer = None  # models of words have none

    def check_model_type(self, supported_models: Any) -> None:
        """Checks nothing: transformers' list has only its own models, and would report all others as errors."""

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
        """The model's inputs."""
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
    """Returns the text of each label, by the user's template or its language's template."""
    if template is not None:
        check_templates([template], "hypothesis_template")
        return [filled(template, label) for label in labels]
    templates = {language: photo_template(language) for language in languages}
    if missing := [language for language, found in templates.items() if found is None]:
        logger.warning(
            "there is no template in %s: only its labels are read; hypothesis_template= gives one", ", ".join(missing)
        )
    return [filled(templates[tag] or LABEL_ALONE, label) for label, tag in zip(labels, languages, strict=True)]


# ---- Photo templates ----
# Templates of zero-shot classification in some forty languages; `{}` is replaced by the label of a class.
#
# They were written for this package, so that the label keeps its basic form, and are a module rather than
# data because the code of a published model holds them: transformers fetches only Python files.

# Language -> its templates.
Prompts = Mapping[str, Sequence[str]]

LABEL_ALONE = "{}"


def check_templates(templates: Iterable[str], place: str) -> None:
    """Refuses templates without a place for the label."""
    for template in templates:
        if LABEL_ALONE not in template:
            raise InputError(
                f"{place}: the template {template!r} has no {{}}, which is replaced by the label of a class"
            )


def templates_of(language: str, prompts: Prompts) -> list[str]:
    """The templates of a language: by its tag, or else by its language and script (`pt` for `pt-BR`, `zh-Hant` for
    `zh-TW`, but not `sr` for `sr-Latn`); an empty list for a language without any."""
    language = normalize_language(language)
    if language in prompts:
        return list(prompts[language])
    written = language_and_script(language)
    return next((list(given) for tag, given in prompts.items() if language_and_script(tag) == written), [])


def photo_template(language: str) -> str | None:
    """The template of a language in `PHOTO_TEMPLATES`; None for a language without one."""
    return next(iter(templates_of(language, PHOTO_TEMPLATES)), None)


def filled(template: str, label: str) -> str:
    """The text that a template makes of a label; other braces stay as they are."""
    return template.replace(LABEL_ALONE, label)


PHOTO_TEMPLATES: Prompts = {
    "af": ["Dit is 'n foto van {}."],
    "ar": ["هذه صورة {}."],
    "bg": ["Това е снимка на {}."],
    "bn": ["এই ছবিতে {} আছে।"],
    "cs": ["Na této fotografii je {}."],
    "da": ["Dette er et foto af {}."],
    "de": ["Auf diesem Foto ist {} zu sehen."],
    "el": ["Σε αυτή τη φωτογραφία: {}."],
    "en": ["This is a photo of {}."],
    "es": ["Esta es una foto de {}."],
    "et": ["Sellel fotol on {}."],
    "fa": ["این عکسی از {} است."],
    "fi": ["Tässä kuvassa on {}."],
    "fr": ["Sur cette photo : {}."],
    "he": ["זו תמונה של {}."],
    "hi": ["इस तस्वीर में {} है।"],
    "hr": ["Na ovoj fotografiji je {}."],
    "hu": ["Ezen a képen {} látható."],
    "id": ["Ini adalah foto {}."],
    "it": ["Questa è una foto di {}."],
    "ja": ["これは{}の写真です。"],
    "ko": ["이것은 {} 사진입니다."],
    "lt": ["Šioje nuotraukoje yra {}."],
    "lv": ["Šajā fotogrāfijā ir {}."],
    "ms": ["Ini ialah foto {}."],
    "nb": ["Dette er et bilde av {}."],
    "nl": ["Dit is een foto van {}."],
    "nn": ["Dette er eit bilete av {}."],
    "no": ["Dette er et bilde av {}."],
    "pl": ["Na tym zdjęciu jest {}."],
    "pt": ["Esta é uma foto de {}."],
    "ro": ["Aceasta este o fotografie cu {}."],
    "ru": ["На этой фотографии — {}."],
    "sk": ["Na tejto fotografii je {}."],
    "sl": ["Na tej fotografiji je {}."],
    "sr": ["На овој фотографији је {}."],
    "sr-Latn": ["Na ovoj fotografiji je {}."],
    "sv": ["Det här är ett foto av {}."],
    "sw": ["Hii ni picha ya {}."],
    "ta": ["இந்தப் படத்தில் {} உள்ளது."],
    "te": ["ఈ ఫోటోలో {} ఉంది."],
    "th": ["นี่คือรูปถ่ายของ {}"],
    "tl": ["Ito ay larawan ng {}."],
    "tr": ["Bu bir {} fotoğrafı."],
    "uk": ["На цій фотографії — {}."],
    "ur": ["اس تصویر میں {} ہے۔"],
    "vi": ["Đây là ảnh chụp {}."],
    "zh": ["这是一张{}的照片。"],
    "zh-Hant": ["這是一張{}的照片。"],
}
