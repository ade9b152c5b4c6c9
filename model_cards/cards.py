"""Model cards: `README.md` with metadata for the Hub and text for people, from a run's facts and the method's text.

`template.md.jinja` holds the text of all cards, `<method>.md` fills in its blocks. The metadata are the Hub's:
languages by ISO 639, results as `model-index`, examples with this model's outputs as `widget`, so that the model's
page shows answers without inference.
https://huggingface.co/docs/hub/model-cards
"""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from huggingface_hub import EvalResult, ModelCard

from ..configuration.hub_code import MODULES_FILE, add_prompts
from .base_models import BaseModel
from .card_text import CompactCard, CompactCardData, address, cell, code, save_card
from .endpoint import write_endpoint
from .facts import PIPELINE_TAG, Example, ModelCardFacts, Result
from .licenses import check_weights_license, weights_license, what_it_forbids
from .public_names import without_paths
from .result_tables import RESULTS_FILE, MeanResult, Table, complete_tables, shown_tables
from .saved_model import SavedModel

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


_SEARCHES = "search from text to image, image to text and text to text across languages"
_SEARCHES_OF_ONE = "search from text to image and image to text"


@cache  # with the templates that it has compiled; it compiles a changed file again
def _environment(texts: Path | None) -> jinja2.Environment:
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
    """Writes into a model's folder: `README.md`, the images of its examples, what an Inference Endpoint needs, the
    prompts of its languages for sentence-transformers, and `results.md` with the results in all languages, where the
    card does not show them all.

    Args:
        folder: the model's folder.
        facts: the facts of this model.
        texts: a folder with the text `<method>.md` of a method that another package registers.

    Raises:
        ValueError: when there is no text for the method.
        PublishError: when the license of the weights cannot be told from those of the data and the base models, or is
            stated freer than that of a base model.
    """
    facts = without_paths(facts)
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
    (Path(folder) / RESULTS_FILE).unlink(missing_ok=True)  # of an earlier evaluation
    if any(table.left_out for table in shown_tables(facts)):
        text = _text(facts, card.data.license, texts, complete_tables(facts), made, only_results=True)
        (Path(folder) / RESULTS_FILE).write_text(text, encoding="utf-8")
    return save_card(card, folder)


def model_card(facts: ModelCardFacts, *, texts: Path | None = None, made: SavedModel | None = None) -> ModelCard:
    """The card as an object of `huggingface_hub`; arguments and errors as in `write_card`. `made` are the settings of
    the model, from which its method is described; without them, the card says less."""
    facts = without_paths(facts)
    if facts.license:
        check_weights_license(facts.license, facts.base_models)
    license = facts.license or weights_license(facts.training_data, facts.base_models)
    text = _text(facts, license, texts, shown_tables(facts), made)
    return CompactCard(f"---\n{card_metadata(facts, license).to_yaml()}\n---\n\n{text}")


def _text(
    facts: ModelCardFacts,
    license: str,
    texts: Path | None,
    tables: list[Table],
    made: SavedModel | None,
    *,
    only_results: bool = False,
) -> str:
    """The text below the metadata; with `only_results`, that of the file with all results."""
    try:
        template = _environment(texts).get_template(f"{facts.text}.md")
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
        what_it_forbids=what_it_forbids,
    )


def card_metadata(facts: ModelCardFacts, license: str) -> CompactCardData:
    """The metadata block. `language` takes ISO 639 codes only; full tags go to `language_bcp47`."""
    codes = list(dict.fromkeys(tag.partition("-")[0] for tag in facts.languages))
    on_hub = list(dict.fromkeys(base.name for base in facts.base_models if base.on_hub))
    optional = {
        "language_bcp47": facts.languages if codes != facts.languages else None,
        "license_name": facts.license_name,
        "base_model_relation": facts.base_model_relation if on_hub else None,
        "inference": _inference(facts),
        "widget": [_widget(each, facts.pipeline_tag) for each in facts.examples if _fits_widget(each, facts)] or None,
    }
    shown = [result for table in shown_tables(facts) for result in table.results]
    entries = [entry for result in shown for entry in _eval_results(result, facts.task_type)]
    return CompactCardData(
        language=codes,
        license=license,
        library_name="transformers",
        pipeline_tag=facts.pipeline_tag,
        base_model=on_hub[0] if len(on_hub) == 1 else on_hub or None,  # what lies elsewhere cannot be linked to
        datasets=[source.hub_id for source in facts.training_data if source.hub_id] or None,
        metrics=list(dict.fromkeys(entry.metric_type for entry in entries)) or None,
        tags=facts.tags,
        model_name=facts.model_name,
        eval_results=entries or None,
        **{key: value for key, value in optional.items() if value is not None},
    )


def _inference(facts: ModelCardFacts) -> dict[str, Any] | None:
    """What the model's page, and a provider that runs the model, send with every request: labels as they are.
    transformers would otherwise put them into an English sentence."""
    if facts.pipeline_tag != PIPELINE_TAG:
        return None
    return {"parameters": {"hypothesis_template": "{}"}}


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
    """Whether the Hub reads the labels as they are: it takes a comma for the end of one. The card's text has all."""
    return facts.pipeline_tag != PIPELINE_TAG or not any("," in label for label, _ in example.ranking)


def _widget(example: Example, pipeline_tag: str) -> dict[str, Any]:
    """An example in the form that the page of a model with this task shows; examples of a language are a group."""
    group = {"group": example.language} if example.language else {}
    if pipeline_tag != PIPELINE_TAG:  # the page takes texts alone, and shows vectors
        return {"text": example.ranking[0][0], "example_title": example.title} | group
    output = [{"label": label, "score": round(score, 4)} for label, score in example.ranking]
    labels = ", ".join(sorted(label for label, _ in example.ranking))
    shown = {"src": example.file_name, "example_title": example.title, "candidate_labels": labels}
    return shown | group | {"output": output}
