"""The classes that run the recipes of a method."""

from dataclasses import dataclass

from .building import ModelBuilder
from .data import RecipeData
from .recipe import DualEncoderRecipe, Recipe
from .reporting import Reporting
from .training import StagedTraining


@dataclass(frozen=True)
class Workflow:
    """The classes that run the recipes of a method. The defaults are those of a dual encoder that reads word pieces;
    a method that differs in a part names a subclass of it.

    Args:
        recipe: the keys of its recipes.
        data: reads the data, and tells the languages in it.
        builder: builds the processor and the model.
        training: trains the model, stage by stage.
        reporting: evaluates the trained model, and writes its card.
        tasks: of a workflow that fine-tunes on tasks, the values that `task` may have.
    """

    recipe: type[Recipe] = DualEncoderRecipe
    data: type[RecipeData] = RecipeData
    builder: type[ModelBuilder] = ModelBuilder
    training: type[StagedTraining] = StagedTraining
    reporting: type[Reporting] = Reporting
    tasks: tuple[str, ...] = ()


WORKFLOW = Workflow()
