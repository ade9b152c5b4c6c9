"""babelens teaches vision-language models new languages, and publishes the result as ordinary Hugging Face models.
Importing it registers its models with transformers' Auto classes and its adapters with PEFT, without network access.
`__init__.pyi` lists the public names; each is imported on first use. The command line, which must answer `--help` at
once, registers the models only when a command needs them."""

import sys
from pathlib import Path

import lazy_loader

__version__ = "0.9.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def _is_command_line() -> bool:
    words = sys.orig_argv
    is_module = "-m" in words and words[words.index("-m") + 1 :][:1] == ["babelens"]
    return is_module or Path(sys.argv[0]).name == "babelens"


if not _is_command_line():
    from .registry import register

    register()
