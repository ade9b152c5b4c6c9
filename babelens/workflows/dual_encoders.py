"""Recipes of MURAL, ALIGN and ETCL: they begin with a preset, with two pretrained towers, or with a saved model."""

from typing import Any

from transformers import PreTrainedModel, ProcessorMixin

from ..configuration.errors import RecipeError
from ..configuration.pretrained import load_config
from ..modeling.modeling_etcl import EtclModel
from ..modeling.modeling_mural import MuralModel
from ..processing.processing_etcl import EtclProcessor
from .argument_checks import overrides_checked
from .building import ModelBuilder
from .data import RecipeData
from .loading import Workflow

# What a model that training goes on from may change: its tasks, each with a head, and its losses.
_OF_TASKS = (
    *("tasks", "image_text_loss", "logit_bias_init_value", "label_smoothing"),
    *("text_text_temperature", "text_text_margin", "matryoshka_dims", "truncate_dim"),
)


class MuralData(RecipeData):
    """The data of MURAL, whose pairs of texts may be two captions of an image in one language."""

    pairs_with_itself = True


class MuralBuilder(ModelBuilder):
    """Builds a MURAL; one that training goes on from may get another task."""

    starts = ("mural",)
    overrides_start = True
    takes_towers = True

    def check(self) -> None:
        super().check()
        source = self.recipe.model
        for name in source.overrides if source.from_pretrained else ():
            if name not in _OF_TASKS:
                raise RecipeError(
                    f"model.overrides.{name}: a model that training goes on from keeps its configuration, but for "
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
                model = MuralModel.from_mural(model, **source.overrides)
            model.set_attn_implementation(source.attn_implementation or "sdpa")
        return model


MURAL = Workflow(data=MuralData, builder=MuralBuilder)


# ---- ETCL's recipes: they go on from an ETCL model, from a MURAL, or from nothing ----


class EtclBuilder(ModelBuilder):
    """Builds an ETCL model; `model.from_pretrained` may be a MURAL's folder, and `model.overrides` are then
    `EtclConfig`'s keys."""

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
            model = EtclModel.from_mural(model, **self.recipe.model.overrides)
            model.set_attn_implementation(self.recipe.model.attn_implementation or "sdpa")
        return model


ETCL = Workflow(builder=EtclBuilder)
