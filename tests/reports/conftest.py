"""Runs to report on."""

import json

import pytest
from report_runs import write_run


@pytest.fixture(scope="session")
def seeds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "seeds"
    for seed in (1, 2):
        write_run(folder / f"seed-{seed}", seed)
    return folder


@pytest.fixture
def validation(seeds):
    return [json.loads((seeds / f"seed-{seed}/evaluation/validation.json").read_text()) for seed in (1, 2)]
