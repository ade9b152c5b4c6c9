"""RC3's encoder: mBART's, which reads images along with texts (Zhou et al. 2023, section 2.2 and appendix B).

    [CLS] W_r r_1 … W_r r_R [SEP] W_p p_1 … W_p p_P [SEP'] (a second image) [BOS] text [LANG]
    [BOS] text [LANG]                                                       without an image

with features r of detected regions and pixels p of patches. [SEP] separates the regions and the patches of an image
that has both. Every row is packed to the left, so its positions count from 0 and do not depend on the other rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.mbart.modeling_mbart import MBartEncoder
from transformers.utils import can_return_tuple

from ..configuration.configuration_rc3 import Rc3Config
from ..utils.errors import InputError
from .modeling_common import is_exporting
from .modeling_dual_encoder import tower_keywords

# p_avg in RC3's interpolated contrastive losses: the model's performance in the last steps (Zhou et al. 2023, section
# 2.3.3, equation 6).


class RunningProbability(nn.Module):
    """The mean probability of the last `history` steps, p_avg; 0 before the first step. Checkpoints save its buffers,
    so a resumed run continues with them. A step's entry is the mean over all anchors of all its batches and processes:
    processes agree, and accumulated batches count as one step, during which the average does not change."""

    probabilities: Tensor  # [history], a ring buffer; 0 where there was no step yet
    steps: Tensor  # [], number of steps so far
    pending: Tensor  # [2], for the current step: the sum over its anchors, and their number

    def __init__(self, history: int = 100) -> None:
        super().__init__()
        self.register_buffer("probabilities", torch.zeros(history))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.register_buffer("pending", torch.zeros(2), persistent=False)  # checkpoints are written between steps

    def reset(self) -> None:
        for buffer in (self.probabilities, self.steps, self.pending):
            init.zeros_(buffer)

    @property
    def average(self) -> Tensor:
        """p_avg, a scalar."""
        return self.probabilities.sum() / self.steps.clamp(1, len(self.probabilities))

    @torch.no_grad()
    def observe(self, probability: Tensor, anchors: int = 1) -> None:
        """Records the mean probability over the `anchors` of a batch; it counts from the next step on."""
        self.pending += torch.stack([probability * anchors, torch.full_like(probability, anchors)])

    @torch.no_grad()
    def end_step(self) -> None:
        """Turns the records of this step into an entry. All processes must end their steps together."""
        if dist.is_available() and dist.is_initialized():
            dist.all_reduce(self.pending)
        total, anchors = self.pending
        self.probabilities[self.steps % len(self.probabilities)] = total / anchors
        self.steps += 1
        self.pending.zero_()


VISUAL_INPUTS = ("region_features", "region_mask", "pixel_values", "pixel_mask")


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


def text_states(output: Rc3EncoderOutput, length: int) -> Tensor:
    """Returns the states at the tokens of the texts, [N, length, d]; those after the end of a text are undefined."""
    states = output.last_hidden_state
    assert output.text_start is not None
    indices = output.text_start[:, None] + torch.arange(length, device=states.device)  # [N, length]
    indices = indices.clamp(max=states.shape[1] - 1)
    return states.gather(1, indices[..., None].expand(-1, -1, states.shape[2]))


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
            visual = (region_features, region_mask, pixel_values, pixel_mask)
            image_embeds = self.embed_images(dict(zip(VISUAL_INPUTS, visual, strict=True)))
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

    def embed_images(self, visual: Mapping[str, Any]) -> ImageEmbeds | None:
        """Projects visual inputs to the encoder's width, for use with several texts; `None` if there are none."""
        config, region_mask, pixel_mask = self.config, visual.get("region_mask"), visual.get("pixel_mask")
        features = self._by_image("region_features", visual.get("region_features"), dimensions=2)  # [N, K, R, F]
        images = self._by_image("pixel_values", visual.get("pixel_values"), dimensions=3)  # [N, K, 3, H, W]
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
