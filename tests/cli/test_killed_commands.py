"""Long commands, killed at random moments: what is left is completed by the next run. Two at once with one output.

`BABELENS_KILLS=50` kills each of them more often; `python -m tests.support.killed_commands` prints a table.
"""

import os

import pytest

from tests.support.killed_commands import commands, doubled, killed_command

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the killed processes are forks, which start at once"),
]

KILLS = int(os.environ.get("BABELENS_KILLS", "2"))
NAMES = ["train", "acquire", "embed", "embed a file", "features", "data", "trim", "index"]
NAMES += ["export", "export in place", "export stock"]


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    return commands(tmp_path_factory.mktemp("killed") / "brought")


def test_every_command_is_tried(known):
    assert list(known) == NAMES


@pytest.mark.timeout(900 if KILLS <= 2 else 0)
@pytest.mark.parametrize("name", NAMES)
def test_a_killed_command_is_completed_by_the_next_run(known, tmp_path, name):
    outcome = killed_command(known, name, KILLS, tmp_path)
    assert outcome.kills == KILLS and outcome.broken == []


@pytest.mark.parametrize("name", NAMES)
def test_two_processes_with_one_output_write_what_one_does(known, tmp_path, name):
    statuses, is_the_same = doubled(known, name, tmp_path)
    assert 0 in statuses and is_the_same
