"""Model cards: `README.md` with metadata for the Hub and text for people, from a run's facts and the method's text.

`template.md.jinja` holds the text of all cards, `<method>.md` fills in its blocks. The metadata are the Hub's:
languages by ISO 639, results as `model-index`, examples with this model's outputs as `widget`, so that the model's
page shows answers without inference.
https://huggingface.co/docs/hub/model-cards
"""

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jinja2
from huggingface_hub import EvalResult, ModelCard, ModelCardData

from .base_models import BaseModel
from .endpoint import write_endpoint
from .facts import ModelCardFacts, Result
from .licenses import check_weights_license, weights_license, what_it_forbids

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


def _environment(texts: Path | None) -> jinja2.Environment:
    folders = [Path(__file__).parent, *([texts] if texts else [])]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["cell"] = lambda value: str(value).replace("|", "\\|").replace("\n", " ")
    environment.filters["base_link"] = _link
    return environment


def _link(base: BaseModel) -> str:
    return f"[{base.name}](https://huggingface.co/{base.name})" if base.on_hub else f"`{base.name}`"


def placeholder_repository(model_name: str) -> str:
    """The name of the repository in a card before it is known; `babelens push` replaces it."""
    return f"your-name/{model_name}"


def write_card(folder: str | Path, facts: ModelCardFacts, *, texts: Path | None = None) -> Path:
    """Writes into a model's folder: `README.md`, the images of its examples, and what an Inference Endpoint needs.

    Args:
        folder: the model's folder.
        facts: the facts of this model.
        texts: a folder with the text `<method>.md` of a method that another package registers.

    Raises:
        ValueError: when there is no text for the method.
        PublishError: when the license of the weights cannot be told from those of the data and the base models, or is
            stated freer than that of a base model.
    """
    card = model_card(facts, texts=texts)
    for example in facts.examples:
        path = Path(folder) / example.file_name
        path.parent.mkdir(parents=True, exist_ok=True)
        example.image.save(path)
    if facts.in_pipelines:
        write_endpoint(folder)
    path = Path(folder) / "README.md"
    card.save(path)
    return path


def model_card(facts: ModelCardFacts, *, texts: Path | None = None) -> ModelCard:
    """The card as an object of `huggingface_hub`; arguments and errors as in `write_card`."""
    if facts.license:
        check_weights_license(facts.license, facts.base_models)
    license = facts.license or weights_license(facts.training_data, facts.base_models)
    try:
        template = _environment(texts).get_template(f"{facts.text}.md")
    except jinja2.TemplateNotFound as error:
        raise ValueError(f"there is no text for the cards of method {facts.method!r}") from error
    text = template.render(
        facts=facts,
        license=license,
        repo_id=placeholder_repository(facts.model_name),
        tables=_tables(facts),
        what_it_forbids=what_it_forbids,
    )
    return ModelCard(f"---\n{card_metadata(facts, license).to_yaml()}\n---\n\n{text}")


def card_metadata(facts: ModelCardFacts, license: str) -> ModelCardData:
    """The metadata block. `language` takes ISO 639 codes only; full tags go to `language_bcp47`."""
    codes = list(dict.fromkeys(tag.partition("-")[0] for tag in facts.languages))
    on_hub = list(dict.fromkeys(base.name for base in facts.base_models if base.on_hub))
    optional = {
        "language_bcp47": facts.languages if codes != facts.languages else None,
        "license_name": facts.license_name,
        "base_model_relation": facts.base_model_relation if on_hub else None,
        "widget": [_widget(each.file_name, each.title, each.ranking) for each in facts.examples] or None,
    }
    entries = [entry for result in facts.results for entry in _eval_results(result, facts.task_type)]
    return ModelCardData(
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


def _eval_results(result: Result, task_type: str) -> Iterable[EvalResult]:
    slug = "-".join("".join(c if c.isalnum() else " " for c in result.dataset.lower()).split())
    for metric, (metric_type, name) in _METRICS.items():
        if metric in result.scores:
            yield EvalResult(
                task_type=task_type,
                task_name=task_type.replace("-", " ").capitalize(),
                dataset_type=slug,
                dataset_name=f"{result.dataset} ({result.language})",
                dataset_config=result.language,
                metric_type=metric_type,
                metric_name=name,
                metric_value=round(float(result.scores[metric]), 2),
            )


def _widget(source: str, title: str, ranking: Sequence[tuple[str, float]]) -> dict[str, Any]:
    output = [{"label": label, "score": round(score, 4)} for label, score in ranking]
    labels = ", ".join(sorted(label for label, _ in ranking))
    return {"src": source, "example_title": title, "candidate_labels": labels, "output": output}


def _tables(facts: ModelCardFacts) -> list[dict[str, Any]]:
    """Results grouped into one table for each dataset and command, in their order."""
    groups = itertools.groupby(facts.results, lambda result: (result.dataset, result.command, result.note))
    return [
        {
            "dataset": dataset,
            "command": command,
            "note": note,
            "rows": [
                {
                    "language": result.language,
                    "seen": facts.training_of(result.language),
                    "scores": [f"{result.scores[metric]:.1f}" for metric in facts.metrics],
                    "sizes": [count for name, count in result.scores.items() if name.startswith("n")],
                }
                for result in results
            ],
        }
        for (dataset, command, note), results in groups
    ]
