"""ETCL's recipes: they go on from an ETCL model, from a MURAL, or from nothing."""

from typing import Any

from transformers import PreTrainedModel, ProcessorMixin

from ..modeling.modeling_etcl import EtclModel
from ..modeling.modeling_mural import MuralModel
from ..processing.processing_etcl import EtclProcessor
from .building import ModelBuilder
from .loading import Workflow


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


WORKFLOW = Workflow(builder=EtclBuilder)
