"""Options with one meaning in several commands."""

from typing import Annotated

import typer

TrustRemoteCode = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run code that comes with a model, and kernels that it names.")
]
