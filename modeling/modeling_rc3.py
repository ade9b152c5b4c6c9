"""RC3: an mBART whose encoder reads images along with texts (Zhou et al. 2023, section 2.2 and appendix B).

    VtR(v, x) = Enc([CLS] v [BOS] x [LANG])_1        the visio-textual representation of an image v with a text x
    TR(x)     = Enc([BOS] x [LANG])_1                the textual representation
    p(y | v, x) = Π_t Dec(y_t | [LANG'] y_<t, Enc(…))

The layers are transformers' `MBartEncoder` and `MBartDecoder`. An image v is a sequence

    W_r r_1 … W_r r_R [SEP] W_p p_1 … W_p p_P        and, after [SEP'], a second image

of features r of detected regions and pixels p of patches; [SEP] separates the two in an image that has both. Every row
is packed to the left, so its positions count from 0 and do not depend on the other rows.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from transformers import Cache, MBartConfig, MBartForConditionalGeneration, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqModelOutput
from transformers.models.mbart.modeling_mbart import MBartDecoder, MBartEncoder, MBartScaledWordEmbedding
from transformers.utils import can_return_tuple

from ..configuration.configuration_rc3 import Rc3Config
from ..utils.errors import InputError
from ..utils.hub_mixin import HubCodeMixin
from .modeling_common import is_exporting
from .modeling_dual_encoder import WeightsAsMade, tower_keywords


@dataclass
class Rc3EncoderOutput(BaseModelOutput):
    """Output of `Rc3Encoder`: states [N, S, d] of packed inputs, padded on the right; the first state, `pooler_output`
    [N, d], VtR with an image and TR without; and `text_start` [N], the position of the text's first token."""

    pooler_output: Tensor | None = None
    attention_mask: Tensor | None = None
    text_start: Tensor | None = None


class ImageEmbeds(NamedTuple):
    """Images at the width of the encoder, K for each of N texts; masks mark the regions and patches that exist."""

    regions: Tensor  # [N, K, R, d], R is 0 if there are none
    region_mask: Tensor  # [N, K, R]
    patches: Tensor  # [N, K, P, d], P is 0 if there are none
    patch_mask: Tensor  # [N, K, P]

    def at(self, indices: Tensor) -> "ImageEmbeds":
        """Returns the images at the indices [M], which may repeat."""
        return ImageEmbeds(*(part.index_select(0, indices) for part in self))


def pack_left(embeds: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Moves the positions that the mask keeps to the left, in order, and drops the empty columns, except in an
    exported graph, whose sizes must not depend on the inputs. [N, S, d], [N, S] -> [N, longest, d], [N, longest]"""
    order = mask.int().argsort(dim=1, descending=True, stable=True)
    if not is_exporting():
        order = order[:, : int(mask.sum(1).max())]
    return embeds.gather(1, order[..., None].expand(-1, -1, embeds.shape[2])), mask.gather(1, order)


class Rc3Encoder(MBartEncoder):
    """mBART's encoder, with layers that project regions and patches to its width."""

    config_class = Rc3Config

    def __init__(self, config: Rc3Config) -> None:
        super().__init__(config)
        if config.has_regions:
            self.region_projection = nn.Linear(config.region_size, config.d_model)
        if config.has_patches:
            pixels = 3 * config.patch_size**2
            self.patch_projection = nn.Sequential(
                nn.Linear(pixels, config.patch_width), nn.Linear(config.patch_width, config.d_model)
            )

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        region_features: Tensor | None = None,
        region_mask: Tensor | None = None,
        pixel_values: Tensor | None = None,
        pixel_mask: Tensor | None = None,
        image_embeds: ImageEmbeds | None = None,
        **kwargs: Any,
    ) -> Rc3EncoderOutput:
        """Encodes texts `[BOS] text [LANG]` [N, T], with or without images: features of detected regions [N, R, F],
        and which exist (`region_mask` [N, R], none in a row without an image); images [N, 3, H, W], and which rows
        have one (`pixel_mask` [N]); or the result of `embed_images`. By default, all exist. With two images for each
        text, visual inputs are [N, 2, …] instead of [N, …]."""
        kwargs = tower_keywords(kwargs)
        kwargs.pop("use_cache", None)  # transformers' tools pass it to every encoder-decoder
        if input_ids is None:
            raise InputError("RC3 reads images only together with a text: give input_ids, at least `[BOS] [LANG]`")
        text_mask = torch.ones_like(input_ids, dtype=torch.bool) if attention_mask is None else attention_mask.bool()
        if not is_exporting():
            self._check_languages(input_ids, text_mask)
        special, text = self._embed_tokens(input_ids)
        if image_embeds is None:
            image_embeds = self.embed_images(region_features, region_mask, pixel_values, pixel_mask)
        segments = [] if image_embeds is None else self._visual_segments(special, image_embeds)
        embeds, masks = zip(*segments, (text, text_mask), strict=True)
        packed, mask = torch.cat(embeds, 1), torch.cat(masks, 1)
        text_start = mask.sum(1) - text_mask.sum(1)
        if segments:
            packed, mask = pack_left(packed, mask)
        if packed.shape[1] > self.max_source_positions:
            raise ValueError(f"{packed.shape[1]} tokens are more than max_position_embeddings")
        output = super().forward(inputs_embeds=packed, attention_mask=mask, return_dict=True, **kwargs)
        return Rc3EncoderOutput(
            **output, pooler_output=output.last_hidden_state[:, 0], attention_mask=mask, text_start=text_start
        )

    def _embed_tokens(self, input_ids: Tensor) -> tuple[dict[int, Tensor], Tensor]:
        """Embeds the tokens before a text, [N, 1, d] each, and the text itself, [N, T, d], in one lookup: the gradient
        of each lookup is as large as the vocabulary."""
        config = self.config
        special = [config.cls_token_id, config.image_separator_token_id, config.eos_token_id]
        before = input_ids.new_tensor(special).expand(input_ids.shape[0], -1)
        *first, text = self.embed_tokens(torch.cat([before, input_ids], dim=1)).split([1, 1, 1, input_ids.shape[1]], 1)
        return dict(zip(special, first, strict=True)), text

    def embed_images(
        self,
        region_features: Tensor | None = None,
        region_mask: Tensor | None = None,
        pixel_values: Tensor | None = None,
        pixel_mask: Tensor | None = None,
    ) -> ImageEmbeds | None:
        """Projects visual inputs to the encoder's width, for use with several texts; `None` if there are none."""
        config = self.config
        features = self._by_image("region_features", region_features, dimensions=2)  # [N, K, R, F]
        images = self._by_image("pixel_values", pixel_values, dimensions=3)  # [N, K, 3, H, W]
        given = images if features is None else features
        if given is None:
            return None
        regions = patches = self.embed_tokens.weight.new_empty(*given.shape[:2], 0, config.d_model)
        if features is None:
            region_mask = None
        elif not config.has_regions:
            raise InputError("region_features: the model has no layer for regions (visual='patches')")
        else:
            count, size = features.shape[2:]
            if not 0 < count <= config.max_regions or size != config.region_size:
                most = [config.max_regions, config.region_size]
                raise InputError(f"region_features {[count, size]} must be up to {most}")
            regions = self.region_projection(features.to(self.dtype))
        if images is None:
            pixel_mask = None
        elif not config.has_patches:
            raise InputError("pixel_values: the model has no layer for patches (visual='regions')")
        else:
            side, patch = config.image_size, config.patch_size
            if images.shape[2:] != (3, side, side):
                raise InputError(f"images of {list(images.shape[2:])}; the model takes [3, {side}, {side}]")
            pixels = nn.functional.unfold(images.flatten(0, 1), patch, stride=patch)  # [N K, 3 patch², P]
            patches = self.patch_projection(pixels.transpose(1, 2).to(self.dtype)).unflatten(0, images.shape[:2])
        patch_mask = _kept(pixel_mask, patches, dimensions=2)[..., None].expand(patches.shape[:3])
        return ImageEmbeds(regions, _kept(region_mask, regions, dimensions=3), patches, patch_mask)

    def _visual_segments(self, special: dict[int, Tensor], images: ImageEmbeds) -> list[tuple[Tensor, Tensor]]:
        """Returns the segments before the text, as embeddings [N, L, d] with masks [N, L]."""
        regions, region_mask, patches, patch_mask = images
        has_regions, has_patches = region_mask.any(-1), patch_mask.any(-1)
        has_image = has_regions | has_patches  # [N, K]
        if not is_exporting() and not (has_image == has_image[:, :1]).all():
            row = int((has_image != has_image[:, :1]).any(1).nonzero()[0])
            raise InputError(f"row {row} has one image, where the model compares two")
        is_visual = has_image[:, :1]  # [N, 1]
        segments = [(special[self.config.cls_token_id], is_visual)]
        for k in range(self.config.images_per_text):
            if k:
                segments.append((special[self.config.image_separator_token_id], is_visual))
            has_both = (has_regions & has_patches)[:, k, None]
            segments += [
                (regions[:, k], region_mask[:, k]),
                (special[self.config.eos_token_id], has_both),
                (patches[:, k], patch_mask[:, k]),
            ]
        return segments

    def _by_image(self, name: str, given: Tensor | None, dimensions: int) -> Tensor | None:
        """Adds an axis for the images of a text, [N, …] or [N, K, …] -> [N, K, …]."""
        if given is None:
            return None
        images = self.config.images_per_text
        with_axis = given[:, None] if images == 1 and given.dim() == dimensions + 1 else given
        if with_axis.dim() != dimensions + 2 or with_axis.shape[1] != images:
            raise InputError(f"{name} {list(given.shape)}: the model reads {images} image(s) with each text")
        return with_axis

    def _check_languages(self, input_ids: Tensor, mask: Tensor) -> None:
        last = (mask.sum(1) - 1).clamp(min=0)
        ends = input_ids.gather(1, last[:, None])[:, 0]  # [N]
        known = torch.tensor(self.config.language_token_ids, device=ends.device)
        if not (is_language := torch.isin(ends, known)).all():
            row = int((~is_language).nonzero()[0])
            tokens = dict(zip(self.config.languages, self.config.language_token_ids, strict=True))
            raise InputError(f"text {row} must end with the token of a language, not {int(ends[row])}: {tokens}")


def _kept(mask: Tensor | None, of: Tensor, dimensions: int) -> Tensor:
    """Returns a mask over the first dimensions of a tensor; by default it keeps everything."""
    shape = of.shape[:dimensions]
    return torch.ones(shape, dtype=torch.bool, device=of.device) if mask is None else mask.reshape(shape).bool()


# The installed transformers' name for the decoder's keys and values: 5.24 renamed them.
CACHE = "cache" if "cache" in Seq2SeqModelOutput.__dataclass_fields__ else "past_key_values"


class Rc3PreTrainedModel(WeightsAsMade, HubCodeMixin, PreTrainedModel):
    """Base class of RC3's models."""

    config_class = Rc3Config
    base_model_prefix = "model"
    main_input_name = "input_ids"
    input_modalities = ("image", "text")
    parts = {
        "embeddings": r"(model\.)?shared",
        "visual": r"(model\.)?encoder\.\w+_projection",
        "encoder": r"(model\.)?encoder",
        "decoder": r"(model\.)?decoder",
        "heads": "",
    }
    supports_gradient_checkpointing = True
    _no_split_modules = ("MBartDecoderLayer", "MBartEncoderLayer")
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True

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


def _config_of(mbart: MBartConfig, overrides: dict[str, Any]) -> Rc3Config:
    if not mbart.tie_word_embeddings:
        raise ValueError("RC3 needs an mBART whose output layer is its embedding (tie_word_embeddings=True)")
    generation = {"decoder_start_token_id", "forced_eos_token_id"}  # which `generation_config` has
    shared = set(type(mbart).__annotations__) - generation
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

    def encode(self, *inputs: Any, **kwargs: Any) -> Rc3EncoderOutput:
        """Encodes texts, with or without images: see `Rc3Encoder.forward`."""
        return self.encoder(*inputs, **{"return_dict": True} | kwargs)

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
            visual = region_features, region_mask, pixel_values, pixel_mask
            encoded = self.encode(input_ids, attention_mask, *visual, **kwargs)
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
            **{CACHE: past_key_values if cache is None else cache},
            **kwargs,
        )
        return Seq2SeqModelOutput(
            last_hidden_state=decoded.last_hidden_state,
            **{CACHE: decoded.get(CACHE)},
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
from .modeling_rc3_pretraining import Rc3ForPreTraining
from .modeling_rc3_tasks import TASK_MODELS
"""
