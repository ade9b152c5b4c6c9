"""Writes docs/results/published-experiments.md from its table: `python docs/tools/experiments_page.py`.

`tests/recipes/test_published_experiments.py` checks that the page matches the table.
"""

from pathlib import Path
from typing import Any

import yaml

PAGE = Path(__file__).parents[1] / "results" / "published-experiments.md"
TABLE = PAGE.with_suffix(".yaml")
_HEAD = """\
<!-- Written by docs/tools/experiments_page.py from published-experiments.yaml. Change the table, not this page. -->
# Published experiments

This page lists every row of every table in the five papers, with the recipe that trains it and the data that it needs.
**We have not run these experiments**: their data and machines are beyond this project. The other pages of this chapter
report results of the small recipes in `recipes/emoji/` and `recipes/photos/`. The tests run each recipe and setting
below for two steps on a few rows in the published layout of its data.

Each recipe trains the model of a row; the columns are evaluations of that model. Results of other models that a paper
quotes (M3P, UC2, M-UNITER, LaBSE, …) are not listed. "–" marks rows without a recipe, with the reason.

`A + B` means: train recipe A, then B with `--set model.from_pretrained` naming A's output. Set the paths in a recipe
with `--set` (`train.image_text.options.folder`, and so on). For means over seeds, as in RC3's paper, use
`--set training.seed=1`, and so on, and [`babelens compare`](../how-to/judge-a-model.md#several-seeds).

## Availability of the data

Recipes name a data set by its `source`, and read its original files ([readers](../how-to/your-data.md)).

| data | availability | `source` |
|---|---|---|
"""


def read_table() -> dict[str, Any]:
    """Reads the table."""
    return yaml.safe_load(TABLE.read_text(encoding="utf-8"))


def experiments_page() -> str:
    """The page as Markdown."""
    table = read_table()
    lines: list[str] = []
    for facts in table["data"].values():
        note = f"{facts['note']}" if facts["note"] else ""
        state = "; ".join(filter(None, (table["states"][facts["state"]], note)))
        lines.append(f"| {facts['name']} | {state} | {_codes(facts.get('sources', ()))} |")
    for paper in table["papers"]:
        lines += ["", f"## {paper['name']}", "", "| table | row | recipe | data |", "|---|---|---|---|"]
        lines += [_row(row, table) for row in paper["rows"]]
        lines += ["", paper["note"].strip()]
    return _HEAD + "\n".join(lines) + "\n"


def _row(row: dict[str, Any], table: dict[str, Any]) -> str:
    recipes = " + ".join(f"`{name}`" for name in row.get("recipes", ()))
    if "none" in row:
        recipes = f"– ({table['reasons'][row['none']]})"
    how = f", {row['how']}" if "how" in row else ""
    data = [
        table["data"][key]["name"] + (" (never published)" if table["data"][key]["state"] == "unpublished" else "")
        for key in row.get("data", ())
    ]
    return f"| {row['table']} | {row['row']} | {recipes}{how} | {', '.join(data) or '–'} |"


def _codes(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    PAGE.write_text(experiments_page(), encoding="utf-8")
