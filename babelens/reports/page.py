"""Writing the report: one HTML page that holds everything that it shows, and asks nothing of the network.

`page.html.jinja` is the page, `charts.html.jinja` draws its charts as SVG, `style.css.jinja` is its style.
"""

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any

import jinja2

from .. import __version__
from ..configuration.files import atomic_file
from ..inference.lettering import CREDIT, web_fonts
from ..model_cards.base_models import BaseModel
from ..model_cards.licenses import what_it_forbids
from . import charts
from .charts import Bar
from .results import LanguageFacts, TestSet, is_language, language_facts, test_sets
from .sources import Evaluation, Sources, read_sources
from .training import costs, stages

REPORT = "report.html"
_ENDING = ".report.html"
_TRAINED = {
    "image_languages": "Trained with captioned images",
    "pair_languages": "Trained with translations only",
    "unseen_languages": "Never seen in training",
}


def report_file(path: str | Path) -> Path:
    """Where the report about a run's folder or a file of results is written, unless another place is given."""
    path = Path(path)
    return path / REPORT if path.is_dir() else path.with_suffix(_ENDING)


def write_report(path: str | Path, output: str | Path | None = None) -> Path:
    """Writes the report about a run.

    Args:
        path: the folder of a run, a folder with a run for each seed, or a file of `babelens evaluate --output`.
        output: the file to write; by default `report.html` in the folder, or beside a file of results.

    Returns:
        The report's path.

    Raises:
        ComparisonError: for a path without results, a file that is damaged, and runs that were evaluated on different
            queries.
        SaveError: when the file cannot be written.
    """
    file = Path(output) if output else report_file(path)
    page = report_page(read_sources(Path(path)))
    with atomic_file(file) as unfinished:
        unfinished.write_text(page, encoding="utf-8", errors="replace")
    return file


def report_page(sources: Sources) -> str:
    """The report as HTML."""
    found = [(evaluation, list(test_sets(evaluation))) for evaluation in sources.evaluations]
    tests = [test for _, each in found for test in each]
    # The most languages tell the most; of several such, the last is the easiest question of the emoji benchmark.
    main = max(reversed(tests), key=lambda test: len(test.bars), default=None)
    card = sources.runs[0].card if sources.runs else {}
    return (
        _environment()
        .get_template("page.html.jinja")
        .render(
            name=card.get("model_name") if len(sources.runs) == 1 and card.get("model_name") else sources.name,
            version=__version__,
            runs=sources.runs,
            card=card,
            tests=tests,
            main=main,
            headline=fmean(bar.value for bar in main.bars.values()) if main and main.bars else None,
            galleries=[gallery for evaluation, _ in found if (gallery := _gallery(evaluation))],
            fonts=_fonts([evaluation for evaluation, _ in found]),
            font_credit=CREDIT,
            languages=list(_language_groups(card, main)),
            scripts=_scripts(card, main),
            stages=stages(sources.runs),
            costs=costs(sources.runs),
            base_models=[BaseModel(**base) for base in card.get("base_models", [])],
            commands=list(dict.fromkeys(run.card["run"]["command"] for run in sources.runs if run.card.get("run"))),
        )
    )


@dataclass(frozen=True)
class Tile:
    """A language in the overview, with its bar of the main test set where it has one."""

    language: LanguageFacts
    bar: Bar | None


def _language_groups(card: Mapping[str, Any], main: TestSet | None) -> Iterator[tuple[str, list[Tile]]]:
    """The languages by the kind of their training data; those of which nothing is known, as others."""
    bars = dict(main.bars) if main else {}
    known = {title: list(card.get(key) or []) for key, title in _TRAINED.items()}
    trained = [tag for tags in known.values() for tag in tags]
    others = [tag for tag in dict.fromkeys([*card.get("languages", []), *bars]) if tag not in trained]
    for title, tags in {**known, "Other languages" if trained else "Languages": others}.items():
        if tags:
            yield title, [Tile(language_facts(tag), bars.get(tag)) for tag in tags]


def _scripts(card: Mapping[str, Any], main: TestSet | None) -> list[tuple[str, list[str]]]:
    """The scripts of all languages, the most frequent first, with their languages."""
    tags = [tile.language for _, tiles in _language_groups(card, main) for tile in tiles]
    by_script = sorted((each for each in tags if each.script), key=lambda each: each.script)
    groups = [
        (script, [each.tag for each in members]) for script, members in groupby(by_script, lambda each: each.script)
    ]
    return sorted(groups, key=lambda group: -len(group[1]))


def _gallery(evaluation: Evaluation) -> dict[str, Any] | None:
    """The rows of a gallery by their headings."""
    if evaluation.gallery is None:
        return None
    sections: dict[str, list[Mapping[str, Any]]] = {}
    heading = ""
    for row in evaluation.gallery.rows:
        heading = row["heading"] or heading
        sections.setdefault(heading, []).append(row)
    found = evaluation.gallery
    return {"name": evaluation.name, "sections": sections, "texts": found.texts, "credits": found.credits}


def _fonts(evaluations: Sequence[Evaluation]) -> list[dict[str, Any]]:
    """The fonts of the queries, as style sheets name them. Of fonts that overlap, the one for the longer tag, such as
    `zh-Hant`, comes later, and wins."""
    galleries = [evaluation.gallery for evaluation in evaluations if evaluation.gallery]
    rows = [(row["query"], row["language"]) for gallery in galleries for row in gallery.rows]
    rows += [(text, row["language"]) for gallery in galleries for row in gallery.texts for text in row["texts"]]
    texts = [(text, language) for text, language in rows if is_language(language)]
    fonts = sorted(web_fonts(texts), key=lambda font: max(map(len, font.languages)))
    return [
        {
            "languages": font.languages,
            "files": [(base64.b64encode(data).decode("ascii"), codes) for data, codes in font.files],
        }
        for font in fonts
    ]


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": charts.number,
        "is_language": is_language,
        "language_name": lambda tag: language_facts(tag).name,
        "forbids": what_it_forbids,
        "is_web": lambda url: bool(url) and url.startswith(("https://", "http://")),
    }
    environment.globals |= {
        name: getattr(charts, name) for name in ("WIDTH", "HEIGHT", "LEFT", "RIGHT", "TOP", "BOTTOM", "COLORS")
    }
    return environment
