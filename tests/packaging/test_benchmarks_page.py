"""docs/reference/benchmarks.md is what the catalog of benchmarks says."""

import importlib.util
from pathlib import Path

TOOL = Path(__file__).parents[2] / "docs/tools/benchmarks_page.py"


def test_the_page_is_written_from_the_catalog():
    spec = importlib.util.spec_from_file_location("benchmarks_page", TOOL)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    written = tool.PAGE.read_text(encoding="utf-8")
    assert written == tool.benchmarks_page(), "run python docs/tools/benchmarks_page.py"
