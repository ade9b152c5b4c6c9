"""The parts of a recipe's run."""

from pathlib import Path

from .loading import workflow_of
from .recipe import Recipe
from .training import CHECKPOINTS


class RunParts:
    """The parts of one run of a recipe: `data`, `builder`, `training` and `reporting`, each of its method's own class.

    Args:
        recipe: the recipe.
        output: the model's folder; checkpoints lie in `output/checkpoints`, results in `output/evaluation`.
        command: the command that was typed, for the card.
        trust_remote_code: whether code that comes with the models that the recipe names may run.
    """

    def __init__(self, recipe: Recipe, output: Path, command: str, trust_remote_code: bool = False) -> None:
        self.recipe, self.output, self.trust_remote_code = recipe, output, trust_remote_code
        workflow = workflow_of(recipe.method, recipe.task_name)
        self.data = workflow.data(recipe)
        self.builder = workflow.builder(recipe, self.data, output / CHECKPOINTS, trust_remote_code=trust_remote_code)
        self.training = workflow.training(recipe, self.data, self.builder, output)
        self.reporting = workflow.reporting(recipe, self.data, output, command, trust_remote_code=trust_remote_code)
