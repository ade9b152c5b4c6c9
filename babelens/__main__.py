"""`python -m babelens`, and so `python -m torch.distributed.run -m babelens train …`."""

from .command_line import main

main()
