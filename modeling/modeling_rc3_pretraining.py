"""RC3's pre-training: four objectives on three data sets at once (Zhou et al. 2023, section 2.3).

    L = L_MCLM + L_ITM + L_XTCL + L_R-XVtCL

    MCLM     strict         −log p_enc(masked words of x_i | v) − log p_dec(x_j | v, x_i)          (equations 1, 2)
    ITM      strict         −log p(x matches v)                                                    (equation 3)
    XTCL     parallel       −log e^(−d+) / (e^(−d+) + Σ e^(−λ d−)),  d = ‖TR(x) − TR(y)‖           (equations 4 to 8)
    R-XVtCL  strict, weak   the same, d = ‖VtR(v, x) − VtR(v, y)‖ (equation 9); on weak pairs, whose texts need not
                        translate each other, also KL(P_vtr ‖ P_tr) of their distances         (equations 10 to 13)

For an image v with the texts x_i and x_j, and its partner v^ in the batch, the encoder reads (v, x_i), (v, x_j),
(v, x^_i), (v, x^_j), (v^, x_i) and (v^, x_j); R-XVtCL also uses the first two rows of the partner, and ITM the first
four. For B examples of each data set, the encoder reads 17 B rows (7 strict, 6 + 2 weak, 2 parallel) instead of the
27 B that separate losses would need. An objective without weight costs nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, pad
from transformers import initialization as init
from transformers.utils import ModelOutput, can_return_tuple

from ..configuration.configuration_rc3 import Rc3Config
from ..utils.errors import InputError
from .losses.interpolated import (
    distance_matrix,
    interpolated_contrastive_loss,
    relevance_regularization,
    row_distances,
    share_nothing,
)
from .modeling_common import initialized_by_itself
from .modeling_rc3 import ImageEmbeds, Rc3EncoderOutput, Rc3Model, Rc3PreTrainedModel

_VISUAL_INPUTS = ("region_features", "region_mask", "pixel_values", "pixel_mask")
_TEXTS = ("input_ids", "attention_mask")  # [N, T] each

# The rows of an image with two texts: whether the image is the partner's, whether the text is, and which of the two
# texts it is. ITM uses the first four.
_PAIRS = (
    (False, False, "first"),
    (False, False, "second"),
    (False, True, "first"),
    (False, True, "second"),
    (True, False, "first"),
    (True, False, "second"),
)
_MATCHING = 4
_MATCHES = [image == text for image, text, _ in _PAIRS[:_MATCHING]]


@dataclass
class Rc3ForPreTrainingOutput(ModelOutput):
    """Output of `Rc3ForPreTraining`; losses [] are means over words, pairs or images. `loss` is the weighted sum of
    the four objectives, `mclm_loss` of `mlm_loss` (masked words) and `decoder_loss` (the other text), `rxvtcl_loss` of
    the contrasts and `relevance_loss`, KL(P_vtr || P_tr)."""

    loss: Tensor | None = None
    mclm_loss: Tensor | None = None
    mlm_loss: Tensor | None = None
    decoder_loss: Tensor | None = None
    itm_loss: Tensor | None = None
    itm_accuracy: Tensor | None = None
    xtcl_loss: Tensor | None = None
    rxvtcl_loss: Tensor | None = None
    strict_contrast_loss: Tensor | None = None
    weak_contrast_loss: Tensor | None = None
    relevance_loss: Tensor | None = None


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
        initialized_by_itself(self)

    def reset_parameters(self) -> None:
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


class Rc3ForPreTraining(Rc3PreTrainedModel):
    """RC3 with the heads of its pre-training: a word head, shared by encoder and decoder, and a matching head.

    Examples:
        >>> model = Rc3ForPreTraining.from_mbart("facebook/mbart-large-50", visual="patches")
        >>> output = model(strict=strict_batch, weak=weak_batch, parallel=parallel_batch)
        >>> output.loss.backward()
    """

    auto_classes = ("AutoModelForPreTraining",)
    _tied_weights_keys = {"lm_head.weight": "model.shared.weight"}

    def __init__(self, config: Rc3Config) -> None:
        super().__init__(config)
        self.model = Rc3Model(config)
        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.matching_head = nn.Linear(config.d_model, 1)
        self.textual_probability = RunningProbability(config.history)
        self.visio_textual_probability = RunningProbability(config.history)
        self.post_init()

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head

    @can_return_tuple
    def forward(
        self,
        strict: Mapping[str, Any] | None = None,
        weak: Mapping[str, Any] | None = None,
        parallel: Mapping[str, Any] | None = None,
        ends_step: bool = True,
        gather: Callable[[Tensor], Tensor] | None = None,
        **kwargs: Any,
    ) -> Rc3ForPreTrainingOutput:
        """Computes the objectives of the data sets that are given.

        Args:
            strict: images (the visual inputs) with two texts that translate each other, `first` and `second`;
                `partner`, the index of another image in the batch [B]; `masked`, `first` with some words masked
                (`input_ids`, and `labels` that are -100 elsewhere); `decoder`, `second` for the decoder
                (`decoder_input_ids`, `decoder_attention_mask`, `labels`).
            weak: the same for two texts that need not translate each other, without `masked` and `decoder`.
            parallel: two texts that translate each other, `first` and `second`. Pairs with an equal label in one of
                the `identities` [K, B], such as an equal text or image, are not each other's negatives.
            ends_step: whether the optimizer steps after this batch; running probabilities count a step's batches once.
            gather: the rows of this process [B, ...] -> those of all processes [N, ...], with gradient. XTCL then
                contrasts the parallel texts of all processes; by default of this one.
        """
        config = self.config
        parts: dict[str, Tensor] = {}
        if strict is not None:
            parts |= self._learn_strict(strict)
        if weak is not None and config.rxvtcl_weight:
            parts |= self._learn_weak(weak)
        if parallel is not None and config.xtcl_weight:
            parts |= self._learn_parallel(parallel, gather)
        if not parts:
            raise InputError("none of the given data sets has an objective with a weight")
        if self.training and ends_step:
            if "xtcl_loss" in parts:
                self.textual_probability.end_step()
            if parts.keys() & {"strict_contrast_loss", "weak_contrast_loss"}:
                self.visio_textual_probability.end_step()
        contrast = {"strict_contrast_loss": 1, "weak_contrast_loss": 1, "relevance_loss": config.relevance_weight}
        for name, weights in {
            "mclm_loss": {"mlm_loss": 1, "decoder_loss": 1},
            "rxvtcl_loss": contrast,
            "loss": {f"{name}_loss": getattr(config, f"{name}_weight") for name in ("mclm", "itm", "xtcl", "rxvtcl")},
        }.items():
            if terms := [weight * parts[term] for term, weight in weights.items() if term in parts]:
                parts[name] = torch.stack(terms).sum()
        return Rc3ForPreTrainingOutput(**parts)

    def _learn_strict(self, batch: Mapping[str, Any]) -> dict[str, Tensor]:
        """Computes MCLM, ITM and the contrast of R-XVtCL."""
        config = self.config
        parts: dict[str, Tensor] = {}
        images = self._embed_images(batch)
        if config.mclm_weight:
            parts |= self._masked_language_losses(batch, images)
        if config.itm_weight or config.rxvtcl_weight:
            pairs = self._encode_pairs(batch, images, _PAIRS if config.rxvtcl_weight else _PAIRS[:_MATCHING])
        if config.itm_weight:
            parts |= self._matching_losses(pairs[:_MATCHING], _MATCHES)
        if config.rxvtcl_weight:
            positive, negatives = self._visio_textual_distances(pairs, batch["partner"])
            parts["strict_contrast_loss"] = self._contrast(positive, negatives, self.visio_textual_probability)
        return parts

    def _learn_weak(self, batch: Mapping[str, Any]) -> dict[str, Tensor]:
        """Computes R-XVtCL with its regularization (equation 12)."""
        pairs = self._encode_pairs(batch, self._embed_images(batch), _PAIRS)
        positive, negatives = self._visio_textual_distances(pairs, batch["partner"])
        parts = {"weak_contrast_loss": self._contrast(positive, negatives, self.visio_textual_probability)}
        if self.config.relevance_weight:
            with torch.no_grad():  # P_tr is the target; dropout is active, as everywhere in a step
                first, second = self._encode_texts(batch)
                partner = batch["partner"]
                textual = torch.stack([row_distances(first, x) for x in (second, first[partner], second[partner])], 1)
            visio_textual = torch.cat([positive[:, None], negatives[:, :2]], dim=1)  # of texts with the same image
            parts["relevance_loss"] = relevance_regularization(visio_textual, textual)
        return parts

    def _learn_parallel(
        self, batch: Mapping[str, Any], gather: Callable[[Tensor], Tensor] | None
    ) -> dict[str, Tensor]:
        """Computes XTCL, with the texts of `first` as anchors."""
        first, second = self._encode_texts(batch)
        identities = batch.get("identities")
        if gather is not None:
            first, second = gather(first), gather(second)
            identities = None if identities is None else gather(identities.T).T
        to_second = distance_matrix(first, second)  # [B, B]
        negatives = torch.cat([distance_matrix(first, first), to_second], dim=1)  # [B, 2 B]
        other = share_nothing(identities, len(first), first.device).repeat(1, 2)
        return {"xtcl_loss": self._contrast(to_second.diagonal(), negatives, self.textual_probability, other)}

    def _contrast(
        self, positive: Tensor, negatives: Tensor, running: RunningProbability, valid: Tensor | None = None
    ) -> Tensor:
        contrast = interpolated_contrastive_loss(
            positive, negatives, running.average, slack=self.config.slack, valid=valid
        )
        if self.training:
            running.observe(contrast.probability, len(positive))
        return contrast.loss

    def _masked_language_losses(self, batch: Mapping[str, Any], images: ImageEmbeds | None) -> dict[str, Tensor]:
        """Computes MCLM: masked words by the encoder, and the other text by the decoder."""
        masked, target = batch["masked"], batch["decoder"]
        rows = self.model.encode(masked["input_ids"], batch["first"]["attention_mask"], image_embeds=images)
        decoded = self.model.decoder(
            input_ids=target["decoder_input_ids"],
            attention_mask=target["decoder_attention_mask"],
            encoder_hidden_states=rows.last_hidden_state,
            encoder_attention_mask=rows.attention_mask,
            use_cache=False,
            return_dict=True,
        )
        labels = masked["labels"]
        return {
            "mlm_loss": self._word_loss(text_states(rows, labels.shape[1]), labels),
            "decoder_loss": self._word_loss(decoded.last_hidden_state, target["labels"]),
        }

    def _word_loss(self, states: Tensor, labels: Tensor) -> Tensor:
        """Returns the cross-entropy of words at states [N, T, d], the mean over the labels [N, T] except -100."""
        known = labels != -100
        # Logits are as wide as the vocabulary: only where there is a label, which may be nowhere.
        logits = self.lm_head(states[known]).float()
        return cross_entropy(logits, labels[known], reduction="sum") / known.sum().clamp(min=1)

    def _matching_losses(self, pairs: Tensor, matches: list[bool]) -> dict[str, Tensor]:
        """Computes ITM on representations [P, B, d], some of whose pairs match."""
        logits = self.matching_head(pairs).squeeze(-1).float()  # [P, B]
        target = torch.tensor(matches, device=logits.device)[:, None].expand_as(logits)
        accuracy = ((logits > 0) == target).float().mean()
        return {"itm_loss": binary_cross_entropy_with_logits(logits, target.float()), "itm_accuracy": accuracy}

    @staticmethod
    def _visio_textual_distances(pairs: Tensor, partner: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the distances of (v, x_i) to (v, x_j) [B] and to the negatives [B, 6], from pairs [6, B, d]."""
        anchor = pairs[0]
        others = torch.cat([pairs[1:], pairs[:2, partner]])  # and (v^, x^_i), (v^, x^_j): those of the partner
        distances = row_distances(anchor, others)  # [7, B]
        return distances[0], distances[1:].T

    def _embed_images(self, batch: Mapping[str, Any]) -> ImageEmbeds | None:
        """Embeds the images of a data set once, for all their texts."""
        return self.model.encoder.embed_images(**{name: batch[name] for name in _VISUAL_INPUTS if name in batch})

    def _encode_pairs(
        self, batch: Mapping[str, Any], images: ImageEmbeds | None, pairs: tuple[tuple[bool, bool, str], ...]
    ) -> Tensor:
        """Returns the representations of images with texts, [P, B, d]."""
        partner = batch["partner"]
        own = torch.arange(len(partner), device=partner.device)
        indices = torch.cat([partner if of_partner else own for of_partner, _, _ in pairs])
        texts = [
            {name: value[partner if of_partner else own] for name, value in batch[side].items() if name in _TEXTS}
            for _, of_partner, side in pairs
        ]
        return self._encode(texts, images, indices).unflatten(0, (len(pairs), -1))

    def _encode_texts(self, batch: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        """Returns TR of both texts, [B, d] each."""
        first, second = self._encode([batch["first"], batch["second"]]).chunk(2)
        return first, second

    def _encode(
        self, parts: Sequence[Mapping[str, Tensor]], images: ImageEmbeds | None = None, indices: Tensor | None = None
    ) -> Tensor:
        """Returns the representations [N, d] of all texts: VtR with the images at `indices` [N], or else TR."""
        own = None if images is None or indices is None else images.at(indices)
        length = max(part["input_ids"].shape[1] for part in parts)
        joined = {
            name: torch.cat([pad(part[name], (0, length - part[name].shape[1]), value=value) for part in parts])
            for name, value in zip(_TEXTS, (self.config.pad_token_id, 0), strict=True)
        }
        return self.model.encode(**joined, image_embeds=own).last_hidden_state[:, 0]


def text_states(output: Rc3EncoderOutput, length: int) -> Tensor:
    """Returns the states at the tokens of the texts, [N, length, d]; those after the end of a text are undefined."""
    states = output.last_hidden_state
    assert output.text_start is not None
    indices = output.text_start[:, None] + torch.arange(length, device=states.device)  # [N, length]
    indices = indices.clamp(max=states.shape[1] - 1)
    return states.gather(1, indices[..., None].expand(-1, -1, states.shape[2]))
