"""Runs the test suites of transformers and peft on the models, processors and adapters of babelens.

`make test-peers` fetches the suites (`fetch.py`) into the folder BABELENS_PEERS; without it nothing here is collected.
Modules that the source distributions lack are replaced by empty ones. `not_applicable.toml` lists the tests that do
not hold, each with a reason; a listed test that passes, is skipped or does not exist fails the run.
"""

import os
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

HERE = Path(__file__).parent
SUITES = os.environ.get("BABELENS_PEERS")
CLIP = "TestClip"

if SUITES is None:
    collect_ignore_glob = ["test_*.py"]


def _module(name: str, path: Path | None = None, **content: Any) -> None:
    module = ModuleType(name)
    vars(module).update(content)
    if path is not None:
        if not path.is_dir():
            raise pytest.UsageError(f"{path} is missing: run `make test-peers`")
        vars(module)["__path__"] = [str(path)]
    sys.modules[name] = module


def _unavailable(*args: Any, **kwargs: Any) -> Any:
    raise OSError("this part of the suite needs files from the Hub")


if SUITES is not None:
    suites = Path(SUITES).resolve()
    _module("transformers_tests", suites / f"transformers-{version('transformers')}" / "tests")
    _module("transformers_tests.exporters", suites)
    _module("transformers_tests.exporters.test_export", ExportTesterMixin=type("ExportTesterMixin", (), {}))
    _module("transformers_tests.generation", suites)
    _module("transformers_tests.generation.test_utils", GenerationTesterMixin=type("GenerationTesterMixin", (), {}))
    _module("fetch_hub_objects_for_ci", url_to_local_path=lambda url: url)
    _module("peft_tests", suites / f"peft-{version('peft')}" / "tests")
    if "diffusers" not in sys.modules:
        _module("diffusers", StableDiffusionPipeline=type("StableDiffusionPipeline", (), {}))


# Settings of the suites in their own projects.
_MARKERS = ("accelerate_tests", "bitsandbytes", "flash_attn_test", "flash_attn_3_test", "flash_attn_4_test", "slow")
_MARKERS += ("torch_compile_test",)


def pytest_configure(config: pytest.Config) -> None:
    for marker in (*_MARKERS, "listed: a test of not_applicable.toml"):
        config.addinivalue_line("markers", marker)


def _listed() -> dict[tuple[str, str], str]:
    entries = tomllib.loads((HERE / "not_applicable.toml").read_text(encoding="utf-8"))["entry"]
    listed: dict[tuple[str, str], str] = {}
    for entry in entries:
        for cls in entry["classes"]:
            for test in entry["tests"]:
                if (cls, test) in listed:
                    raise pytest.UsageError(f"not_applicable.toml lists {cls}::{test} twice")
                listed[cls, test] = entry["reason"]
    return listed


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    ours = [item for item in items if item.path.parent == HERE]
    if not ours:
        return
    listed, known = _listed(), {_name(item) for item in ours}
    is_whole = not config.option.keyword and {item.path for item in ours} == set(HERE.glob("test_*.py"))
    if is_whole and (unknown := sorted(set(listed) - known)):
        raise pytest.UsageError(f"not_applicable.toml lists tests that do not exist: {unknown}")
    for item in ours:
        # The suites call functions that their own projects deprecate.
        item.add_marker(pytest.mark.filterwarnings("default::DeprecationWarning", "default::FutureWarning"))
        if reason := listed.get(_name(item)):
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
            item.add_marker(pytest.mark.listed)


def _name(item: pytest.Item) -> tuple[str, str]:
    return item.parent.name if item.parent else "", item.name


_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    if report.when != "call" or not item.get_closest_marker("listed"):
        return report
    if report.skipped and not hasattr(report, "wasxfail"):
        report.outcome, report.longrepr = "failed", f"{item.nodeid} is listed as not applicable, and is skipped anyway"
    elif call.excinfo is not None:
        item.stash[_FAILED] = True  # of a part of the test as well, after which the whole passes
    elif item.stash.get(_FAILED, False):
        report.outcome, report.longrepr, report.wasxfail = "skipped", "", "a part of it does not hold"
    return report
