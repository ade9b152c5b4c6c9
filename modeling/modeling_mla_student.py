"""MLA's baselines: a multilingual student beside a frozen dual encoder (Zhang et al. 2022, tables 4 and 7).

The student is a text encoder whose state at [CLS] is projected to the width of the native model's features. It reads
every language, including the native one, with one multilingual vocabulary. The native model embeds the images, and the
native texts whose features the student learns to reproduce. There are two strategies:

    distillation   MKD: the encoder and the projection are trained (Reimers and Gurevych 2020)
    acquisition    CMA: the encoder is frozen; the projection and cross-modal acquirers behind its blocks are trained.
                   All languages share the acquirers
"""

from collections.abc import Sequence
from typing import Any, Self

from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import can_return_tuple

from ..configuration.configuration_mla_student import MlaStudentConfig
from ..configuration.errors import ModelKindError
from ..configuration.feature_width import feature_width
from .acquirer import AcquiredBlock, Acquirer, initialize_linears, load_plain_state_dict
from .forward_keywords import tower_keywords
from .language_rows import RowsByLanguage
from .modeling_dual_encoder import count_parameters
from .modeling_mla_base import MlaPreTrainedModel, Trainable, new_native_model
from .towers import build_tower
from .weights_as_made import initialized_by_itself

_EVERY = "every"  # stands for all languages


class CrossModalBlock(AcquiredBlock):
    """A frozen block, followed by the acquirer that all languages share."""

    def __init__(self, base_layer: nn.Module, acquirer: Acquirer) -> None:
        super().__init__(base_layer)
        self.mla_acquirers[_EVERY] = acquirer

    def rows_of(self, count: int) -> RowsByLanguage:
        return RowsByLanguage.all_in(_EVERY, count)


class MlaStudentModel(MlaPreTrainedModel):
    """A multilingual text encoder that learns the features of a frozen dual encoder.

    Examples:
        >>> model = MlaStudentModel.from_models(clip, bert, languages=["de", "fr"])
        >>> inputs = processor(text=["ein rotes Auto"], language="de", return_tensors="pt")
        >>> model.get_text_features(**inputs).pooler_output  # [1, 512]
    """

    config_class = MlaStudentConfig
    auto_classes = ("AutoModel", "AutoModelForZeroShotImageClassification")

    def __init__(self, config: MlaStudentConfig) -> None:
        super().__init__(config)
        self.native_model = new_native_model(config.base_config)
        self.text_model = build_tower(config.text_config)
        width = self.text_model.config.hidden_size
        if config.strategy == "acquisition":
            blocks = _blocks(self.text_model)
            for index, block in enumerate(blocks):
                blocks[index] = CrossModalBlock(block, Acquirer(width, config.acquirer_size, config.acquirer))
        self.projection = nn.Linear(width, feature_width(config.base_config))
        initialize_linears(self.projection)
        initialized_by_itself(self.projection)
        self.set_trainable("acquirers")
        self.post_init()

    @classmethod
    def from_models(cls, native_model: PreTrainedModel, text_model: PreTrainedModel, **options: Any) -> Self:
        """Makes a student that is about to learn from a plain dual encoder.

        Args:
            native_model: the dual encoder.
            text_model: the student's text encoder, such as M-BERT.
            options: keys of `MlaStudentConfig`, such as `languages`.
        """
        configs = {"base_config": native_model.config, "text_config": text_model.config}
        model = cls(MlaStudentConfig(**configs, **options)).to(native_model.dtype)
        model.load_native(native_model.state_dict())
        weights = text_model.state_dict().items()
        # [CLS] is read as it is, so that a tanh pooler is never used.
        load_plain_state_dict(model.text_model, {k: v for k, v in weights if not k.startswith("pooler.")})
        return model.train(native_model.training)

    def set_trainable(self, part: Trainable, languages: Sequence[str] | None = None) -> None:
        """Selects what is trained: the parts that the strategy trains, for all languages alike.

        Args:
            part: must be `acquirers`.
            languages: has no effect.

        Raises:
            ValueError: for any other part, because the native model provides the targets.
        """
        if part != "acquirers":
            raise ValueError(f"trainable={part!r}: the native model of a student stays frozen")
        self.requires_grad_(False)
        self.projection.requires_grad_(True)
        if self.config.strategy == "distillation":
            self.text_model.requires_grad_(True)
        for acquirer in self.acquirers():
            acquirer.requires_grad_(True)
        self.train(self.training)

    def frozen_parts(self) -> list[nn.Module]:
        return [self.native_model, *([self.text_model] if self.config.strategy == "acquisition" else [])]

    def acquirers(self) -> list[Acquirer]:
        """Returns the acquirers, which only the strategy `acquisition` has."""
        return [module for module in self.text_model.modules() if isinstance(module, Acquirer)]

    def parameter_parts(self) -> dict[str, int]:
        """Returns the number of parameters of each part; they add up to the total."""
        acquired = sum(map(count_parameters, self.acquirers()))
        parts = {"native model": count_parameters(self.native_model)}
        parts["text encoder"] = count_parameters(self.text_model) - acquired
        return parts | {"acquirers": acquired, "projection": count_parameters(self.projection)}

    @can_return_tuple
    def get_text_features(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        language_ids: Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Embeds texts in any language.

        Args:
            input_ids ([N, T]): token ids of the multilingual tokenizer, beginning with [CLS].
            attention_mask ([N, T]): 0 at padding.
            language_ids: has no effect, because the student does not distinguish languages.
            kwargs: keyword arguments of the text encoder.

        Returns:
            The text encoder's output; `pooler_output` [N, d] holds the embeddings, which are not normalized.

        Raises:
            ArgumentError: for a keyword that the text encoder does not have.
        """
        (kwargs,) = tower_keywords(self, kwargs, self.text_calls())
        output = self.text_model(input_ids=input_ids, attention_mask=attention_mask, return_dict=True, **kwargs)
        pooled = self.projection(output.last_hidden_state[:, 0])  # [N, T, width] -> [N, d]
        return BaseModelOutputWithPooling(
            output.last_hidden_state, pooled, output.get("hidden_states"), output.get("attentions")
        )


def _blocks(text_model: PreTrainedModel) -> nn.ModuleList:
    """Returns the list of a text encoder's blocks.

    Raises:
        ModelKindError: if no list of modules has the length that its configuration states.
    """
    count = text_model.config.num_hidden_layers
    found = [module for module in text_model.modules() if isinstance(module, nn.ModuleList) and len(module) == count]
    if not found:
        raise ModelKindError(f"no list of {count} blocks in a {text_model.config.model_type!r} text encoder")
    return found[0]


__all__ = ["MlaStudentModel"]
