"""babelens teaches vision-language models new languages, and publishes the result as ordinary Hugging Face models.

Importing it registers its models with transformers' Auto classes and its adapters with PEFT, without network. The
public names stand in `__init__.pyi`; each is imported when it is first used. In a process that is the command line
`babelens`, which must answer `--help` at once, the models are registered when a command needs them.
"""

import lazy_loader

from . import quiet_start

__version__ = "1.0.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

if not quiet_start.is_command_line():
    from .registry import register

    register()
