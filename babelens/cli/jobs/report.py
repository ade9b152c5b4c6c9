"""Writing a report, for `babelens report`."""

from pathlib import Path

from ...reports.page import write_report
from ..console import plain_console


def write_run_report(run: Path, output: Path | None) -> None:
    """Writes the report about a run, and prints where it is; arguments as those of `babelens report`."""
    plain_console().print(f"Report: {write_report(run, output)}", soft_wrap=True)
