"""The rules by which the Hub reads the metadata of a model card, checked without network.

The Hub refuses a commit whose `README.md` breaks some of them; of others it takes no notice, so that a model is not
found or its examples are not shown. Both are problems here, before anything is uploaded.

https://huggingface.co/docs/hub/model-cards, https://github.com/huggingface/hub-docs/blob/main/modelcard.md
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import ModelCard
from huggingface_hub.errors import HFValidationError
from huggingface_hub.repocard import REGEX_YAML_BLOCK
from huggingface_hub.repocard_data import model_index_to_eval_results
from huggingface_hub.utils import validate_repo_id

from ..utils.errors import LanguageTagError, PublishError, did_you_mean, first_line
from ..utils.languages import normalize_language
from .licenses import check_hub_license

REQUIRED = ("language", "license", "library_name", "pipeline_tag")
# What the Hub takes as `pipeline_tag`: https://huggingface.co/tasks, and the npm package @huggingface/tasks 0.21
PIPELINE_TAGS = tuple(
    """
    any-to-any audio-classification audio-text-to-text audio-to-audio automatic-speech-recognition depth-estimation
    document-question-answering feature-extraction fill-mask graph-ml image-classification image-feature-extraction
    image-segmentation image-text-to-image image-text-to-text image-text-to-video image-to-3d image-to-image
    image-to-text image-to-video keypoint-detection mask-generation multiple-choice object-detection other
    question-answering reinforcement-learning robotics sentence-similarity summarization table-question-answering
    table-to-text tabular-classification tabular-regression tabular-to-text text-classification text-generation
    text-ranking text-retrieval text-to-3d text-to-audio text-to-image text-to-speech text-to-video
    time-series-forecasting token-classification translation unconditional-image-generation video-classification
    video-text-to-text video-to-video visual-document-retrieval visual-question-answering voice-activity-detection
    zero-shot-classification zero-shot-image-classification zero-shot-object-detection
    """.split()  # noqa: SIM905
)
# The fields of an example that the page of a model reads, by its pipeline_tag.
_WIDGET_FIELDS = {
    "feature-extraction": ("text",),
    "sentence-similarity": ("source_sentence", "sentences"),
    "text-classification": ("text",),
    "translation": ("text",),
    "visual-question-answering": ("src", "text"),
    "zero-shot-image-classification": ("src", "candidate_labels"),
}
_RELATIONS = ("adapter", "finetune", "merge", "quantized")
_ISO_639 = re.compile(r"[a-z]{2,3}")
_NO_LANGUAGES = ("code", "multilingual")  # which the Hub takes in the place of one


def card_problems(folder: Path) -> list[str]:
    """The problems of the card in a model's folder, one sentence each; none if the Hub reads all of it."""
    path = folder / "README.md"
    if not path.is_file():
        return ["README.md is missing: write the model card with babelens.model_cards.cards.write_card"]
    try:
        text = path.read_text(encoding="utf-8-sig")
        twice = list(_keys_given_twice(text))
        metadata = ModelCard(text).data.to_dict()
    except (ValueError, TypeError, AttributeError, KeyError, yaml.YAMLError) as error:  # whatever they may be
        return [f"README.md: {first_line(error)}"]
    problems = [*twice, *metadata_problems(metadata), *_missing_images(metadata, folder)]
    return [f"README.md: {problem}" for problem in problems]


def metadata_problems(metadata: Mapping[str, Any]) -> list[str]:
    """The problems of the metadata of a card, as `ModelCardData.to_dict` returns them, one sentence each."""
    problems = [f"the metadata have no {key}" for key in REQUIRED if not metadata.get(key)]
    for rule in (_license, _languages, _task, _references, _lists_of_texts, _model_index, _widget, _inference):
        problems += rule(metadata)
    return problems


def _keys_given_twice(text: str) -> Iterator[str]:
    """Keys that stand twice in one mapping: PyYAML takes the last, and the Hub refuses the card."""
    block = REGEX_YAML_BLOCK.search(text)
    nodes = [yaml.compose(block.group(2), yaml.SafeLoader)] if block else []
    while nodes:
        node = nodes.pop()
        if isinstance(node, yaml.MappingNode):
            counts = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
            yield from (f"{key} is given twice" for key, count in counts.items() if count > 1)
            nodes += [value for _, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            nodes += node.value


def _license(metadata: Mapping[str, Any]) -> Iterator[str]:
    if metadata.get("license"):
        try:
            check_hub_license(str(metadata["license"]), metadata.get("license_name"))
        except PublishError as error:
            yield str(error)


def _languages(metadata: Mapping[str, Any]) -> Iterator[str]:
    for language in _listed(metadata.get("language")):
        if language in _NO_LANGUAGES:
            continue
        if not _ISO_639.fullmatch(str(language)):
            yield f"language {language!r} is no ISO 639 code; full tags go to language_bcp47"
            continue
        try:
            normalize_language(language)
        except LanguageTagError as error:
            yield f"language: {first_line(error)}"


def _task(metadata: Mapping[str, Any]) -> Iterator[str]:
    tag, library = metadata.get("pipeline_tag"), metadata.get("library_name")
    if tag and tag not in PIPELINE_TAGS:
        yield f"pipeline_tag {tag!r} is no task of the Hub{did_you_mean(str(tag), PIPELINE_TAGS)}"
    if library is not None and not isinstance(library, str):
        yield f"library_name {library!r} is no text"


def _references(metadata: Mapping[str, Any]) -> Iterator[str]:
    """Repositories that the card names, and what a base model is to it."""
    for key in ("base_model", "datasets"):
        for name in _listed(metadata.get(key)):
            try:
                validate_repo_id(name)
            except HFValidationError:
                yield f"{key} {name!r} is no repository of the Hub"
    relation = metadata.get("base_model_relation")
    if relation is not None and relation not in _RELATIONS:
        yield f"base_model_relation {relation!r} is none of {', '.join(_RELATIONS)}"


def _lists_of_texts(metadata: Mapping[str, Any]) -> Iterator[str]:
    for key in ("tags", "metrics", "language_bcp47"):
        value = metadata.get(key)
        if value is not None and not (isinstance(value, list) and all(isinstance(each, str) for each in value)):
            yield f"{key} is no list of texts"


def _model_index(metadata: Mapping[str, Any]) -> Iterator[str]:
    if "model-index" not in metadata:
        return
    try:
        _, results = model_index_to_eval_results(metadata["model-index"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        yield f"model-index is not as the Hub reads it: {first_line(error)}"
        return
    for result in results:
        value = result.metric_value
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            yield f"model-index: {result.metric_type} of {result.dataset_name} is {value!r}, and not a number"


def _widget(metadata: Mapping[str, Any]) -> Iterator[str]:
    fields = _WIDGET_FIELDS.get(str(metadata.get("pipeline_tag")), ())
    for number, example in enumerate(_listed(metadata.get("widget")), start=1):
        if not isinstance(example, dict) or not isinstance(example.get("src", ""), str):
            yield "an example of the widget is not a mapping with a text for src"
            continue
        if missing := [field for field in fields if not example.get(field)]:
            yield (
                f"example {number} of the widget has no {' and no '.join(missing)}, "
                f"which the page of a model for {metadata['pipeline_tag']} shows"
            )
        if not isinstance(example.get("candidate_labels", ""), str):
            yield f"example {number} of the widget has candidate_labels that are no text, such as 'a cat, a dog'"
            continue
        answers = example.get("output")
        if "candidate_labels" in example and isinstance(answers, list):
            labels = str(example["candidate_labels"]).split(", ")
            if sorted(labels) != sorted(str(answer.get("label")) for answer in answers if isinstance(answer, dict)):
                yield f"example {number} of the widget has other labels in output than in candidate_labels"


def _missing_images(metadata: Mapping[str, Any], folder: Path) -> Iterator[str]:
    for example in _listed(metadata.get("widget")):
        source = example.get("src") if isinstance(example, dict) else None
        if not isinstance(source, str) or "://" in source:
            continue
        if not (folder / source).is_file():
            yield f"the widget shows {source!r}, which is missing"
        elif not (folder / source).resolve().is_relative_to(folder.resolve()):
            yield f"the widget shows {source!r}, which is not in the folder"


def _inference(metadata: Mapping[str, Any]) -> Iterator[str]:
    """`inference` is `false` for a page without a widget, or has the parameters that the widget sends."""
    given = metadata.get("inference")
    if given is None or isinstance(given, bool):
        return
    if not isinstance(given, dict) or set(given) - {"parameters"} or not isinstance(given.get("parameters"), dict):
        yield "inference is neither true, false nor a mapping with parameters"


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]
