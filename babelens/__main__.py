"""Runs the command line: `python -m babelens`, or `python -m torch.distributed.run -m babelens train …`."""

from .cli.main import main

main()
