"""The facts of cards of models that were trained on the emoji benchmark, or evaluated with it."""

from collections.abc import Collection, Mapping
from typing import Any

from ..data.emoji.build import read_sources
from .facts import DataSource, RetrievalResult

_QUESTIONS = {"unseen_concepts": "Emoji, unseen concepts", "unseen_vendor": "Emoji, unseen vendor"}
_NAMES = ("names", "derived_names")


def emoji_sources(vendors: Collection[str]) -> list[DataSource]:
    """The sources of a model trained on the names of emoji and the images by `vendors` (`"twemoji"`, …)."""
    sources = [
        DataSource(
            name=source["title"],
            license=source["license"],
            role="captions and translations" if key in _NAMES else "images",
            attribution=source["attribution"],
            url=source["url"],
        )
        for key, source in read_sources().items()
        if key in _NAMES or key in vendors
    ]
    return list(dict.fromkeys(sources))  # one package of names after another, both from one source


def emoji_results(report: Mapping[str, Any], *, command: str) -> list[RetrievalResult]:
    """The answers to the benchmark's four questions.

    Args:
        report: the result of `EmojiBenchmark.report`, or the JSON file it was written to.
        command: the command that produced it.
    """
    return [
        RetrievalResult(
            dataset=f"{_QUESTIONS[question]} ({answers['vendor']}, {answers['split']} split)",
            language=language,
            scores=scores,
            command=command,
            note=f"A random ranking has text→image R@10 of {answers['chance']['t2i_r10']:.1f}.",
        )
        for question, answers in report.items()
        for group in answers["groups"].values()
        for language, scores in group["languages"].items()
    ]
