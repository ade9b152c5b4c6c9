"""`python -m babelens`, and so `python -m torch.distributed.run -m babelens train …`."""

from .cli.main import main

main()
