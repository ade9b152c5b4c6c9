"""Showing results: as JSON in a file or on the terminal, or as a table."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import typer

from ...configuration.files import atomic_file


def show_results(
    results: Mapping[str, Any], output: Path | None, as_json: bool, print_table: Callable[[], None]
) -> None:
    """Writes results into `output` where it is given, and prints them as JSON or by `print_table`."""
    text = json.dumps(results, ensure_ascii=False, indent=2)
    if output:
        with atomic_file(output) as path:
            path.write_text(text, "utf-8")
    if as_json:
        typer.echo(text)
    else:
        print_table()
