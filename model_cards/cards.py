"""Model cards: `README.md` with metadata for the Hub and text for people, from a run's facts and the method's text.

`template.md.jinja` holds the text of all cards, `<method>.md` fills in its blocks.
https://huggingface.co/docs/hub/model-cards
"""

import ast
import importlib.metadata
import json
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

import jinja2
from huggingface_hub import EvalResult, ModelCard, ModelCardData

from ..utils.sentence_files import MODULES_FILE, add_prompts
from .base_models import MULTILINGUAL, BaseModel
from .card_text import address, cell, code, publishable, save_card
from .facts import PIPELINE_TAG, Example, ModelCardFacts, Result
from .licenses import check_weights_license, weights_license, what_it_forbids
from .result_tables import (
    FIGURE_FILE,
    RESULTS_FILE,
    MeanResult,
    Table,
    complete_tables,
    recall_figure,
    shown_tables,
)

# ---- The files of an Inference Endpoint: https://huggingface.co/docs/inference-endpoints/guides/custom_handler ----

_HANDLER = Path(__file__).with_name("endpoint_handler.py")


def write_endpoint(folder: str | Path) -> None:
    """Puts `handler.py`, and the `requirements.txt` of all Python files of the folder, into a model's folder."""
    shutil.copyfile(_HANDLER, Path(folder) / "handler.py")
    lines = "".join(f"{requirement}\n" for requirement in requirements(folder))
    (Path(folder) / "requirements.txt").write_text(lines, encoding="utf-8")


def requirements(folder: str | Path, also: Sequence[str] = ()) -> list[str]:
    """Lists the imports of the folder's Python files, and `also`, as pip names with babelens' version bounds."""
    imported = set(also)
    for path in Path(folder).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                imported.add((node.module or "").partition(".")[0])
    distributions = importlib.metadata.packages_distributions()
    needed = {name for module in imported - sys.stdlib_module_names for name in distributions.get(module, [module])}
    try:
        declared = importlib.metadata.requires("babelens") or []
    except importlib.metadata.PackageNotFoundError:  # a checkout on the path that is not installed
        declared = []
    asked_for = {_normalized(line): line for line in declared if ";" not in line}
    return sorted(asked_for.get(_normalized(name), name) for name in needed)


def _normalized(requirement: str) -> str:
    """The name in a requirement, as PEP 503 compares names."""
    name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
    return re.sub(r"[-_.]+", "-", name).lower()


# ---- What the files of a saved model say of its parts ----

_TEXT_POOLINGS = {
    "cls": "the state at its first token",
    "mean": "the mean of the states of its tokens",
    "eos": "the state at its last token",
    "pooler": "the encoder's own pooled state",
}
_IMAGE_POOLINGS = {
    "cls": "the state at its first position",
    "mean": "the mean over all positions",
    "pooler": "the backbone's own pooled state",
}
# The settings of the losses in the papers, and what they are called (MURAL: section 3.1; ETCL: sections 3.2 and 3.3).
_PUBLISHED: dict[str, dict[str, Any]] = {
    "mural": {"text_text_temperature": 0.01, "text_text_margin": 0.3, "label_smoothing": 0.0},
    "etcl": {"text_text_temperature": None, "text_text_margin": 0.3, "label_smoothing": 0.1},
}
_SETTINGS = {
    "text_text_temperature": "the cosines of translations are divided by {}",
    "text_text_margin": "the margin of translations is {}",
    "label_smoothing": "label smoothing is {}",
}


@dataclass(frozen=True)
class SavedModel:
    """The settings of a saved model: `config.json`, `processor_config.json`, and the size of its vocabulary."""

    config: Mapping[str, Any]
    processor: Mapping[str, Any]
    vocabulary: int

    @classmethod
    def from_folder(cls, folder: str | Path) -> Self | None:
        """Reads the settings of the model in a folder; None if there is no model."""
        config = _read(Path(folder, "config.json"))
        if not config:
            return None
        tokens = (_read(Path(folder, "tokenizer.json")).get("model") or {}).get("vocab") or ()
        return cls(config, _read(Path(folder, "processor_config.json")), len(tokens))

    @property
    def towers(self) -> str:
        """The sentences about the two towers of MURAL and ETCL."""
        config = self.config
        width = f"{config['projection_dim']} dimensions"
        hidden = config.get("text_hidden_size")
        layers = f"a hidden layer of {hidden} and a linear layer" if hidden else "a linear layer"
        vocabulary = f" with a vocabulary of {self.vocabulary:,}" if self.vocabulary else ""
        normalized = "normalized and then " if config.get("text_layer_norm") else ""
        sentences = [
            f"Two towers. A vision backbone (`{config['vision_config']['model_type']}`) embeds an image as "
            f"{_IMAGE_POOLINGS[config.get('image_pooling', 'pooler')]}; a text encoder "
            f"(`{config['text_config']['model_type']}`){vocabulary} embeds a text as "
            f"{_TEXT_POOLINGS[config['text_pooling']]}, {normalized}projected to {width} by {layers}.",
            f"Images are projected to {width} by a linear layer."
            if config.get("image_head")
            else "Images are not projected.",
        ]
        if config.get("text_prompt"):
            sentences.append(f"Every text is read after `{config['text_prompt']}`.")
        if frozen := [f"the {tower} tower" for tower in config.get("freeze") or ()]:
            sentences.append(f"Frozen in training: {' and '.join(frozen)}.")
        return " ".join(sentences)

    @property
    def departures(self) -> str:
        """Describes how the losses and heads of MURAL or ETCL differ from their papers; empty if they do not."""
        config, found = self.config, []
        if "text_text" not in config.get("tasks", ["text_text"]):
            return ""
        for name, paper in _PUBLISHED.get(config.get("model_type", ""), {}).items():
            if (here := config.get(name, paper)) != paper:
                values = ("the learned temperature" if value is None else f"{value:g}" for value in (here, paper))
                found.append(f"{_SETTINGS[name].format(next(values))}, there {next(values)}")
        others = {
            "both tasks have one text head, there one each": config.get("shared_text_head"),
            "the text head is more than a linear layer": config.get("text_hidden_size")
            or config.get("text_layer_norm"),
            "images are projected, too": config.get("image_head"),
            "towers are pretrained and frozen, there both are trained": config.get("freeze"),
        }
        found += [sentence for sentence, is_so in others.items() if is_so]
        return f"Made after the paper, not as in it: {'; '.join(found)}." if found else ""

    @property
    def reading(self) -> str:
        """How texts are cut and images resized, as a sentence; empty where the files do not say."""
        images = self.processor.get("image_processor") or {}
        size, said = images.get("size") or {}, []
        if length := self.processor.get("max_text_length"):
            said.append(f"Texts are cut at {length} tokens")
        if images.get("do_resize") and "height" in size:
            said.append(f"images are resized to {size['height']} × {size['width']} pixels")
        elif images.get("do_resize") and "shortest_edge" in size:
            said.append(f"the shorter side of an image is resized to {size['shortest_edge']} pixels")
        if images.get("do_center_crop") and (crop := images.get("crop_size")):
            said.append(f"the centre of {crop.get('height')} × {crop.get('width')} pixels is read")
        return f"{'; '.join(said)}." if said else ""


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


# The scores that `model-index` has: the Hub's name of each metric, and a readable one.
_METRICS = {
    "t2i_r1": ("recall", "text to image R@1"),
    "t2i_r10": ("recall", "text to image R@10"),
    "i2t_r1": ("recall", "image to text R@1"),
    "i2t_r10": ("recall", "image to text R@10"),
    "mean_recall": ("recall", "mean recall"),
    "accuracy": ("accuracy", "accuracy"),
    "bleu": ("sacrebleu", "BLEU"),
    "chrf": ("chrf", "chrF"),
}


_FIGURE_METRIC = "t2i_r10"
_SEARCHES = "search from text to image, image to text and text to text across languages"
_SEARCHES_OF_ONE = "search from text to image and image to text"


@cache  # with the templates that it has compiled; it compiles a changed file again
def card_environment(texts: Path | None = None) -> jinja2.Environment:
    """The templates of this folder and, of methods that another package registers, of `texts`."""
    folders = [Path(__file__).parent, *([texts] if texts else [])]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"cell": cell, "code": code, "address": address}
    environment.filters["base_link"] = _link
    environment.filters["counted"] = lambda tags: f"{len(tags)} languages" if len(tags) > 1 else "one language"
    environment.filters["searches"] = lambda tags: _SEARCHES if len(tags) > 1 else _SEARCHES_OF_ONE
    return environment


def _link(base: BaseModel) -> str:
    return f"[{base.name}](https://huggingface.co/{base.name})" if base.on_hub else code(base.name)


def placeholder_repository(model_name: str) -> str:
    """The name of the repository in a card before it is known; `babelens push` replaces it."""
    return "your-name/" + re.sub(r"[^\w.-]+", "-", model_name)  # a run's folder may have any name


def write_card(folder: str | Path, facts: ModelCardFacts, *, texts: Path | None = None) -> Path:
    """Writes the card into a model's folder, with the images of its examples, the figure of its recall, all results
    where the card does not show them, what an Inference Endpoint needs, and the prompts of its languages for
    sentence-transformers.

    Args:
        folder: the model's folder.
        facts: the facts of this model.
        texts: a folder with the text `<method>.md` of a method that another package registers.
    """
    facts = publishable(facts)
    made = SavedModel.from_folder(folder)
    card = model_card(facts, texts=texts, made=made)
    for example in facts.examples:
        path = Path(folder) / example.file_name
        path.parent.mkdir(parents=True, exist_ok=True)
        example.image.save(path)
    if facts.in_pipelines:
        write_endpoint(folder)
    if (Path(folder) / MODULES_FILE).is_file():
        card.data.tags.append("sentence-transformers")  # so that the Hub shows how to load it there
        add_prompts(folder, facts.languages)
    results = Path(folder, RESULTS_FILE)
    if results.is_file() and results.read_text("utf-8", errors="replace").partition("\n")[0].endswith(": all results"):
        results.unlink()  # of an earlier evaluation, and not a file of the user's
    if any(table.left_out for table in shown_tables(facts)):
        text = _text(facts, card.data.license, texts, complete_tables(facts), made, only_results=True)
        results.write_text(text, encoding="utf-8")
    if has_figure(facts):
        first = complete_tables(facts)[0]
        values = {result.language: float(result.scores[_FIGURE_METRIC]) for result in first.results}
        figure = recall_figure(values, f"Text to image R@10, in percent: {first.dataset}")
        Path(folder, FIGURE_FILE).write_text(figure, encoding="utf-8")
    return save_card(card, folder)


def has_figure(facts: ModelCardFacts) -> bool:
    """Returns whether the first results are recalls of several languages, which a figure shows."""
    first = complete_tables(facts)[0].results if facts.results else []
    return len(first) > 1 and all(_FIGURE_METRIC in each.scores for each in first)


def model_card(facts: ModelCardFacts, *, texts: Path | None = None, made: SavedModel | None = None) -> ModelCard:
    """The card as an object of `huggingface_hub`; `made` are the settings of the model, by which it is described."""
    facts = publishable(facts)
    if facts.license:
        check_weights_license(facts.license, facts.base_models)
    license = facts.license or weights_license(facts.training_data, facts.base_models)
    text = _text(facts, license, texts, shown_tables(facts), made)
    return ModelCard(f"---\n{card_metadata(facts, license).to_yaml()}\n---\n\n{text}")


def _text(
    facts: ModelCardFacts,
    license: str,
    texts: Path | None,
    tables: list[Table],
    made: SavedModel | None,
    *,
    only_results: bool = False,
) -> str:
    """The text below the metadata; with `only_results`, the text of the file with all results."""
    try:
        template = card_environment(texts).get_template(f"{facts.text}.md")
    except jinja2.TemplateNotFound as error:
        raise ValueError(f"there is no text for the cards of method {facts.method!r}") from error
    return template.render(
        facts=facts,
        made=made,
        license=license,
        repo_id=placeholder_repository(facts.model_name),
        tables=tables,
        only_results=only_results,
        results_file=RESULTS_FILE,
        figure=FIGURE_FILE if has_figure(facts) else None,
        what_it_forbids=what_it_forbids,
    )


def language_metadata(tags: Sequence[str]) -> dict[str, Any]:
    """Languages in the metadata: `language` takes ISO 639 codes only; full tags go to `language_bcp47`."""
    codes = list(dict.fromkeys(tag.partition("-")[0] for tag in tags))
    return {"language": codes or None, "language_bcp47": list(tags) if codes != list(tags) else None}


def on_the_hub(bases: Sequence[BaseModel], relation: str = "finetune") -> dict[str, Any]:
    """The base models in the metadata; models elsewhere cannot be linked to."""
    names = list(dict.fromkeys(base.name for base in bases if base.on_hub))
    return {
        "base_model": names[0] if len(names) == 1 else names or None,
        "base_model_relation": relation if names else None,
    }


def card_metadata(facts: ModelCardFacts, license: str) -> ModelCardData:
    """The metadata block; what is None is left out of it."""
    shown = [result for table in shown_tables(facts) for result in table.results]
    entries = [entry for result in shown for entry in _eval_results(result, facts.task_type)]
    languages = language_metadata(facts.read_languages)
    if facts.is_multilingual:
        languages["language"] = [MULTILINGUAL, *languages["language"]]
    return ModelCardData(
        **languages,
        license=license,
        license_name=facts.license_name,
        library_name="transformers",
        pipeline_tag=facts.pipeline_tag,
        **on_the_hub(facts.base_models, facts.base_model_relation),
        datasets=[source.hub_id for source in facts.training_data if source.hub_id] or None,
        metrics=list(dict.fromkeys(entry.metric_type for entry in entries)) or None,
        tags=facts.tags,
        model_name=facts.model_name,
        eval_results=entries or None,
        # Labels are sent as they are: transformers would put them into an English sentence.
        inference={"parameters": {"hypothesis_template": "{}"}} if facts.pipeline_tag == PIPELINE_TAG else None,
        widget=[_widget(each, facts.pipeline_tag) for each in facts.examples if _fits_widget(each, facts)] or None,
    )


def _eval_results(result: Result, task_type: str) -> Iterable[EvalResult]:
    slug = "-".join("".join(c if c.isalnum() else " " for c in result.dataset.lower()).split())
    of = f"{result.language}, {result.seen}" if isinstance(result, MeanResult) else result.language
    for metric, (metric_type, name) in _METRICS.items():
        if metric in result.scores:
            yield EvalResult(
                task_type=task_type,
                task_name=task_type.replace("-", " ").capitalize(),
                dataset_type=slug,
                dataset_name=f"{result.dataset} ({of})",
                dataset_config=of,
                metric_type=metric_type,
                metric_name=name,
                metric_value=round(float(result.scores[metric]), 2),
            )


def _fits_widget(example: Example, facts: ModelCardFacts) -> bool:
    """Returns whether the Hub reads the labels as they are: a comma ends a label there. The card's text has all."""
    return facts.pipeline_tag != PIPELINE_TAG or not any("," in label for label, _ in example.ranking)


def _widget(example: Example, pipeline_tag: str) -> dict[str, Any]:
    """An example in the form that the page of a model with this task shows; examples of a language are a group."""
    group = {"group": example.language} if example.language else {}
    if pipeline_tag != PIPELINE_TAG:  # the page takes only texts, and shows vectors
        return {"text": example.ranking[0][0], "example_title": example.title} | group
    output = [{"label": label, "score": round(score, 4)} for label, score in example.ranking]
    labels = ", ".join(sorted(label for label, _ in example.ranking))
    shown = {"src": example.file_name, "example_title": example.title, "candidate_labels": labels}
    return shown | group | {"output": output}
