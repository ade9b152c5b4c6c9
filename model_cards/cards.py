"""Model cards (https://huggingface.co/docs/hub/model-cards): `template.md.jinja` holds the text of all cards,
`<method>.md` fills in its blocks."""

import ast
import importlib.metadata
import json
import re
import shutil
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from html import escape
from pathlib import Path
from typing import Any

import jinja2
from huggingface_hub import EvalResult, ModelCard, ModelCardData
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from pydantic import TypeAdapter
from transformers import CONFIG_MAPPING

from ..utils.errors import InputError, ModelFolderError, first_line
from ..utils.files import atomic_file
from ..utils.sentence_files import MODULES_FILE, add_prompts
from .base_models import (
    MULTILINGUAL,
    OTHER,
    TEXT_TOWER,
    BaseModel,
    check_weights_license,
    weights_license,
    what_it_forbids,
)
from .card_text import CARD, address, cell, code, is_of_another_model, paths_in, publishable, save_card
from .facts import EMBEDDING_TAG, PIPELINE_TAG, RETRIEVAL, Example, ModelCardFacts, Result

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
FIGURE_FILE, _FIGURE_METRIC = "recall.svg", "t2i_r10"
_SEARCHES = "search from text to image, image to text and text to text across languages"
_SEARCHES_OF_ONE = "search from text to image and image to text"


def requirements(folder: str | Path, also: Sequence[str] = ()) -> list[str]:
    """Lists the imports of the folder's Python files, and `also`, as pip names with babelens' version bounds."""
    imported = set(also)
    for path in Path(folder).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [str(node.module)]
            imported |= {name.partition(".")[0] for name in names}
    distributions = importlib.metadata.packages_distributions()
    needed = {name for module in imported - sys.stdlib_module_names for name in distributions.get(module, [module])}
    try:
        declared = [Requirement(line) for line in importlib.metadata.requires("babelens") or []]
    except importlib.metadata.PackageNotFoundError:  # a checkout on the path that is not installed
        declared = []
    bounds = {canonicalize_name(each.name): str(each) for each in declared if each.marker is None}
    return sorted(bounds.get(canonicalize_name(name), name) for name in needed)


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
        "python": partial(json.dumps, ensure_ascii=False),  # lists of texts are the same in Python as in JSON
        "counted": lambda tags: f"{len(tags)} languages" if len(tags) > 1 else "one language",
        "searches": lambda tags: _SEARCHES if len(tags) > 1 else _SEARCHES_OF_ONE,
    }
    environment.globals["what_it_forbids"] = what_it_forbids
    return environment


def render_card(
    template: str, metadata: Mapping[str, Any], facts: Any, texts: Path | None = None, **values: Any
) -> ModelCard:
    """Renders a template of this folder, or of `texts`, without secrets and local paths."""
    data = ModelCardData(**publishable({"library_name": "transformers", **metadata}))
    given = {"facts": publishable(facts), "repo_id": placeholder_repository(metadata["model_name"]), **values}
    return ModelCard(f"---\n{data.to_yaml()}\n---\n\n{card_environment(texts).get_template(template).render(given)}")


def _pairs(values: Mapping[str, Any]) -> str:
    shown = {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in values.items()}
    return ", ".join(f"{code(name)} {cell(value)}" for name, value in shown.items())


def _link(base: BaseModel) -> str:
    return f"[{base.name}](https://huggingface.co/{base.name})" if base.on_hub else code(base.name)


def placeholder_repository(model_name: str) -> str:
    """The name of the repository in a card before it is known; `babelens push` replaces it."""
    return "your-name/" + re.sub(r"[^\w.-]+", "-", model_name)  # a run's folder may have any name


# ---- Results ----

_MOST_ROWS = 10  # on a card, in all of its tables together


@dataclass(frozen=True)
class Row:
    """The scores in a language, or the mean over several languages with the same kind of training data."""

    language: str
    seen: str
    scores: Mapping[str, Any]


@dataclass(frozen=True)
class Table:
    """A result as rows. A card with many rows shows `means`, and folds `languages`."""

    result: Result
    languages: list[Row]
    means: list[Row]
    metrics: Sequence[str]

    @property
    def shown(self) -> list[Row]:
        return self.means or self.languages

    def cells(self, row: Row) -> list[str]:
        counts = [name for name in self.languages[0].scores if name.startswith("n")]
        numbers = [f"{row.scores[metric]:.1f}" for metric in self.metrics]
        return [row.language, row.seen, *numbers, *(str(row.scores.get(name, "")) for name in counts)]


def result_tables(facts: ModelCardFacts) -> list[Table]:
    is_long = sum(len(result.scores) for result in facts.results) > _MOST_ROWS
    tables = []
    for result in facts.results:
        rows = [Row(tag, facts.training_of(tag), scores) for tag, scores in result.scores.items()]
        kinds = dict.fromkeys(row.seen for row in rows) if is_long and len(rows) > 1 else ()
        means = [_mean([row for row in rows if row.seen == kind], facts.metrics) for kind in kinds]
        tables.append(Table(result, rows, means, facts.metrics))
    return tables


def _mean(rows: list[Row], metrics: Sequence[str]) -> Row:
    means = {metric: statistics.fmean(row.scores[metric] for row in rows) for metric in metrics}
    return Row(f"mean of {len(rows)}", rows[0].seen, means)


# ---- The figure ----

_WIDTH, _ROW, _LEFT, _MOST = 640, 20, 90, 40


def write_figure(folder: str | Path, values: Mapping[str, float], title: str) -> None:
    """Writes an SVG with a bar for each language, the highest first; of more than forty languages the first forty."""
    ordered = sorted(values.items(), key=lambda item: -item[1])[:_MOST]
    height = _ROW * (len(ordered) + 2)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" '
        f'font-size="13" role="img"><title>{escape(title)}</title><rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="8" y="{_ROW * 0.8:g}" font-weight="bold">{escape(title)}</text>',
    ]
    for index, (language, value) in enumerate(ordered):
        top = _ROW * (index + 1.5)
        length = (_WIDTH - _LEFT - 60) * max(value, 0) / 100
        lines += [
            f'<text x="{_LEFT - 8}" y="{top + 12:g}" text-anchor="end">{escape(language)}</text>',
            f'<rect x="{_LEFT}" y="{top:g}" width="{length:.1f}" height="{_ROW - 5}" fill="#3b6fb6"/>',
            f'<text x="{_LEFT + length + 6:.1f}" y="{top + 12:g}">{value:.1f}</text>',
        ]
    Path(folder, FIGURE_FILE).write_text("\n".join([*lines, "</svg>"]) + "\n", encoding="utf-8")


# ---- The card of a method ----


def write_card(folder: str | Path, facts: ModelCardFacts, *, texts: Path | None = None) -> Path:
    """Writes the card into a model's folder, with its images and figure, prompts for sentence-transformers, and
    `handler.py` and `requirements.txt` for an Inference Endpoint. `texts` has `<method>.md` of another package."""
    folder, facts = Path(folder), publishable(facts)
    card = model_card(facts, texts=texts, folder=folder)
    for example in facts.examples:
        path = folder / example.file_name
        path.parent.mkdir(parents=True, exist_ok=True)
        example.image.save(path)
    if facts.pipeline_tag == PIPELINE_TAG:
        # https://huggingface.co/docs/inference-endpoints/guides/custom_handler
        shutil.copyfile(Path(__file__).with_name("endpoint_handler.py"), folder / "handler.py")
        lines = "".join(f"{requirement}\n" for requirement in requirements(folder))
        (folder / "requirements.txt").write_text(lines, encoding="utf-8")
    if (folder / MODULES_FILE).is_file():
        card.data.tags.append("sentence-transformers")  # so that the Hub shows how to load it there
        add_prompts(folder, facts.languages)
    if values := _figure_values(tables := result_tables(facts)):
        write_figure(folder, values, f"Text to image R@10, in percent: {tables[0].result.dataset}")
    return save_card(card, folder)


def _figure_values(tables: Sequence[Table]) -> dict[str, float]:
    """The bars of the figure, by language: the first table's, if it has several languages, and all of them R@10."""
    rows = tables[0].languages if tables else []
    values = {row.language: float(row.scores[_FIGURE_METRIC]) for row in rows if _FIGURE_METRIC in row.scores}
    return values if 1 < len(values) == len(rows) else {}


def model_card(facts: ModelCardFacts, *, texts: Path | None = None, folder: str | Path | None = None) -> ModelCard:
    facts = publishable(facts)
    if facts.license:
        check_weights_license(facts.license, facts.base_models)
    license = facts.license or weights_license(facts.training_data, facts.base_models)
    config, tables = _settings(folder, "config.json"), result_tables(facts)
    return render_card(
        f"{facts.method}_task.md" if facts.task else f"{facts.method}.md",
        card_metadata(facts, license, tables),
        facts,
        texts,
        config=config,
        processor=_settings(folder, "processor_config.json"),
        differences=_differences(config),
        license=license,
        tables=tables,
        figure=FIGURE_FILE if _figure_values(tables) else None,
    )


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


def card_metadata(facts: ModelCardFacts, license: str, tables: Sequence[Table]) -> dict[str, Any]:
    entries = [entry for table in tables for entry in _eval_results(table, facts.task_type)]
    languages = language_metadata(facts.read_languages)
    if any(base.role == TEXT_TOWER and MULTILINGUAL in base.languages for base in facts.base_models):
        languages["language"] = [MULTILINGUAL, *languages["language"]]
    # Labels are sent as they are: transformers would put them into an English sentence.
    inference = {"parameters": {"hypothesis_template": "{}"}} if facts.pipeline_tag == PIPELINE_TAG else None
    return {
        **languages,
        **on_the_hub(facts.base_models),
        "license": license,
        "license_name": facts.license_name,
        "pipeline_tag": facts.pipeline_tag,
        "metrics": list(dict.fromkeys(entry.metric_type for entry in entries)) or None,
        "tags": ["babelens", facts.method, "vision-language", "multilingual", facts.task_type],
        "model_name": facts.model_name,
        "eval_results": entries or None,
        "inference": inference,
        "widget": [form for each in facts.examples if (form := _widget(each, facts.pipeline_tag))] or None,
    }


def _eval_results(table: Table, task_type: str) -> Iterator[EvalResult]:
    dataset = table.result.dataset
    slug = "-".join("".join(c if c.isalnum() else " " for c in dataset.lower()).split())
    for row in table.shown:
        of = f"{row.language}, {row.seen}" if table.means else row.language
        for metric, (metric_type, name) in _METRICS.items():
            if metric in row.scores:
                yield EvalResult(
                    task_type=task_type,
                    task_name=task_type.replace("-", " ").capitalize(),
                    dataset_type=slug,
                    dataset_name=f"{dataset} ({of})",
                    dataset_config=of,
                    metric_type=metric_type,
                    metric_name=name,
                    metric_value=round(float(row.scores[metric]), 2),
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


# ---- Results of published benchmarks, which are added to a card later ----
# https://huggingface.co/docs/hub/eval-results


def check_card(folder: str | Path) -> Path:
    """Returns the path of the card in a model's folder."""
    card = Path(folder) / CARD
    if not card.is_file():
        raise ModelFolderError(f"{folder} has no model card, {CARD}, to which results could be added")
    return card


def add_results(folder: str | Path, results: Sequence[EvalResult]) -> None:
    """Adds results to the `model-index` of a model's card; they replace results of the same data and metric."""
    path = check_card(folder)
    card = ModelCard.load(path)
    if is_of_another_model(card.data.to_dict(), folder):
        raise InputError(
            f"{path} has results of another model than the one in its folder: delete the file and evaluate again"
        )
    given = [*(card.data.eval_results or []), *results]
    card.data.model_name = card.data.model_name or Path(folder).resolve().name
    latest = {(each.unique_identifier, each.metric_type, each.metric_name): each for each in given}
    card.data.eval_results = list(latest.values())
    with atomic_file(path) as scratch:
        card.save(scratch)


# ---- The card of an adapter of PEFT, which adds a language to a base model ----


def write_adapter_card(
    folder: str | Path, *, name: str, language: str, base_model: str, base: BaseModel, license: str, **facts: Any
) -> Path:
    """Writes the card of an adapter; a local `base_model` is not linked to. `facts` are the template's other values,
    such as `parameters` (without the shared embedding) and `pairs` (the number of translations)."""
    check_weights_license(license, [base])
    is_local = bool(paths_in(base_model))
    metadata = {
        **language_metadata([language]),
        "library_name": "peft",
        "license": license,
        "model_name": name,
        "pipeline_tag": PIPELINE_TAG,
        "base_model": None if is_local else base_model,
        "base_model_relation": None if is_local else "adapter",
        "tags": ["babelens", "mla", "adapter", "vision-language", "multilingual"],
    }
    facts |= {"name": name, "language": language, "base_model": base_model, "base": base, "license": license}
    return save_card(render_card("adapter.md.jinja", metadata, facts), folder)


# ---- The card of a model that learned languages in closed form ----

ACQUIRED = "acquired.json"  # the facts of the card, for the card of a model that learns more languages


@dataclass(frozen=True, kw_only=True)
class RidgeCardFacts:
    """The facts of the card.

    Args:
        command: the command that made the model; `earlier_commands` taught it other languages before.
        base_models: the plain base, the text encoder, and models that had some of the languages.
        results: a `LanguageResult` for each language where it is known.
        names: languages that were also learned from CLDR's names of emoji.
        any_language: whether texts in all languages that the text encoder reads are embedded.
        embeds_images: whether the base is a dual encoder, rather than vectors whose model is elsewhere.
        words: the number of words in the glossaries of all languages.
        dictionaries: languages whose words were found in a dictionary.
        earlier_glossaries: languages whose words came with the base, from an unknown source.
    """

    name: str
    native_language: str
    command: str
    license: str = OTHER
    languages: Sequence[str]
    base_models: Sequence[BaseModel]
    has_encoder: bool
    results: Mapping[str, Any]
    names: Sequence[str] = ()
    any_language: bool = False
    embeds_images: bool = True
    words: int = 0
    dictionaries: Sequence[str] = ()
    earlier_glossaries: Sequence[str] = ()
    earlier_commands: Sequence[str] = ()

    @classmethod
    def of(cls, file: str | Path, result: type) -> "RidgeCardFacts":
        try:
            facts = TypeAdapter(cls).validate_json(Path(file).read_bytes())
            return replace(facts, results=TypeAdapter(dict[str, result]).validate_python(facts.results))  # type: ignore[valid-type]
        except ValueError as error:
            raise ModelFolderError(f"{file} is damaged: {first_line(error)}") from error

    def save(self, folder: str | Path) -> None:
        """Writes the facts, the card and its figure into a model's folder."""
        check_weights_license(self.license, self.weights)
        text = json.dumps(asdict(publishable(self)), indent=1, ensure_ascii=False)
        Path(folder, ACQUIRED).write_text(text + "\n", encoding="utf-8")
        if self.figure:
            values = {tag: float(found.r10) for tag, found in self.results.items()}
            write_figure(folder, values, "Translations found in the top ten, in percent")
        about = ["vision-language", RETRIEVAL] if self.embeds_images else ["sentence-similarity"]
        metadata = {
            **language_metadata([self.native_language, *self.languages]),
            **on_the_hub(self.weights),
            "license": self.license,
            "model_name": self.name,
            "pipeline_tag": PIPELINE_TAG if self.embeds_images else EMBEDDING_TAG,
            "tags": ["babelens", "ridge", "multilingual", *about],
        }
        save_card(render_card("ridge.md.jinja", metadata, self), folder)

    @property
    def figure(self) -> str:
        """The file of the figure; empty for a single result."""
        return FIGURE_FILE if len(self.results) > 1 else ""

    @property
    def weights(self) -> Sequence[BaseModel]:
        return self.base_models if self.embeds_images else self.base_models[1:]
