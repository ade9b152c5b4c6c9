"""MLA: a frozen dual encoder that acquires languages (Zhang et al. 2022).

`native_model` is an ordinary dual encoder, which embeds the images, and the native texts (`language_ids` 0) whose
features are the targets of other texts. In its text tower, the acquirers of a text's language follow every block. With
features f, a text t, its native translation n and its image v are trained in two stages (section 3.3):

    native language transfer    L = ‖f(t) − f(n)‖²                               (equation 4)
    language exposure           L = −log softmax(cos(f(t), f(v)) · 100), twice   (equation 5)
"""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn
from transformers import (
    AutoModel,
    PreTrainedConfig,
    PreTrainedModel,
    VisionTextDualEncoderModel,
    initialization as init,
)
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import can_return_tuple, logging

from ..configuration.configuration_mla import OWN_NATIVES, ClipResNetConfig, MlaConfig, text_positions, tower_pooling
from ..configuration.configuration_two_tower import POOLER
from ..utils.errors import ModelKindError
from .acquirer import (
    AcquiredBlock,
    AcquiredEmbedding,
    Acquirer,
    BatchLanguages,
    MasksByLanguage,
    NonNativeEmbedding,
    RowsByLanguage,
    TowerParts,
    eval_frozen,
    languages_of_rows,
    load_plain_state_dict,
    plain_state_dict,
    take_precision,
)
from .clip_resnet import ClipResNetModel
from .modeling_common import check_pooling, check_text_encoder, is_exporting
from .modeling_dual_encoder import (
    MIN_TEMPERATURE,
    DualEncoderOutput,
    DualEncoderPreTrainedModel,
    at_least,
    build_tower,
    in_dtype_of,
    normalize,
    tower_keywords,
)

logger = logging.get_logger(__name__)

Trainable = Literal["acquirers", "native", "all"]


@dataclass
class MlaOutput(DualEncoderOutput):
    """Output of `MlaModel`, `MlaStudentModel` and `RidgeModel`, with the embeddings [N, d] before normalization."""

    text_features: Tensor | None = None
    image_features: Tensor | None = None
    paired_text_features: Tensor | None = None


def new_native_model(config: PreTrainedConfig) -> PreTrainedModel:
    """Builds an untrained dual encoder of transformers or babelens, also in a saved folder."""
    if config.model_type in OWN_NATIVES:
        module = import_module(f".modeling_{config.model_type}", __package__)
        models = (each for each in vars(module).values() if hasattr(each, "config_class"))
        own = next(each for each in models if getattr(each.config_class, "model_type", None) == config.model_type)
        return own._from_config(config)
    image = getattr(config, "vision_config", None)
    if getattr(image, "model_type", None) == ClipResNetConfig.model_type:
        # In a saved folder, the class of `image` is a copy, which `AutoModel` does not know.
        return VisionTextDualEncoderModel(config, vision_model=ClipResNetModel._from_config(image))
    return AutoModel.from_config(config)


class MlaPreTrainedModel(DualEncoderPreTrainedModel):
    """Base class of models that build on a frozen dual encoder, the native model. It keeps its precision, and saved
    files the exact bits of its weights; `learned_parts` may have another precision (the configuration's
    `learned_dtype`). The modules of `frozen_parts` are never trained, except for acquirers inside them."""

    _no_split_modules = ("AcquiredBlock", "AcquiredEmbedding")
    native_model: PreTrainedModel
    stored_weights: Mapping[str, Tensor] = {}  # set by `load_model` with `as_stored`
    trains_native = False
    trains_temperature = False

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        """Loads as transformers does: each part in its own precision, or all in the requested `dtype`."""
        loaded = super().from_pretrained(*args, **kwargs)
        if kwargs.get("dtype", kwargs.get("torch_dtype")) not in (None, "auto"):
            model = loaded[0] if isinstance(loaded, tuple) else loaded
            for part in model.learned_parts():
                part.to(model.dtype)
        return loaded

    def save_pretrained(
        self, save_directory: str | os.PathLike, is_main_process: bool = True, state_dict: Any = None, **kwargs: Any
    ) -> None:
        """Saves as transformers does. The native model's weights are saved in the precision of its files."""
        own = self.learned_dtype
        self.config.learned_dtype = None if own == self.dtype else str(own).removeprefix("torch.")
        if self.stored_weights:
            state_dict = self.state_dict() if state_dict is None else state_dict
            state_dict = state_dict | {
                name: stored
                for name, stored in self.stored_weights.items()
                if torch.equal(stored.to(state_dict[name].dtype), state_dict[name].cpu())  # it was not trained
            }
        super().save_pretrained(save_directory, is_main_process=is_main_process, state_dict=state_dict, **kwargs)

    def export_code(self, folder: str | os.PathLike) -> None:
        from ..utils.hub_code import add_code

        super().export_code(folder)
        if self.config.base_config.model_type in OWN_NATIVES:  # transformers does not have its code
            add_code(type(self.native_model), folder, "modeling_mla")

    @property
    def learned_dtype(self) -> torch.dtype:
        return next((weight.dtype for part in self.learned_parts() for weight in part.parameters()), self.dtype)

    def new_text_encoder(self) -> PreTrainedModel:
        """Builds the untrained text encoder of a model that has one besides the native model."""
        config, pooling = self.config.text_config, self.config.text_pooling
        check_text_encoder(config)
        if self.config.learned_dtype is not None:
            config.dtype = getattr(torch, self.config.learned_dtype)
        encoder = build_tower(config, pooler=pooling == POOLER)
        check_pooling(encoder, pooling)
        return encoder

    def _settle_precision(self) -> None:
        if self.config.learned_dtype is not None:
            for part in self.learned_parts():
                part.to(getattr(torch, self.config.learned_dtype))

    def take_text_encoder(self, encoder: PreTrainedModel) -> None:
        """Loads the weights of a plain text encoder, except of parts that are not used, such as a pooling layer."""
        own = plain_state_dict(self.text_model)
        weights = {name: value for name, value in encoder.state_dict().items() if name in own}
        wrapped, stored = load_plain_state_dict(self.text_model, weights), getattr(encoder, "stored_weights", {})
        kept = {f"text_model.{wrapped[name]}": value for name, value in stored.items() if name in own}
        self.stored_weights = {**self.stored_weights, **kept}

    @torch.no_grad()
    def initialize_weights(self) -> None:
        super().initialize_weights()
        # CLIP's scale, which transformers sets when it builds the model, but not when a folder lacks it.
        if (initial := getattr(self.native_model.config, "logit_scale_init_value", None)) is not None:
            init.constant_(self.native_model.logit_scale, initial)

    def take_native(self, native_model: PreTrainedModel) -> None:
        """Loads the weights of a plain dual encoder, and keeps those that its files hold in another precision."""
        wrapped = load_plain_state_dict(self.native_model, native_model.state_dict())
        stored = getattr(native_model, "stored_weights", {})
        self.stored_weights = {f"native_model.{wrapped[name]}": value for name, value in stored.items()}
        # Training learned parts in half precision would lose small steps.
        for part in self.learned_parts():
            part.to(torch.promote_types(native_model.dtype, torch.float32))

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        for part in self.frozen_parts():
            eval_frozen(part, training=mode)
        return self

    @can_return_tuple
    def get_image_features(self, pixel_values: Tensor, **kwargs: Any) -> BaseModelOutputWithPooling:
        """Embeds images [N, 3, H, W] with the native model; `pooler_output` [N, d] is not normalized."""
        native = self.native_model
        tower = getattr(native, "vision_model", native)
        pixel_values = in_dtype_of(tower if isinstance(tower, PreTrainedModel) else native, pixel_values)
        kwargs = tower_keywords(kwargs, native.get_image_features, tower.forward) | {"return_dict": True}
        return native.get_image_features(pixel_values=pixel_values, **kwargs)

    @torch.no_grad()
    def embed_native_texts(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Embeds native texts exactly as the native model does, without padding them to longer texts in the batch."""
        inputs = {"input_ids": input_ids}
        # SigLIP was trained with every text padded to the full length, and without a mask.
        if attention_mask is not None and "siglip" not in self.native_model.config.model_type:
            inputs["attention_mask"] = attention_mask
        if is_exporting():
            # A student may read longer texts than the native model has positions for, or only shorter ones.
            native = self.native_model.config
            if length := text_positions(getattr(native, "text_config", native)):
                inputs = {name: nn.functional.pad(ids, (0, length))[:, :length] for name, ids in inputs.items()}
        elif attention_mask is not None:
            length = int(attention_mask.sum(-1).max())
            inputs = {name: value[:, :length] for name, value in inputs.items()}
        return self.native_model.get_text_features(**inputs, return_dict=True).pooler_output

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        pixel_values: Tensor | None = None,
        attention_mask: Tensor | None = None,
        language_ids: Tensor | None = None,
        image_features: Tensor | None = None,
        paired_input_ids: Tensor | None = None,
        paired_attention_mask: Tensor | None = None,
        paired_language_ids: Tensor | None = None,
        paired_text_features: Tensor | None = None,
        return_loss: bool | None = None,
        return_logits: bool = True,
        positives: Tensor | None = None,
        **kwargs: Any,
    ) -> MlaOutput:
        """Embeds the given inputs, and compares texts with images [M, 3, H, W] (a loss needs M = N), or with native
        translations, ids of the native tokenizer, whose features are targets and receive no gradient. `image_features`
        [M, d] and `paired_text_features` [N, d] are precomputed; other arguments are as in `MuralModel`."""
        kwargs |= {"return_dict": True}
        found: dict[str, Any] = {"temperature": self._temperature()}
        if input_ids is not None:
            texts = self.get_text_features(input_ids, attention_mask, language_ids, **kwargs)
            found |= {"text_model_output": texts, "text_features": texts.pooler_output}
        if pixel_values is not None:
            with torch.set_grad_enabled(self.trains_native and torch.is_grad_enabled()):
                images = self.get_image_features(pixel_values, **kwargs)
            found["vision_model_output"], image_features = images, images.pooler_output
        if paired_language_ids is not None and paired_language_ids.any():
            raise ValueError("paired texts must be in the native language: their features are the targets")
        if paired_input_ids is not None:
            paired = {"input_ids": paired_input_ids, "return_dict": True}
            paired |= {} if paired_attention_mask is None else {"attention_mask": paired_attention_mask}
            with torch.no_grad():
                paired_text_features = self.native_model.get_text_features(**paired).pooler_output
        given = {"image_features": image_features, "paired_text_features": paired_text_features}
        found |= {name: features for name, features in given.items() if features is not None}
        for name in [name for name in found if name.endswith("_features")]:
            found[name.replace("_features", "_embeds")] = normalize(found[name])
        if self.config.image_text_objective == "sigmoid" and isinstance(self.logit_bias, Tensor):
            found["logit_bias"] = self.logit_bias.clone().reshape(())
        return self.with_logits_and_loss(MlaOutput(**found), return_logits, return_loss, positives)

    @property
    def logit_bias(self) -> Tensor | float:  # type: ignore[override]
        return getattr(self.native_model, "logit_bias", 0.0)

    @property
    def temperature_parameter(self) -> nn.Parameter:
        """The weight [] of the native model that determines its temperature."""
        native = self.native_model
        return native.logit_scale if hasattr(native, "logit_scale") else native.temperature

    def _temperature(self) -> Tensor:
        """Returns the native model's divisor of cosines."""
        weight, is_scale = self.temperature_parameter, hasattr(self.native_model, "logit_scale")
        temperature = (-weight).exp() if is_scale else weight
        # A frozen scale is not bounded: SigLIP's temperature is lower.
        return temperature if is_scale and not self.trains_temperature else at_least(temperature, MIN_TEMPERATURE)

    @torch.no_grad()
    def bound_temperature(self) -> None:
        if self.trains_temperature:
            is_scale = hasattr(self.native_model, "logit_scale")
            bound = {"max": -math.log(MIN_TEMPERATURE)} if is_scale else {"min": MIN_TEMPERATURE}
            self.temperature_parameter.clamp_(**bound)

    def check_objectives(self) -> None:
        """Checks that the native model supports the objectives in the configuration."""
        if self.config.image_text_objective == "sigmoid" and not isinstance(self.logit_bias, Tensor):
            kind = self.native_model.config.model_type
            raise ModelKindError(f"image_text_objective='sigmoid' needs logits with a bias, not those of {kind!r}")

    def _objective(self, output: Any, **options: Any) -> Tensor:
        """Computes native language transfer (equation 4), language exposure (equation 5), or the sum of both."""
        from .losses.contrastive import symmetric_contrastive_loss
        from .losses.sigmoid import sigmoid_loss

        self.check_objectives()
        losses = []
        for features, embeds, objective in (
            (output.paired_text_features, output.paired_text_embeds, self.config.text_text_objective),
            (output.image_features, output.image_embeds, self.config.image_text_objective),
        ):
            if features is None or output.text_features is None:
                continue
            if objective == "mse":
                losses.append(nn.functional.mse_loss(output.text_features.float(), features.float()))
            elif objective == "sigmoid":
                scale = output.temperature, output.logit_bias
                losses.append(sigmoid_loss(embeds, output.text_embeds, *scale, **options))
            else:
                temperature = output.temperature if self.trains_temperature else 1 / self.config.logit_scale
                losses.append(symmetric_contrastive_loss(embeds, output.text_embeds, temperature, **options) / 2)
        if not losses:
            raise ValueError("a loss needs texts and their images or native translations")
        return torch.stack(losses).sum() if len(losses) > 1 else losses[0]


class MlaModel(MlaPreTrainedModel):
    """MLA, a frozen dual encoder with acquirers for each acquired language.

    Examples:
        >>> clip = AutoModel.from_pretrained("openai/clip-vit-base-patch32")
        >>> bert = AutoModel.from_pretrained("google-bert/bert-base-multilingual-cased")
        >>> model = MlaModel.from_native(clip, languages=["de"], table=bert.get_input_embeddings().weight)
        >>> inputs = processor(text=["a red car", "ein rotes Auto"], language=["en", "de"], return_tensors="pt")
        >>> model.get_text_features(**inputs).pooler_output  # [2, 512]
    """

    config_class = MlaConfig
    auto_classes = ("AutoModel", "AutoModelForZeroShotImageClassification")
    parts = {"native model": r"(?!.*\.mla_)", "non-native embedding": r".*\.mla_embedding", "acquirers": ""}

    def __init__(self, config: MlaConfig) -> None:
        super().__init__(config)
        self.native_model = new_native_model(config.base_config)
        parts = self.text_parts
        non_native = NonNativeEmbedding(config.vocab_size, config.embedding_size, parts.embedding_width)
        embedding = AcquiredEmbedding(parts.embeddings, non_native, config.sep_token_id, parts.end_token_id)
        parts.tower.set_submodule(parts.embeddings_name, embedding)
        embedding.watch(parts.tower)
        for index, block in enumerate(parts.blocks):
            parts.blocks[index] = AcquiredBlock(block)
        for language in config.languages:
            self._grow(language)
        self._settle_precision()
        self.set_trainable("acquirers")
        self.post_init()

    @classmethod
    def from_native(cls, native_model: PreTrainedModel, *, table: Tensor | None = None, **options: Any) -> Self:
        """Makes a model that is ready to acquire languages; acquirers and the embedding's projection are random.
        `table` [vocabulary, size] holds initial word pieces, from the model whose tokenizer reads the languages
        (M-BERT in the paper); without it, training takes many more steps. `options` are keys of `MlaConfig`."""
        tower_pooling(getattr(native_model, "config", None))  # checks its kind
        if table is not None:
            options |= dict(zip(("vocab_size", "embedding_size"), table.shape, strict=True))
        model = cls(MlaConfig(base_config=native_model.config, **{"languages": [], **options}))
        if table is not None:
            model.embedding.non_native.table.load_state_dict({"weight": table})
        elif model.config.languages:
            logger.warning(
                "the embedding starts with random word pieces, which take many steps to learn: give those of a "
                "pretrained model as table="
            )
        model.take_native(native_model)
        return model.train(native_model.training)

    def unload(self) -> PreTrainedModel:
        """Returns an independent copy of the native model without MLA."""
        plain, weights = new_native_model(self.config.base_config), plain_state_dict(self.native_model)
        take_precision(plain, weights)
        plain.load_state_dict(weights)
        return plain.train(self.training)

    @property
    def text_parts(self) -> TowerParts:
        return TowerParts(self.native_model, self.config.base_config)

    @property
    def embedding(self) -> AcquiredEmbedding:
        return self.text_parts.embeddings

    @property
    def blocks(self) -> nn.ModuleList:
        return self.text_parts.blocks

    def _grow(self, language: str) -> None:
        parts = self.text_parts
        for block in parts.blocks:
            acquirer = Acquirer(parts.width, self.config.acquirer_size, self.config.acquirer)
            # Blocks may be on several devices (`device_map`).
            device = next((weight.device for weight in block.base_layer.parameters()), self.device)
            block.mla_acquirers[language] = acquirer.to(device, self.embedding.non_native.table.weight.dtype)

    def add_language(self, language: str) -> None:
        """Adds another language, with newly initialized acquirers."""
        languages = [*self.config.languages, language]
        checked = MlaConfig(native_language=self.config.native_language, languages=languages).languages
        self._grow(checked[-1])
        self.config.languages = checked

    def reconfigured(self, **options: Any) -> Self:
        """Returns a model with changed keys of `MlaConfig`, such as more languages, and with this model's weights."""
        inherited = {field.name for field in fields(PreTrainedConfig)}
        settings = {f.name: getattr(self.config, f.name) for f in fields(MlaConfig) if f.name not in inherited}
        model = type(self)(MlaConfig(**settings | options))
        weights = self.state_dict()
        take_precision(model, weights)
        for part in model.learned_parts():
            part.to(self.learned_dtype)
        model.stored_weights = self.stored_weights
        _, unexpected = model.load_state_dict(weights, strict=False)
        if unexpected:
            raise ValueError(f"the changed model lacks weights that this one has: {unexpected[:3]}")
        return model.to(self.device).train(self.training)

    def acquirer_parameters(self, languages: Iterable[str] | None = None) -> list[nn.Parameter]:
        """Returns the parameters of some languages' acquirers, by default of all."""
        chosen = self.config.languages if languages is None else languages
        return [p for language in chosen for block in self.blocks for p in block.mla_acquirers[language].parameters()]

    def set_trainable(
        self, part: Trainable, languages: Sequence[str] | None = None, *, temperature: bool = True
    ) -> None:
        """Selects the parts to train; everything else is frozen, including batch-norm statistics. `part` is
        `acquirers`, those of `languages` (by default all, as in a loaded model) and, unless the configuration freezes
        it, the non-native embedding; `native`, only the native model; or `all`. With `temperature`, the native model's
        is trained too, down to 0.01; otherwise a loss multiplies cosines by `logit_scale`, the authors' fixed 100."""
        self.requires_grad_(False)
        self.trains_native = part != "acquirers"
        self.trains_temperature = self.trains_native and temperature
        if self.trains_native:
            self.to(torch.promote_types(self.dtype, torch.float32))
            self.native_model.requires_grad_(True)
            for learned in self.learned_parts():
                learned.requires_grad_(False)
            self.temperature_parameter.requires_grad_(temperature)
            if self.config.image_text_objective == "sigmoid" and isinstance(self.logit_bias, nn.Parameter):
                self.logit_bias.requires_grad_(temperature)
        if part != "native":
            for parameter in self.acquirer_parameters(languages):
                parameter.requires_grad_(True)
            self.embedding.non_native.requires_grad_(self.config.train_embedding)
        self.train(self.training)

    def frozen_parts(self) -> list[nn.Module]:
        return [] if self.trains_native else [self.native_model]

    def learned_parts(self) -> list[nn.Module]:
        blocks: list[Any] = list(self.blocks)
        return [self.embedding.non_native, *(block.mla_acquirers for block in blocks)]

    def get_input_embeddings(self) -> nn.Module:
        """Returns the embedding table of the acquired languages, the vocabulary that can grow."""
        return self.embedding.non_native.table

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.embedding.non_native.table = value

    @can_return_tuple
    def get_text_features(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        language_ids: Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Embeds texts, each in its language; `pooler_output` [N, d] is not normalized. `input_ids` [N, T] are of the
        native tokenizer where `language_ids` [N] are 0, by default everywhere, and else of the multilingual one; k is
        the k-th of the configuration's `languages`."""
        native = self.native_model
        kwargs = tower_keywords(kwargs, native.get_text_features, native.text_model.forward)
        kwargs |= {"input_ids": input_ids, "attention_mask": attention_mask, "return_dict": True}
        with languages_of_rows(native, self._rows(language_ids)):
            return native.get_text_features(**kwargs)

    def _rows(self, language_ids: Tensor | None) -> BatchLanguages | None:
        languages = [None, *self.config.languages]
        if language_ids is not None and is_exporting():
            return MasksByLanguage(languages, language_ids)
        ids = [] if language_ids is None else language_ids.tolist()
        if any(language_id < 0 for language_id in ids):
            raise ValueError(f"language_ids={ids} must be from 0 to {len(self.config.languages)}")
        return RowsByLanguage([languages[language_id] for language_id in ids]) if any(ids) else None
