"""What a step of RC3's pre-training costs, objective by objective, beside a training step of transformers' mBART.

    python benchmarks/rc3_costs.py --rounds 5

mBART has RC3's sizes and learns to translate as many texts as there are examples of each data set; its encoder's
inputs are as long as an image with its text. A second mBART step reads the same rows as the objective, with encoder
and decoder, and has none of its losses: what is left above 1 is RC3's own, images and losses. Last, each loss
encodes what it needs, which ends at the same loss. All steps go forward, backward and through AdamW.

Printed are medians of the ratio over the rounds, with quartiles, in processor time. The two sides of every ratio take
turns.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch import Tensor
from transformers import MBartConfig, MBartForConditionalGeneration
from turns import Step, machine, quartiles, ratios

from babelens import Rc3Config, Rc3ForPreTraining, load_preset
from babelens.configuration.configuration_rc3 import PARALLEL, STRICT, WEAK
from babelens.modeling.losses.interpolated import relevance_regularization, row_distances
from babelens.modeling.modeling_rc3_pretraining import _MATCHES, _MATCHING, _PAIRS, Passes

_ALL = ("mclm_weight", "itm_weight", "xtcl_weight", "rxvtcl_weight", "relevance_weight")
# What is compared: the data sets that it learns from, and the weights that are not 0.
OBJECTIVES = {
    "MCLM": ((STRICT,), ("mclm_weight",)),
    "ITM": ((STRICT,), ("itm_weight",)),
    "XTCL": ((PARALLEL,), ("xtcl_weight",)),
    "R-XVtCL, strictly aligned": ((STRICT,), ("rxvtcl_weight",)),
    "R-XVtCL, weakly aligned": ((WEAK,), ("rxvtcl_weight", "relevance_weight")),
    "the same without relevance": ((WEAK,), ("rxvtcl_weight",)),
    "all four": ((STRICT, WEAK, PARALLEL), _ALL),
}
# MCLM 1, ITM 4, R-XVtCL 8 on each of two data sets; beside them texts alone: relevance 4, XTCL 2.
_SEPARATE_ROWS = "21 + 6 + 1"


@dataclass(frozen=True)
class Sizes:
    """Of a model and of its inputs."""

    config: Rc3Config
    batch_size: int
    regions: int
    words: int  # tokens of a text, with [BOS] and the language


def sizes() -> dict[str, Sizes]:
    tiny = load_preset("rc3-tiny")
    middle = load_preset(
        "rc3-tiny",
        vocab_size=16_000,
        d_model=256,
        encoder_layers=4,
        encoder_ffn_dim=1024,
        decoder_layers=4,
        decoder_ffn_dim=1024,
        region_size=2048,
        image_size=224,
        patch_size=32,
        patch_width=768,
    )
    return {"rc3-tiny": Sizes(tiny, 16, 9, 12), "width 256": Sizes(middle, 4, 36, 24)}


def main(
    rounds: Annotated[int, typer.Option(help="Number of rounds; each times both sides once.")] = 5,
    threads: Annotated[int, typer.Option(help="Number of processor threads.")] = 1,
) -> None:
    """Measure the ratios and print them as tables."""
    torch.set_num_threads(threads)
    print(f"{machine(threads)}; {rounds} rounds")
    for title, given in sizes().items():
        torch.manual_seed(0)
        costs = Costs(given)
        config = given.config
        print(
            f"\n{title}: {config.encoder_layers} + {config.decoder_layers} layers of width {config.d_model}, "
            f"{given.batch_size} examples of each data set, {given.regions} regions, "
            f"{config.patches_per_image} patches, texts of {given.words} tokens\n"
        )
        found = {
            title: ratios(one, other, rounds, time.process_time) for title, (one, other) in costs.comparisons().items()
        }
        print(costs.table(found), flush=True)


class EachForItself(Rc3ForPreTraining):
    """Each loss encodes what it needs; the losses are the same."""

    def _learn_strict(
        self, batch: Mapping[str, Any], groups: int, kwargs: dict[str, Any]
    ) -> tuple[dict[str, Tensor], dict[str, Any]]:
        losses, states = self._masked_language_losses(batch, self._embed_images(batch), kwargs)
        matching = self._encode_pairs(batch, self._embed_images(batch), _PAIRS[:_MATCHING], groups)
        losses |= self._matching_losses(matching, _MATCHES)
        return losses | {"strict_contrast_loss": self._eight(batch, groups)[0]}, states

    def _learn_weak(self, batch: Mapping[str, Any], groups: int) -> dict[str, Tensor]:
        contrast, visio_textual = self._eight(batch, groups)
        with torch.no_grad():
            own = self._encode_texts(batch, groups)
            of_partner = {
                side: {name: ids[batch["partner"]] for name, ids in batch[side].items()}
                for side in ("first", "second")
            }
            partners = self._encode_texts(of_partner, groups)
            textual = torch.stack([row_distances(own[0], other) for other in (own[1], *partners)], 1)
        return {
            "weak_contrast_loss": contrast,
            "relevance_loss": relevance_regularization(visio_textual, textual),
        }

    def _eight(self, batch: Mapping[str, Any], groups: int) -> tuple[Tensor, Tensor]:
        """R-XVtCL's contrast, and the distances beside the same image [B, 3]."""
        pairs = (*_PAIRS, (True, True, "first"), (True, True, "second"))
        rows = self._encode_pairs(batch, self._embed_images(batch), pairs, groups)
        distances = row_distances(rows[0], rows[1:])  # [7, B]
        loss = self._contrast(distances[0], distances[1:].T, self.visio_textual_probability)
        return loss, distances[:3].T


class Costs:
    """The steps to be compared, of models of one size on one random batch."""

    def __init__(self, given: Sizes) -> None:
        self.given, config = given, given.config
        self.model = Rc3ForPreTraining(config).train()
        self.separate = EachForItself(config).train()
        self.separate.load_state_dict(self.model.state_dict())
        fields = ("vocab_size", "max_position_embeddings", "d_model", "dropout", "scale_embedding")
        layers = (f"{side}_{what}" for side in ("encoder", "decoder") for what in ("layers", "ffn_dim"))
        heads = (f"{side}_attention_heads" for side in ("encoder", "decoder"))
        same = {name: getattr(config, name) for name in (*fields, *layers, *heads)}
        self.mbart = MBartForConditionalGeneration(MBartConfig(**same)).train()
        self.optimizers = {
            model: torch.optim.AdamW(model.parameters(), lr=0.0, fused=True)
            for model in (self.model, self.separate, self.mbart)
        }
        self.data = batches(given)
        self.lengths = {
            STRICT: 1 + given.regions + given.words,
            WEAK: 1 + config.patches_per_image + given.words,
            PARALLEL: given.words,
        }

    def comparisons(self) -> dict[tuple[str, str], tuple[Step, Step]]:
        """(a row of the table, what it is compared with) -> one side, other side."""
        self._check_same_loss()
        shared, separate = (self.rc3_step(model, *OBJECTIVES["all four"]) for model in (self.model, self.separate))
        found: dict[tuple[str, str], tuple[Step, Step]] = {("separate", "shared"): (separate, shared)}
        for objective, (names, weights) in OBJECTIVES.items():
            step = self.rc3_step(self.model, names, weights)
            found[objective, "batch"] = (step, self.mbart_step)
            found[objective, "rows"] = (step, self.same_rows_step(self.passes(objective)))
        return found

    def passes(self, objective: str) -> dict[str, Passes]:
        """Rows that a step needs, by data set."""
        names, weights = OBJECTIVES[objective]
        learn_only(self.model, weights)
        return {name: self.model.count_passes(**{name: self.given.batch_size}) for name in names}

    def _check_same_loss(self) -> None:
        models = self.model, self.separate
        shared, apart = (model.eval()(**self.data).loss for model in models)
        torch.testing.assert_close(apart, shared, rtol=1e-5, atol=0)
        for model in models:
            model.train()

    def rc3_step(self, model: Rc3ForPreTraining, names: tuple[str, ...], weights: tuple[str, ...]) -> Step:
        def step() -> None:
            learn_only(model, weights)
            self._learn(model, model(**{name: self.data[name] for name in names}).loss)

        return step

    def mbart_step(self) -> None:
        """A translation step: the encoder reads as much as of an image with its text."""
        source = tokens(self.given, self.given.batch_size, self.lengths[STRICT])
        self._learn(self.mbart, self.mbart(**source, **self._target()).loss)

    def same_rows_step(self, passes: dict[str, Passes]) -> Step:
        """mBART's layers on as many rows of the same lengths."""
        count = self.given.batch_size

        def step() -> None:
            losses = []
            for name, rows in passes.items():
                if rows.textual:
                    with torch.set_grad_enabled(name != WEAK):  # relevance is of texts without gradient
                        losses.append(self._states(rows.textual, self.given.words)[:, 0].square().mean())
                if rows.visio_textual:
                    states = self._states(rows.visio_textual, self.lengths[name])
                    losses.append(states[:, 0].square().mean())
                if rows.decoder:
                    read = {
                        "encoder_outputs": (states[-count:],),
                        "attention_mask": torch.ones(states.shape[:2])[:count],
                    }
                    losses.append(self.mbart(**read, **self._target()).loss)
            self._learn(self.mbart, torch.stack(losses).sum())

        return step

    def table(self, found: dict[tuple[str, str], np.ndarray]) -> str:
        """What was found for each of the comparisons."""
        lines = [
            "| step | rows: with image, text alone, decoder | / mBART, the batch | / mBART, the same rows |",
            "|---|---|---|---|",
        ]
        for objective in OBJECTIVES:
            rows = np.sum(list(self.passes(objective).values()), axis=0) // self.given.batch_size
            cells = [quartiles(found[objective, other]) for other in ("batch", "rows")]
            lines.append(f"| {objective} | {' + '.join(map(str, rows))} | {' | '.join(cells)} |")
        lines.append(
            f"\nAll four, each loss encoding what it needs, {_SEPARATE_ROWS} rows / shared rows: "
            + quartiles(found["separate", "shared"])
        )
        return "\n".join(lines)

    def _states(self, count: int, length: int) -> Tensor:
        return self.mbart.get_encoder()(**tokens(self.given, count, length)).last_hidden_state

    def _target(self) -> dict[str, Tensor]:
        return {name: self.data[STRICT]["decoder"][name] for name in ("decoder_input_ids", "labels")}

    def _learn(self, model: torch.nn.Module, loss: Tensor) -> None:
        loss.backward()
        self.optimizers[model].step()
        self.optimizers[model].zero_grad()


def learn_only(model: Rc3ForPreTraining, weights: tuple[str, ...]) -> None:
    """Gives these objectives the weight 1, and the others none."""
    for name in _ALL:
        setattr(model.config, name, float(name in weights))


# ---- The batch ----


def batches(given: Sizes) -> dict[str, dict[str, Any]]:
    """Random images and texts, for `Rc3ForPreTraining`."""
    config, count = given.config, given.batch_size
    data: dict[str, dict[str, Any]] = {
        name: {side: tokens(given, count, given.words) for side in ("first", "second")}
        for name in (STRICT, WEAK, PARALLEL)
    }
    partner = torch.arange(count).roll(1)
    masked = data[STRICT]["first"]["input_ids"].clone()
    chosen = torch.zeros_like(masked, dtype=torch.bool)
    chosen[:, 1 : 1 + max(1, round(config.mask_probability * given.words))] = True
    labels = masked.where(chosen, torch.tensor(-100))
    masked[chosen] = config.mask_token_id
    target = data[STRICT]["second"]["input_ids"]
    data[STRICT] |= {
        "partner": partner,
        "region_features": torch.randn(count, given.regions, config.region_size),
        "region_mask": torch.ones(count, given.regions, dtype=torch.bool),
        "masked": {"input_ids": masked, "labels": labels},
        "decoder": {
            "decoder_input_ids": target,
            "decoder_attention_mask": torch.ones_like(target),
            "labels": target.roll(-1, dims=1),
        },
    }
    data[WEAK] |= {"partner": partner, "pixel_values": torch.randn(count, 3, config.image_size, config.image_size)}
    return data


def tokens(given: Sizes, count: int, length: int) -> dict[str, Tensor]:
    """Texts of random words, [count, length]."""
    config = given.config
    first_word = max(config.language_token_ids) + 1
    ids = torch.randint(first_word, config.vocab_size, (count, length))
    ids[:, 0], ids[:, -1] = config.bos_token_id, config.language_token_ids[0]
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


if __name__ == "__main__":
    typer.run(main)
