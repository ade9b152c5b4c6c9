"""RC3: an mBART whose encoder reads images beside texts (Zhou et al. 2023, section 2.2).

A visio-textual input is `[CLS] regions [SEP] patches [SEP'] regions [SEP] patches [BOS] text [LANG]`: [SEP] stands
where an image has both forms, [SEP'] between two images (appendix B). Without an image it is `[BOS] text [LANG]`
alone. The first state, of [CLS] or of [BOS], is the visio-textual or the textual representation (VtR, TR).

Here that input is assembled; the layers are transformers' `MBartEncoder` and `MBartDecoder`. Every row is packed to
the left, so that places count from 0 and the rest of the batch changes nothing. Heads stand in `modeling_rc3_tasks`.
"""

import dataclasses
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
from ..configuration.errors import InputError, MissingLanguageError, RegionError
from ..configuration.hub_code import HubCodeMixin
from .exporting import is_exporting
from .forward_keywords import tower_keywords
from .visual_inputs import VisualInputs, visual_inputs
from .weights_as_made import WeightsAsMade


@dataclass
class Rc3EncoderOutput(BaseModelOutput):
    """
    Args, beside transformers':
        last_hidden_state ([N, S, d]): states of the packed inputs.
        pooler_output ([N, d]): the first of them, VtR where a row has an image, else TR.
        attention_mask ([N, S]): False at padding, which is on the right.
        text_start ([N]): the place of the text's first token.
    """

    pooler_output: Tensor | None = None
    attention_mask: Tensor | None = None
    text_start: Tensor | None = None


class ImageEmbeds(NamedTuple):
    """Images at the encoder's width, K for each of N texts; a mask says which regions and patches there are.

    Attributes:
        regions, region_mask ([N, K, R, d], [N, K, R]): of no regions where R is 0.
        patches, patch_mask ([N, K, P, d], [N, K, P]): the same.
    """

    regions: Tensor
    region_mask: Tensor
    patches: Tensor
    patch_mask: Tensor

    def at(self, places: Tensor) -> "ImageEmbeds":
        """Those at some places [M], which may come more than once."""
        return ImageEmbeds(*(part.index_select(0, places) for part in self))


def text_states(output: Rc3EncoderOutput, length: int) -> Tensor:
    """The states of the texts' tokens, [N, length, d]; what stands after a text's end has no meaning."""
    states = output.last_hidden_state
    assert output.text_start is not None
    places = output.text_start[:, None] + torch.arange(length, device=states.device)  # [N, length]
    places = places.clamp(max=states.shape[1] - 1)
    return states.gather(1, places[..., None].expand(-1, -1, states.shape[2]))


def without_decoder_inputs(given: dict[str, Any]) -> dict[str, Any]:
    """Further keywords of a call without those of a decoder, which transformers' tools give to every encoder-decoder:
    what is decided from the encoder has no use for them."""
    of_decoder = ("decoder_input_ids", "decoder_attention_mask", "use_cache")
    return {name: value for name, value in given.items() if name not in of_decoder}


def pack_left(embeds: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Moves what the mask keeps to the left, in its order, and drops columns in which nothing is left; not in an
    exported graph, whose sizes do not depend on what is read.

    [N, S, d], [N, S] -> [N, longest, d], [N, longest]
    """
    order = mask.int().argsort(dim=1, descending=True, stable=True)
    if not is_exporting():
        order = order[:, : int(mask.sum(1).max())]
    return embeds.gather(1, order[..., None].expand(-1, -1, embeds.shape[2])), mask.gather(1, order)


class Rc3Encoder(MBartEncoder):
    """mBART's encoder behind the layers that bring regions and patches to its width."""

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
        """Encodes texts, with or without images; with two images, [N, 2, …] stands for [N, …] of visual inputs.

        Args:
            input_ids ([N, T]): `[BOS] text [LANG]`.
            attention_mask ([N, T]): 0 at padding, which is on the right.
            region_features, region_mask, pixel_values, pixel_mask: see `VisualInputs`.
            image_embeds: what `embed_images` made of visual inputs, in their place.
            kwargs: transformers' own: `output_hidden_states`, `output_attentions`, …

        Raises:
            InputError: without texts; an image is read beside one, if only `[BOS] [LANG]`.
            ArgumentError: for a keyword that nobody knows, and for `inputs_embeds`.
            InputError: for visual inputs that the model has no layer for, or of another size.
            RegionError, RegionError, RegionError: for regions that it cannot use.
            InputError: for one image where it compares two, or two where it reads one.
            MissingLanguageError: for a text that does not end with a language's token.
            ValueError: for more tokens than there are positions.
        """
        (kwargs,) = tower_keywords(self, kwargs, ())
        if input_ids is None:
            raise InputError("RC3 reads images beside a text: give input_ids, if only `[BOS] [LANG]`")
        text_mask = torch.ones_like(input_ids, dtype=torch.bool) if attention_mask is None else attention_mask.bool()
        if not is_exporting():
            self._check_languages(input_ids, text_mask)
        special, text = self._embed_tokens(input_ids)
        if image_embeds is None:
            visual = visual_inputs(region_features, region_mask, pixel_values, pixel_mask)
            image_embeds = self.embed_images(visual)
        segments = [] if image_embeds is None else self._visual_segments(special, image_embeds)
        embeds, masks = zip(*segments, (text, text_mask), strict=True)
        packed, mask = torch.cat(embeds, 1), torch.cat(masks, 1)
        text_start = mask.sum(1) - text_mask.sum(1)
        if segments:
            packed, mask = pack_left(packed, mask)
        if packed.shape[1] > self.max_source_positions:
            raise ValueError(
                f"{packed.shape[1]} tokens are more than max_position_embeddings={self.max_source_positions}"
            )
        output = super().forward(inputs_embeds=packed, attention_mask=mask, return_dict=True, **kwargs)
        return Rc3EncoderOutput(
            **output, pooler_output=output.last_hidden_state[:, 0], attention_mask=mask, text_start=text_start
        )

    def _embed_tokens(self, input_ids: Tensor) -> tuple[dict[int, Tensor], Tensor]:
        """The tokens that stand before a text, [N, 1, d] each, and the text itself [N, T, d].

        Looked up at once: the gradient of every look-up is as large as the vocabulary.
        """
        config = self.config
        special = [config.cls_token_id, config.image_separator_token_id, config.eos_token_id]
        before = input_ids.new_tensor(special).expand(input_ids.shape[0], -1)
        embeds = self.embed_tokens(torch.cat([before, input_ids], dim=1))
        count = len(special)
        return dict(zip(special, embeds[:, :count].split(1, dim=1), strict=True)), embeds[:, count:]

    def embed_images(self, visual: VisualInputs) -> ImageEmbeds | None:
        """Visual inputs at the encoder's width, to be read beside several texts; None for none.

        Errors are those of `forward`.
        """
        region_features, pixel_values = visual.get("region_features"), visual.get("pixel_values")
        given = pixel_values if region_features is None else region_features
        if given is None:
            return None
        rows = given.shape[0]
        regions = self._embed_regions(rows, region_features, visual.get("region_mask"))
        return ImageEmbeds(*regions, *self._embed_patches(rows, pixel_values, visual.get("pixel_mask")))

    def _visual_segments(self, special: dict[int, Tensor], images: ImageEmbeds) -> list[tuple[Tensor, Tensor]]:
        """What stands before the text, as embeddings [N, L, d] with masks [N, L]."""
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

    def _embed_regions(self, rows: int, features: Tensor | None, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        if features is None:
            return self._nothing(rows)
        if not self.config.has_regions:
            raise InputError("region_features: the model has no layer for regions (visual='patches')")
        features = self._by_image("region_features", features, dimensions=2)  # [N, K, R, F]
        count, size = features.shape[2:]
        if not count:
            raise RegionError(f"region_features {list(features.shape)}: where there are no regions, leave them out")
        if count > self.config.max_regions:
            raise RegionError(f"{count} regions of an image; the model takes {self.config.max_regions}")
        if size != self.config.region_size:
            raise RegionError(f"regions of {size} numbers; the model takes {self.config.region_size}")
        return self.region_projection(features.to(self.dtype)), _kept(mask, features, dimensions=3)

    def _embed_patches(self, rows: int, pixel_values: Tensor | None, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        if pixel_values is None:
            return self._nothing(rows)
        if not self.config.has_patches:
            raise InputError("pixel_values: the model has no layer for patches (visual='regions')")
        images = self._by_image("pixel_values", pixel_values, dimensions=3)  # [N, K, 3, H, W]
        side, patch = self.config.image_size, self.config.patch_size
        if images.shape[2:] != (3, side, side):
            raise InputError(f"images of {list(images.shape[2:])}; the model takes [3, {side}, {side}]")
        pixels = nn.functional.unfold(images.flatten(0, 1), patch, stride=patch)  # [N K, 3 patch², P]
        patches = self.patch_projection(pixels.transpose(1, 2).to(self.dtype))
        patches = patches.unflatten(0, images.shape[:2])  # [N, K, P, d]
        return patches, _kept(mask, images, dimensions=2)[..., None].expand(patches.shape[:3])

    def _nothing(self, rows: int) -> tuple[Tensor, Tensor]:
        """No embeddings, of no places. [N, K, 0, d], [N, K, 0]"""
        embeds = self.embed_tokens.weight.new_empty(rows, self.config.images_per_text, 0, self.config.d_model)
        return embeds, _kept(None, embeds, dimensions=3)

    def _by_image(self, name: str, given: Tensor, dimensions: int) -> Tensor:
        """Visual inputs with an axis for the images of a text, [N, …] or [N, K, …] -> [N, K, …].

        Raises:
            InputError: when their number is not the model's.
        """
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
            raise MissingLanguageError(
                f"text {row} ends with token {int(ends[row])}, which names no language; "
                f"the model knows {dict(zip(self.config.languages, self.config.language_token_ids, strict=True))}"
            )


def _kept(mask: Tensor | None, of: Tensor, dimensions: int) -> Tensor:
    """A mask over the first dimensions `of` something, everything by default."""
    shape = of.shape[:dimensions]
    return torch.ones(shape, dtype=torch.bool, device=of.device) if mask is None else mask.reshape(shape).bool()


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
    # Trainer would divide the loss by the number of items in a batch: the losses here are means already.
    accepts_loss_kwargs = False

    @classmethod
    def from_mbart(cls, mbart: PreTrainedModel | str | Path, **overrides: Any) -> Self:
        """A model with mBART's weights; the layers for images, and a task's head, are new.

        [CLS] and [SEP'] are added behind mBART's vocabulary, unless `overrides` names tokens that it has. They start
        as copies of `<s>` and `</s>`, which mBART uses as its [CLS] and [SEP].

        Args:
            mbart: a transformers mBART, or its folder or Hub id.
            overrides: keys of `Rc3Config`; a vocabulary other than mBART-50's needs `mask_token_id`, `languages` and
                `language_token_ids`.
        """
        source = MBartForConditionalGeneration.from_pretrained(mbart) if isinstance(mbart, str | Path) else mbart
        config = _config_of(source.config, overrides)
        model = cls(config).to(device=source.device, dtype=source.dtype)
        weights = source.base_model.state_dict()
        fresh = model.get_input_embeddings().weight.detach()
        for name in ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"):
            weights[name] = _with_new_tokens(weights[name], fresh, config)
        missing, unexpected = model.base_model.load_state_dict(weights, strict=False)
        strange = [name for name in missing if "_projection" not in name] + unexpected
        if strange:
            raise ValueError(f"{type(source).__name__} is no mBART that RC3 can start from: {strange}")
        model._adopt(source)
        return model.train(source.training)

    def _adopt(self, source: PreTrainedModel) -> None:
        """Takes over from mBART what is not in its base model."""

    def parameter_parts(self) -> dict[str, int]:
        """Numbers of parameters by part; they add up to the total."""
        encoder, decoder = self.base_model.encoder, self.base_model.decoder
        embeddings = self.base_model.shared.weight.numel()
        visual = sum(p.numel() for name, p in encoder.named_parameters() if "_projection." in name)
        parts = {
            "embeddings": embeddings,
            "visual": visual,
            "encoder": encoder.num_parameters() - embeddings - visual,
            "decoder": decoder.num_parameters() - embeddings,
        }
        return parts | {"heads": self.num_parameters() - sum(parts.values())}


def _config_of(mbart: MBartConfig, overrides: dict[str, Any]) -> Rc3Config:
    if not mbart.tie_word_embeddings:
        raise ValueError(
            "an mBART whose output layer is not its embedding (tie_word_embeddings=False) cannot be taken"
        )
    shared = {field.name for field in dataclasses.fields(Rc3Config)} & set(type(mbart).__annotations__)
    added = {"cls_token_id": mbart.vocab_size, "image_separator_token_id": mbart.vocab_size + 1}
    settings = {name: getattr(mbart, name) for name in shared} | added | overrides
    needed = max(settings[name] for name in added) + 1
    return Rc3Config(**settings | {"vocab_size": max(mbart.vocab_size, settings["vocab_size"], needed)})


def _with_new_tokens(table: Tensor, fresh: Tensor, config: Rc3Config) -> Tensor:
    """mBART's embeddings with the rows that its vocabulary lacks."""
    grown = torch.cat([table, fresh[len(table) :]])
    for token, like in (
        (config.cls_token_id, config.bos_token_id),
        (config.image_separator_token_id, config.eos_token_id),
    ):
        if token >= len(table):
            grown[token] = table[like]
    return grown


class Rc3Model(Rc3PreTrainedModel):
    """Encoder and decoder; their weights have the names of `MBartModel`'s."""

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
        **kwargs: Any,
    ) -> Seq2SeqModelOutput | Rc3EncoderOutput:
        """Encodes, and decodes what is given to decode; the encoder's output alone without `decoder_input_ids`.

        Args:
            input_ids, attention_mask: as in `Rc3Encoder.forward`.
            region_features, region_mask, pixel_values, pixel_mask: see `VisualInputs`.
            decoder_input_ids ([N, U]): `[LANG] words`.
            decoder_attention_mask ([N, U]): 0 at padding.
            encoder_outputs: of `encode`, in place of the inputs.
        """
        encoded = encoder_outputs
        if encoded is None:
            visual = visual_inputs(region_features, region_mask, pixel_values, pixel_mask)
            encoded = self.encode(input_ids=input_ids, attention_mask=attention_mask, **visual, **kwargs)
        if decoder_input_ids is None:
            return encoded
        (kwargs,) = tower_keywords(self, kwargs, ())
        decoded = self.decoder(
            input_ids=decoder_input_ids,
            attention_mask=decoder_attention_mask,
            encoder_hidden_states=encoded.last_hidden_state,
            encoder_attention_mask=encoded.attention_mask,
            past_key_values=past_key_values,
            use_cache=use_cache,
            return_dict=True,
            **kwargs,
        )
        return Seq2SeqModelOutput(
            last_hidden_state=decoded.last_hidden_state,
            past_key_values=decoded.past_key_values,
            decoder_hidden_states=decoded.hidden_states,
            decoder_attentions=decoded.attentions,
            cross_attentions=decoded.cross_attentions,
            encoder_last_hidden_state=encoded.last_hidden_state,
            encoder_hidden_states=encoded.hidden_states,
            encoder_attentions=encoded.attentions,
        )


def task_models() -> tuple[type[Rc3PreTrainedModel], ...]:
    """RC3's models beside `Rc3Model`. As they are imported here, the code of all travels with each: what was
    pre-trained can be loaded for a task where the package is not installed."""
    from .modeling_rc3_pretraining import Rc3ForPreTraining
    from .modeling_rc3_tasks import TASK_MODELS

    return (Rc3ForPreTraining, *TASK_MODELS)


__all__ = ["Rc3Model", "Rc3PreTrainedModel", "task_models"]
