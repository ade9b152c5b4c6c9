"""RC3: an mBART whose encoder reads images along with texts (Zhou et al. 2023, section 2.2).

    VtR(v, x) = Enc([CLS] v [BOS] x [LANG])_1        the visio-textual representation of an image v with a text x
    TR(x)     = Enc([BOS] x [LANG])_1                the textual representation
    p(y | v, x) = Π_t Dec(y_t | [LANG'] y_<t, Enc(…))

The layers are transformers' `MBartEncoder` and `MBartDecoder`; `modeling_rc3_encoder` assembles the encoder's input.
"""

import dataclasses
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn
from transformers import Cache, MBartConfig, MBartForConditionalGeneration, PreTrainedModel
from transformers.modeling_outputs import Seq2SeqModelOutput
from transformers.models.mbart.modeling_mbart import MBartDecoder, MBartScaledWordEmbedding
from transformers.utils import can_return_tuple

from ..configuration.configuration_rc3 import Rc3Config
from ..utils.hub_mixin import HubCodeMixin
from .modeling_dual_encoder import WeightsAsMade, tower_keywords
from .modeling_rc3_encoder import Rc3Encoder, Rc3EncoderOutput

# The installed transformers' name for the decoder's keys and values: 5.24 renamed them.
CACHE = "cache" if "cache" in Seq2SeqModelOutput.__dataclass_fields__ else "past_key_values"


def cached(cache: Cache | None) -> dict[str, Any]:
    """Returns a decoder's keys and values under transformers' name, for a call or an output."""
    return {CACHE: cache}


class Rc3PreTrainedModel(WeightsAsMade, HubCodeMixin, PreTrainedModel):
    """Base class of RC3's models."""

    config_class = Rc3Config
    base_model_prefix = "model"
    main_input_name = "input_ids"
    input_modalities = ("image", "text")
    supports_gradient_checkpointing = True
    _no_split_modules = ("MBartDecoderLayer", "MBartEncoderLayer")
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    # Otherwise Trainer would divide the loss by the number of items in a batch, but the losses here are already means.
    accepts_loss_kwargs = False

    @classmethod
    def from_mbart(cls, mbart: PreTrainedModel | str | Path, **overrides: Any) -> Self:
        """Makes a model with the weights of an mBART (a model, a folder or a Hub id); image layers and the head of a
        task are new. [CLS] and [SEP'] are added at the end of its vocabulary, as copies of `<s>` and `</s>`, unless
        `overrides`, keys of `Rc3Config`, name existing tokens. A vocabulary other than mBART-50's needs
        `mask_token_id`, `languages` and `language_token_ids`."""
        source = MBartForConditionalGeneration.from_pretrained(mbart) if isinstance(mbart, str | Path) else mbart
        config = _config_of(source.config, overrides)
        model = cls(config).to(device=source.device, dtype=source.dtype)
        weights = source.base_model.state_dict()
        fresh = model.get_input_embeddings().weight.detach()
        for name in ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"):
            table = weights[name]
            weights[name] = torch.cat([table, fresh[len(table) :]])
            for token, like in (
                (config.cls_token_id, config.bos_token_id),
                (config.image_separator_token_id, config.eos_token_id),
            ):
                if token >= len(table):
                    weights[name][token] = table[like]
        missing, unexpected = model.base_model.load_state_dict(weights, strict=False)
        strange = [name for name in missing if "_projection" not in name] + unexpected
        if strange:
            raise ValueError(f"{type(source).__name__} is not an mBART that RC3 can start from: {strange}")
        model._adopt(source)
        return model.train(source.training)

    def _adopt(self, source: PreTrainedModel) -> None:
        """Copies the parts of mBART outside its base model."""

    def parameter_parts(self) -> dict[str, int]:
        """Returns the number of parameters of each part; they add up to the total."""
        encoder, decoder = self.base_model.encoder, self.base_model.decoder
        parts = {"embeddings": self.base_model.shared.weight.numel()}
        parts["visual"] = sum(p.numel() for name, p in encoder.named_parameters() if "_projection." in name)
        parts["encoder"] = encoder.num_parameters() - sum(parts.values())
        parts["decoder"] = decoder.num_parameters() - parts["embeddings"]
        return parts | {"heads": self.num_parameters() - sum(parts.values())}


def _config_of(mbart: MBartConfig, overrides: dict[str, Any]) -> Rc3Config:
    if not mbart.tie_word_embeddings:
        raise ValueError("RC3 needs an mBART whose output layer is its embedding (tie_word_embeddings=True)")
    shared = {field.name for field in dataclasses.fields(Rc3Config)} & set(type(mbart).__annotations__)
    added = {"cls_token_id": mbart.vocab_size, "image_separator_token_id": mbart.vocab_size + 1}
    settings = {name: getattr(mbart, name) for name in shared} | added | overrides
    needed = max(settings[name] for name in added) + 1
    return Rc3Config(**settings | {"vocab_size": max(mbart.vocab_size, settings["vocab_size"], needed)})


class Rc3Model(Rc3PreTrainedModel):
    """RC3's encoder and decoder, without a head; its weights have `MBartModel`'s names.

    Examples:
        >>> model = Rc3Model.from_mbart("facebook/mbart-large-50", visual="patches")
        >>> inputs = processor(images=images, text=captions, language="de", return_tensors="pt")
        >>> model.encode(**inputs).pooler_output  # [N, d_model]
    """

    auto_classes = ("AutoModel",)
    _tied_weights_keys = {
        "encoder.embed_tokens.weight": "shared.weight",
        "decoder.embed_tokens.weight": "shared.weight",
    }

    def __init__(self, config: Rc3Config) -> None:
        super().__init__(config)
        scale = config.d_model**0.5 if config.scale_embedding else 1.0
        self.shared = MBartScaledWordEmbedding(config.vocab_size, config.d_model, config.pad_token_id, scale)
        self.encoder = Rc3Encoder(config)
        self.decoder = MBartDecoder(config)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.shared

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.shared = self.encoder.embed_tokens = self.decoder.embed_tokens = value

    def encode(self, **inputs: Any) -> Rc3EncoderOutput:
        """Encodes texts, with or without images: see `Rc3Encoder.forward`."""
        return self.encoder(**{"return_dict": True} | inputs)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        region_features: Tensor | None = None,
        region_mask: Tensor | None = None,
        pixel_values: Tensor | None = None,
        pixel_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: Rc3EncoderOutput | None = None,
        past_key_values: Cache | None = None,
        use_cache: bool | None = None,
        cache: Cache | None = None,
        **kwargs: Any,
    ) -> Seq2SeqModelOutput | Rc3EncoderOutput:
        """Encodes as `Rc3Encoder.forward` does, or takes `encoder_outputs`, and decodes `decoder_input_ids` [N, U],
        `[LANG] words`; without them, returns the encoder's output. `cache` is `past_key_values` since transformers
        5.24."""
        encoded = encoder_outputs
        if encoded is None:
            encoded = self.encode(
                input_ids=input_ids,
                attention_mask=attention_mask,
                region_features=region_features,
                region_mask=region_mask,
                pixel_values=pixel_values,
                pixel_mask=pixel_mask,
                **kwargs,
            )
        if decoder_input_ids is None:
            return encoded
        kwargs = tower_keywords(kwargs)
        decoded = self.decoder(
            input_ids=decoder_input_ids,
            attention_mask=decoder_attention_mask,
            encoder_hidden_states=encoded.last_hidden_state,
            encoder_attention_mask=encoded.attention_mask,
            use_cache=use_cache,
            return_dict=True,
            **cached(past_key_values if cache is None else cache),
            **kwargs,
        )
        return Seq2SeqModelOutput(
            last_hidden_state=decoded.last_hidden_state,
            **cached(decoded.get(CACHE)),
            decoder_hidden_states=decoded.hidden_states,
            decoder_attentions=decoded.attentions,
            cross_attentions=decoded.cross_attentions,
            encoder_last_hidden_state=encoded.last_hidden_state,
            encoder_hidden_states=encoded.hidden_states,
            encoder_attentions=encoded.attentions,
        )


# In every folder of an RC3 model: the models and pipelines of the tasks. These lines never run (`hub_code`).
SHIPS_WITH = """
from ..inference.rc3_pipelines import ImageTextRetrievalPipeline
from ..processing.cross_encoder_module import CrossEncoderModule
from .modeling_rc3_pretraining import Rc3ForPreTraining
from .modeling_rc3_tasks import TASK_MODELS
"""
