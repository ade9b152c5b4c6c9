"""Loads a recipe: its file, its overrides, and the classes of its method. This module defines the classes of MURAL,
ALIGN and ETCL, which start from a preset, from two pretrained towers, or from a saved model."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, ProcessorMixin

from ..modeling.modeling_etcl import EtclModel
from ..modeling.modeling_mural import MuralModel
from ..processing.processing_etcl import EtclProcessor
from ..registry import METHODS, imported
from ..utils.errors import RecipeError, did_you_mean
from ..utils.pretrained import load_config
from .argument_checks import overrides_checked
from .building import ModelBuilder
from .data import RecipeData
from .recipe import DualEncoderRecipe, Recipe
from .recipe_file import build, check_known, find_recipe, read_recipe, with_key
from .reporting import Reporting
from .training import CHECKPOINTS, StagedTraining

# ---- The classes that run the recipes of a method ----


@dataclass(frozen=True)
class Workflow:
    """The classes that run the recipes of a method. The defaults suit a dual encoder that reads word pieces; methods
    override the parts that differ.

    Args:
        recipe: the keys of its recipes.
        data: reads the data and its languages.
        builder: builds the processor and the model.
        training: trains the model, stage by stage.
        reporting: evaluates the trained model, and writes its card.
        tasks: the values of `task`, for a workflow that fine-tunes on tasks.
    """

    recipe: type[Recipe] = DualEncoderRecipe
    data: type[RecipeData] = RecipeData
    builder: type[ModelBuilder] = ModelBuilder
    training: type[StagedTraining] = StagedTraining
    reporting: type[Reporting] = Reporting
    tasks: tuple[str, ...] = ()


WORKFLOW = Workflow()


# ---- MURAL, ALIGN and ETCL ----

# Keys that may change in a saved model: its tasks, each with a head, and its losses.
_OF_TASKS = (
    *("tasks", "image_text_loss", "logit_bias_init_value", "label_smoothing"),
    *("text_text_temperature", "text_text_margin", "matryoshka_dims", "truncate_dim"),
)


class MuralData(RecipeData):
    """The data of MURAL; a pair of texts may be two captions of an image in one language."""

    pairs_with_itself = True


class MuralBuilder(ModelBuilder):
    """Builds a MURAL model; a saved model may get another task."""

    starts = ("mural",)
    overrides_start = True
    takes_towers = True

    def check(self) -> None:
        super().check()
        source = self.recipe.model
        for name in source.overrides if source.from_pretrained else ():
            if name not in _OF_TASKS:
                raise RecipeError(
                    f"model.overrides.{name}: a saved model keeps its configuration, except "
                    f"{', '.join(_OF_TASKS)}; leave it out"
                )

    def check_towers(self) -> None:
        super().check_towers()
        if not self.recipe.model.from_pretrained:
            return
        tasks = self.recipe.model.overrides.get("tasks") or load_config(self.start, **self.code).tasks
        for task in self.recipe.train:
            if task not in tasks:
                raise RecipeError(
                    f"train.{task}: {self.start} has the tasks {', '.join(tasks)}; leave it out, or add the task in "
                    "model.overrides.tasks"
                )

    def make_model(self, processor: ProcessorMixin) -> PreTrainedModel:
        model, source = super().make_model(processor), self.recipe.model
        if source.from_pretrained and source.overrides:
            with overrides_checked():
                model = MuralModel.from_native(model, **source.overrides)
            model.set_attn_implementation(source.attn_implementation or "sdpa")
        return model


MURAL = Workflow(data=MuralData, builder=MuralBuilder)


class EtclBuilder(ModelBuilder):
    """Builds an ETCL model. If `model.from_pretrained` is a MURAL's folder, `model.overrides` are keys of
    `EtclConfig`."""

    starts = ("etcl", "mural")
    overrides_start = True
    takes_towers = True

    def make_processor(self) -> ProcessorMixin:
        processor: Any = super().make_processor()
        if isinstance(processor, EtclProcessor):
            return processor
        kept = {name: getattr(processor, name) for name in ("text_prompt", "max_text_length", "pad_to_max_length")}
        return EtclProcessor(processor.image_processor, processor.tokenizer, **kept)

    def make_model(self, processor: ProcessorMixin) -> PreTrainedModel:
        model = super().make_model(processor)
        if isinstance(model, MuralModel):
            model = EtclModel.from_native(model, **self.recipe.model.overrides)
            model.set_attn_implementation(self.recipe.model.attn_implementation or "sdpa")
        return model


ETCL = Workflow(builder=EtclBuilder)


# ---- Recipes ----


def load_recipe(name: str | Path, overrides: dict[str, Any] | None = None) -> Recipe:
    """Reads a recipe as an object of its method's recipe class.

    Args:
        name: path of a recipe, or the name of one that comes with the package.
        overrides: values by dotted keys: `{"training.learning_rate": 1e-3}`.

    Raises:
        RecipeError: if the file is not a recipe, or has an unknown method, unknown keys or wrong values.
    """
    path = find_recipe(name)
    content = read_recipe(name)
    try:
        for dotted, value in (overrides or {}).items():
            content = with_key(content, dotted, value)
        recipe = _built(content)
    except RecipeError as error:
        # Values in a recipe may have line breaks and control characters.
        shown = "".join(char if char.isprintable() else repr(char)[1:-1] for char in str(error))
        raise RecipeError(f"{path}: {shown}") from error
    recipe._file = path
    return recipe


def _built(content: dict[str, Any]) -> Recipe:
    if "method" not in content:
        for key in content:
            check_known(key, ["method", *Recipe.model_fields])
        raise RecipeError(f"method is missing; choose one of {', '.join(METHODS)}")
    recipe_class = workflow_of(content["method"], content.get("task")).recipe
    # A null key of another method removes an inherited key.
    own = {key: value for key, value in content.items() if value is not None or key in recipe_class.model_fields}
    return build(recipe_class, own)


def workflow_of(method: object, task: object = None) -> Workflow:
    """The classes that run the recipes of a method, or that fine-tune its models on a task.

    Raises:
        RecipeError: if the method or task is unknown, or the method is not fine-tuned on tasks.
    """
    if not isinstance(method, str) or method not in METHODS:
        hint = did_you_mean(method, METHODS)
        raise RecipeError(f"method: there is no {method!r}{hint}; there are {', '.join(METHODS)}")
    if task is None:
        return imported(METHODS[method].workflow)
    reference = METHODS[method].task_workflow
    if reference is None:
        others = ", ".join(name for name, other in METHODS.items() if other.task_workflow)
        raise RecipeError(f"task: {method} is not fine-tuned on tasks; {others} is")
    workflow = imported(reference)
    if task not in workflow.tasks:
        hint = did_you_mean(task, workflow.tasks)
        raise RecipeError(f"task: there is no {task!r}{hint}; there are {', '.join(workflow.tasks)}")
    return workflow


# ---- The parts of a recipe's run ----


class RunParts:
    """The parts of one run of a recipe: `data`, `builder`, `training` and `reporting`, in the classes of its method.

    Args:
        recipe: the recipe.
        output: the model's folder, with `checkpoints` and `results.json`.
        command: the command to show on the card.
        trust_remote_code: whether to run code that comes with the models in the recipe.
    """

    def __init__(self, recipe: Recipe, output: Path, command: str, trust_remote_code: bool = False) -> None:
        self.recipe, self.output, self.trust_remote_code = recipe, output, trust_remote_code
        workflow = workflow_of(recipe.method, recipe.task_name)
        self.data = workflow.data(recipe)
        self.builder = workflow.builder(recipe, self.data, output / CHECKPOINTS, trust_remote_code=trust_remote_code)
        self.training = workflow.training(recipe, self.data, self.builder, output)
        self.reporting = workflow.reporting(recipe, self.data, output, command, trust_remote_code=trust_remote_code)
