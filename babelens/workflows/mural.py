"""MURAL's and ALIGN's recipes: they begin with a preset, with two pretrained towers, or with a MURAL."""

from .building import ModelBuilder
from .loading import Workflow


class MuralBuilder(ModelBuilder):
    """Builds a MURAL."""

    takes_towers = True


WORKFLOW = Workflow(builder=MuralBuilder)
