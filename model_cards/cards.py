"""Model cards (https://huggingface.co/docs/hub/model-cards): `template.md.jinja` holds the text of all cards,
`<method>.md` fills in its blocks."""

import ast
import importlib.metadata
import json
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from huggingface_hub import EvalResult, ModelCard, ModelCardData
from transformers import CONFIG_MAPPING

from ..utils.sentence_files import MODULES_FILE, add_prompts
from .base_models import MULTILINGUAL, BaseModel
from .card_text import address, cell, code, publishable, save_card
from .facts import PIPELINE_TAG, Example, ModelCardFacts, Result
from .licenses import check_weights_license, weights_license, what_it_forbids
from .result_tables import FIGURE_FILE, recall_figure, result_tables

_UNREMARKABLE = re.compile(
    r"vocab|_token_id$|_config$|version$|^(architectures|auto_map|dtype|languages?|id2label|label2id)$"
)
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

    def normalized(requirement: str) -> str:  # as PEP 503 compares names
        return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement, maxsplit=1)[0]).lower()

    bounds = {normalized(line): line for line in declared if ";" not in line}
    return sorted(bounds.get(normalized(name), name) for name in needed)


@cache  # with the templates that it has compiled; it compiles a changed file again
def card_environment(texts: Path | None = None) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([Path(__file__).parent, *([texts] if texts else [])]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "cell": cell,
        "code": code,
        "address": address,
        "base_link": _link,
        "pairs": _pairs,
        "counted": lambda tags: f"{len(tags)} languages" if len(tags) > 1 else "one language",
        "searches": lambda tags: _SEARCHES if len(tags) > 1 else _SEARCHES_OF_ONE,
    }
    return environment


def _pairs(values: Mapping[str, Any]) -> str:
    shown = {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in values.items()}
    return ", ".join(f"{code(name)} {cell(value)}" for name, value in shown.items())


def _link(base: BaseModel) -> str:
    return f"[{base.name}](https://huggingface.co/{base.name})" if base.on_hub else code(base.name)


def placeholder_repository(model_name: str) -> str:
    """The name of the repository in a card before it is known; `babelens push` replaces it."""
    return "your-name/" + re.sub(r"[^\w.-]+", "-", model_name)  # a run's folder may have any name


def write_card(folder: str | Path, facts: ModelCardFacts, *, texts: Path | None = None) -> Path:
    """Writes the card into a model's folder, with its images and figure, prompts for sentence-transformers, and
    `handler.py` and `requirements.txt` for an Inference Endpoint. `texts` has `<method>.md` of a method that another
    package registers."""
    folder, facts = Path(folder), publishable(facts)
    card = model_card(facts, texts=texts, folder=folder)
    for example in facts.examples:
        path = folder / example.file_name
        path.parent.mkdir(parents=True, exist_ok=True)
        example.image.save(path)
    if facts.in_pipelines:
        # https://huggingface.co/docs/inference-endpoints/guides/custom_handler
        shutil.copyfile(Path(__file__).with_name("endpoint_handler.py"), folder / "handler.py")
        lines = "".join(f"{requirement}\n" for requirement in requirements(folder))
        (folder / "requirements.txt").write_text(lines, encoding="utf-8")
    if (folder / MODULES_FILE).is_file():
        card.data.tags.append("sentence-transformers")  # so that the Hub shows how to load it there
        add_prompts(folder, facts.languages)
    if _has_figure(facts):
        first = result_tables(facts)[0]
        values = {result.language: float(result.scores[_FIGURE_METRIC]) for result in first.results}
        figure = recall_figure(values, f"Text to image R@10, in percent: {first.dataset}")
        (folder / FIGURE_FILE).write_text(figure, encoding="utf-8")
    return save_card(card, folder)


def _has_figure(facts: ModelCardFacts) -> bool:
    first = result_tables(facts)[0].results if facts.results else []
    return len(first) > 1 and all(_FIGURE_METRIC in each.scores for each in first)


def model_card(facts: ModelCardFacts, *, texts: Path | None = None, folder: str | Path | None = None) -> ModelCard:
    facts = publishable(facts)
    if facts.license:
        check_weights_license(facts.license, facts.base_models)
    license = facts.license or weights_license(facts.training_data, facts.base_models)
    try:
        template = card_environment(texts).get_template(f"{facts.text}.md")
    except jinja2.TemplateNotFound as error:
        raise ValueError(f"there is no text for the cards of method {facts.method!r}") from error
    config = _settings(folder, "config.json")
    text = template.render(
        facts=facts,
        config=config,
        processor=_settings(folder, "processor_config.json"),
        differences=_differences(config),
        license=license,
        repo_id=placeholder_repository(facts.model_name),
        tables=result_tables(facts),
        figure=FIGURE_FILE if _has_figure(facts) else None,
        what_it_forbids=what_it_forbids,
    )
    return ModelCard(f"---\n{card_metadata(facts, license).to_yaml()}\n---\n\n{text}")


def _settings(folder: str | Path | None, name: str) -> dict[str, Any]:
    path = Path(folder or "", name)
    return json.loads(path.read_text(encoding="utf-8")) if folder and path.is_file() else {}


def _differences(config: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a configuration that differ from the method's defaults, the values of its paper."""
    kind = config.get("model_type")
    paper = CONFIG_MAPPING[kind]().to_dict() if kind in CONFIG_MAPPING else {}
    return {
        name: value
        for name, value in config.items()
        if name in paper and value != paper[name] and not _UNREMARKABLE.search(name)
    }


# ---- Metadata ----


def language_metadata(tags: Sequence[str]) -> dict[str, Any]:
    """Languages in the metadata: `language` takes ISO 639 codes only; full tags go to `language_bcp47`."""
    codes = list(dict.fromkeys(tag.partition("-")[0] for tag in tags))
    return {"language": codes or None, "language_bcp47": list(tags) if codes != list(tags) else None}


def on_the_hub(bases: Sequence[BaseModel]) -> dict[str, Any]:
    names = list(dict.fromkeys(base.name for base in bases if base.on_hub))
    return {
        "base_model": names[0] if len(names) == 1 else names or None,
        "base_model_relation": "finetune" if names else None,
    }


def card_metadata(facts: ModelCardFacts, license: str) -> ModelCardData:
    shown = [result for table in result_tables(facts) for result in table.shown]
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
        **on_the_hub(facts.base_models),
        metrics=list(dict.fromkeys(entry.metric_type for entry in entries)) or None,
        tags=facts.tags,
        model_name=facts.model_name,
        eval_results=entries or None,
        # Labels are sent as they are: transformers would put them into an English sentence.
        inference={"parameters": {"hypothesis_template": "{}"}} if facts.pipeline_tag == PIPELINE_TAG else None,
        widget=[form for each in facts.examples if (form := _widget(each, facts.pipeline_tag))] or None,
    )


def _eval_results(result: Result, task_type: str) -> Iterable[EvalResult]:
    slug = "-".join("".join(c if c.isalnum() else " " for c in result.dataset.lower()).split())
    of = f"{result.language}, {result.seen}" if result.seen else result.language
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


def _widget(example: Example, pipeline_tag: str) -> dict[str, Any] | None:
    """An example in the form of the Hub's page for the task; None if a label has a comma, which ends a label there."""
    group = {"group": example.language} if example.language else {}
    if pipeline_tag != PIPELINE_TAG:  # the page takes only texts, and shows vectors
        return {"text": example.ranking[0][0], "example_title": example.title} | group
    labels = sorted(label for label, _ in example.ranking)
    if any("," in label for label in labels):
        return None
    output = [{"label": label, "score": round(score, 4)} for label, score in example.ranking]
    shown = {"src": example.file_name, "example_title": example.title, "candidate_labels": ", ".join(labels)}
    return shown | group | {"output": output}
