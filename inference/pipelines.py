"""transformers' pipelines for dual encoders, with languages. Saved models hold the code of these. A pipeline names in
`hub_task` the task that it runs and the Auto class that loads its models. By it, the task is registered where babelens
is imported, and written into `custom_pipelines` of saved models (`utils.hub_code`)."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from transformers.image_utils import load_image
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.pipelines.feature_extraction import FeatureExtractionPipeline
from transformers.pipelines.image_feature_extraction import ImageFeatureExtractionPipeline
from transformers.pipelines.zero_shot_image_classification import ZeroShotImageClassificationPipeline

from ..configuration.configuration_two_tower import head_of_task
from ..modeling.modeling_dual_encoder import normalize
from ..processing.processing_dual_encoder import takes_language
from ..utils.errors import InputError, ModelFolderError
from ..utils.languages import UNDETERMINED, language_and_script, language_for_each, normalize_language

logger = logging.getLogger(__name__)

Parameters = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]  # of preprocess, _forward and postprocess
Rows = dict[str, Any]  # prepared by `preprocess`: one row, or the rows of a batch as lists
Prompts = Mapping[str, Sequence[str]]  # language -> its templates
LABEL_ALONE = "{}"


def fetched(image: Any, timeout: float | None = None) -> Any:
    """Loads an image from the web; turns a tensor, which a batch would join, into an array; leaves anything else."""
    if isinstance(image, torch.Tensor):
        return image.cpu().numpy()
    is_address = isinstance(image, str) and image.startswith(("http://", "https://"))
    return load_image(image, timeout=timeout) if is_address else image


def as_rows(inputs: Rows) -> Rows:
    """Returns the rows of a batch as lists, even for a single row, which is not collated."""
    return inputs if all(isinstance(value, list) for value in inputs.values()) else {k: [v] for k, v in inputs.items()}


def stated(item: Mapping[str, Any], name: str, default: Any) -> Any:
    """Returns a value of an item, such as its language; the default if it has none, or None as in a data set."""
    return default if item.get(name) is None else item[name]


class MultilingualFeatureExtractionPipeline(FeatureExtractionPipeline):
    """Embeds texts in any language, each as one vector of unit length, [1, d], prepared by the model's own processor.
    It takes the arguments of transformers' pipeline, and `language`, which may be left out as in
    `Embedder.encode_text`. Items of data sets and generators may be `{"text": "…", "language": "de"}`. For models
    whose processor reads no language it is transformers' own pipeline."""

    hub_task: ClassVar[tuple[str, str]] = ("feature-extraction", "AutoModel")
    _load_processor = None  # where the model has one
    _load_tokenizer = None  # models of words have none
    tokenizer: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not callable(self.tokenizer):  # a word processor's `tokenizer` has only ids
            self.tokenizer = None
        if self.tokenizer is None and not takes_language(self.processor):
            raise ModelFolderError("feature-extraction needs the tokenizer or the processor of the model")

    def __call__(self, inputs: Any, *, language: str | list[str] | None = None, **kwargs: Any) -> Any:
        """The embeddings [1, d] of a text, or of each text of a list, a data set or a generator; `language` is a tag
        or, for a list of texts, a list of tags. `kwargs` include `task`, a model's head (MURAL's `"text_text"`)."""
        if language is None or isinstance(language, str):
            return super().__call__(inputs, language=language, **kwargs)
        if not isinstance(inputs, list):
            raise InputError("a list of languages needs a list of texts; other items name theirs by {'language': …}")
        tags = language_for_each(language, len(inputs))
        rows = [{"text": text, "language": tag} for text, tag in zip(inputs, tags, strict=True)]
        return super().__call__(rows, **kwargs)

    def _sanitize_parameters(self, language: str | None = None, task: str | None = None, **given: Any) -> Parameters:
        of_texts, _, postprocessing = super()._sanitize_parameters(**given)
        tokenizing = {"tokenize_kwargs": of_texts} if of_texts else {}
        forward = tokenizing | ({"head": head} if (head := head_of_task(self.model, task)) else {})
        return tokenizing | ({} if language is None else {"language": language}), forward, postprocessing

    def preprocess(
        self, inputs: Any, language: str | None = None, tokenize_kwargs: dict[str, Any] | None = None
    ) -> Any:
        """A text with its language, for the processor; or a model's inputs where the processor reads no language."""
        if isinstance(inputs, Mapping):
            inputs, language = inputs["text"], stated(inputs, "language", language)
        language = None if language is None else normalize_language(language)
        if takes_language(self.processor):
            return {"text": inputs, "language": language or self.processor.default_language}
        return super().preprocess(inputs, **tokenize_kwargs or {})

    def _forward(
        self, model_inputs: Rows, tokenize_kwargs: dict[str, Any] | None = None, head: dict[str, str] | None = None
    ) -> Any:
        if "language" in model_inputs:
            rows = as_rows(model_inputs)
            model_inputs = self.processor(**rows, return_tensors="pt", **tokenize_kwargs or {}).to(self.device)
        if head:
            features = self.model.get_text_features(**model_inputs, **head)
            return BaseModelOutputWithPooling(pooler_output=normalize(features.pooler_output))
        return _embeddings_alone(super()._forward(model_inputs))


class ImageEmbeddingPipeline(ImageFeatureExtractionPipeline):
    """Embeds images, which the model's own processor opens: transparency lies on white, as in training. For models
    without a processor of babelens it is transformers' own pipeline."""

    hub_task: ClassVar[tuple[str, str]] = ("image-feature-extraction", "AutoModel")
    _load_processor = None  # where the model has one

    def preprocess(self, image: Any, timeout: float | None = None, **image_processor_kwargs: Any) -> Any:
        if not takes_language(self.processor):
            return super().preprocess(image, timeout=timeout, **image_processor_kwargs)
        images = [fetched(image, timeout)]
        return self.processor(images=images, return_tensors="pt", **image_processor_kwargs).to(self.dtype)

    def _forward(self, model_inputs: Rows) -> Any:
        return _embeddings_alone(super()._forward(model_inputs))


def _embeddings_alone(output: Any) -> Any:
    """A dual encoder's embeddings [N, d], without outputs that have no rows (temperature); others unchanged."""
    found = [output.get(name) for name in ("text_embeds", "image_embeds") if output.get(name) is not None]
    return BaseModelOutputWithPooling(pooler_output=found[0]) if len(found) == 1 else output


class MultilingualZeroShotPipeline(ZeroShotImageClassificationPipeline):
    """Classifies images by labels in any language. It takes the arguments of transformers' pipeline, and `language`:
    the BCP-47 tag of all labels, or a list of one for each. The template is the language's (`PHOTO_TEMPLATES`), none
    with a warning if it has none, or the given `hypothesis_template`; without `language`, it is transformers' English
    one, or the native language's."""

    hub_task: ClassVar[tuple[str, str]] = ("zero-shot-image-classification", "AutoModelForZeroShotImageClassification")
    _load_processor = None  # where the model has one
    _load_tokenizer = None  # models of words have none

    def check_model_type(self, supported_models: Any) -> None:
        """Checks nothing: transformers' list has only its own models, and would report all others as errors."""

    def _sanitize_parameters(self, **given: Any) -> Parameters:
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
        options = {"timeout": timeout, "tokenizer_kwargs": tokenizer_kwargs}
        if language is None and takes_language(self.processor):
            language = self.processor.default_language
            if language == UNDETERMINED and hypothesis_template is None:
                hypothesis_template = PHOTO_TEMPLATES["en"][0]  # which is that of transformers' pipeline
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
        return [template.replace(LABEL_ALONE, label) for label in labels]  # other braces stay as they are
    templates = {language: templates_of(language, PHOTO_TEMPLATES) for language in languages}
    if missing := [language for language, found in templates.items() if not found]:
        told = "no template in %s: only its labels are read; set one with hypothesis_template="
        logger.warning(told, ", ".join(missing))
    used = [next(iter(templates[language]), LABEL_ALONE) for language in languages]
    return [template.replace(LABEL_ALONE, label) for template, label in zip(used, labels, strict=True)]


def check_templates(templates: Iterable[str], place: str) -> None:
    """Refuses templates without a place for the label."""
    for template in templates:
        if LABEL_ALONE not in template:
            raise InputError(f"{place}: the template {template!r} has no {{}}, where the label of a class goes")


def templates_of(language: str, prompts: Prompts) -> list[str]:
    """The templates of a language: by its tag, or else by its language and script (`pt` for `pt-BR`, `zh-Hant` for
    `zh-TW`, but not `sr` for `sr-Latn`); an empty list for a language without any."""
    language = normalize_language(language)
    if language in prompts:
        return list(prompts[language])
    written = language_and_script(language)
    return next((list(given) for tag, given in prompts.items() if language_and_script(tag) == written), [])


# Written for this package, so that the label keeps its basic form. A module rather than data, because transformers
# fetches only the Python files of a published model.
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
