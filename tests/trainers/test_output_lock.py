"""One process at a time in an output folder."""

import os
import signal
import subprocess
import sys

import pytest

from babelens.configuration.errors import SaveError
from babelens.trainers.output_lock import locked

HOLD = """
import sys, time
from babelens.trainers.output_lock import locked
with locked(sys.argv[1]):
    print("locked", flush=True)
    time.sleep(100)
"""


def test_a_second_process_is_told_who_has_the_folder(tmp_path):
    folder = tmp_path / "model"
    with subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout.readline() == "locked\n"
            with (
                pytest.raises(SaveError, match=rf"model is in use by process {other.pid} on .*: wait until"),
                locked(folder),
            ):
                pass
        finally:
            other.send_signal(signal.SIGKILL)
        other.wait()
        with locked(folder):  # the lock is gone with the process
            assert str(os.getpid()) in (folder / ".lock").read_text()
    assert list(folder.iterdir()) == []


def test_a_lock_leaves_what_is_in_the_folder(tmp_path):
    with pytest.raises(KeyError), locked(tmp_path / "deep" / "model"):
        (tmp_path / "deep" / "model" / "weights").write_text("w")
        raise KeyError
    assert [path.name for path in (tmp_path / "deep" / "model").iterdir()] == ["weights"]


@pytest.mark.parametrize("variable", ["RANK", "OMPI_COMM_WORLD_RANK"])
def test_the_first_process_of_a_job_locks_for_all(tmp_path, monkeypatch, variable):
    with locked(tmp_path):
        monkeypatch.setenv(variable, "1")
        with locked(tmp_path):
            pass
        monkeypatch.setenv(variable, "0")
        with pytest.raises(SaveError), locked(tmp_path):
            pass
        assert (tmp_path / ".lock").exists()
