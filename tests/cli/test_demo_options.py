"""`babelens demo` refuses what its search at the end could not ask, before anything is trained."""

import pytest
from typer.testing import CliRunner

from babelens.cli.main import app
from babelens.utils.errors import BabelensError


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--language", "xx"], "'xx' names no registered language"),
        (["--language", "Swahili"], "'Swahili'"),
        (["--language", "tlh"], "the emoji benchmark has no names in 'tlh'"),
        (["--method", "mla", "--language", "it"], "this demo's model does not learn 'it'; it learns en, de"),
        (["--method", "smalr", "--language", "es"], "this demo's model does not learn 'es'; it learns en, de"),
    ],
)
def test_a_language_that_cannot_be_asked_in(tmp_path, options, message):
    done = CliRunner().invoke(app, ["demo", "--output", str(tmp_path / "demo"), *options])
    assert isinstance(done.exception, BabelensError) and message in str(done.exception)
    assert not (tmp_path / "demo").exists()


@pytest.mark.parametrize("query", ["", "  "])
def test_an_empty_query(tmp_path, query):
    command = ["demo", "--output", str(tmp_path / "demo"), "--query", query]
    done = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
    assert done.exit_code == 2 and "it is empty" in done.output
