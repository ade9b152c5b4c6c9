import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from babelens.configuration.configuration_rc3 import Rc3Config
from babelens.modeling.losses.interpolated import interpolated_contrastive_loss, relevance_regularization
from babelens.modeling.modeling_rc3_pretraining import Rc3ForPreTraining
from tests.contracts import TINY_RC3, LoadingContract

SIZES = TINY_RC3 | {
    "vocab_size": 40,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "init_std": 0.2,
    "max_regions": 3,
    "languages": ["de", "en"],
    "language_token_ids": [6, 7],
}
PARTNER = [2, 0, 1]


class TestRc3PreTraining(LoadingContract):
    factory = "make_rc3"
    options = {"model_class": Rc3ForPreTraining}


def make_model(**changes) -> Rc3ForPreTraining:
    torch.manual_seed(0)
    return Rc3ForPreTraining(Rc3Config(**SIZES | changes)).double().eval()


def texts(lengths: list[int], language_token: int, seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    rows = [[0, *torch.randint(8, 40, (length,), generator=generator).tolist(), language_token] for length in lengths]
    longest = max(map(len, rows))
    return {
        "input_ids": torch.tensor([row + [1] * (longest - len(row)) for row in rows]),
        "attention_mask": torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows]),
    }


def strict_batch() -> dict:
    first, second = texts([2, 4, 3], 6, seed=1), texts([5, 3, 1], 7, seed=2)
    labels = torch.full_like(first["input_ids"], -100)
    labels[0, 1], labels[1, 3] = first["input_ids"][0, 1], first["input_ids"][1, 3]
    words = second["input_ids"]  # [BOS] words [LANG]
    count = second["attention_mask"].sum(1)
    said = torch.full_like(words, -100)[:, 1:]
    read = torch.full_like(said, 1)
    for row, length in enumerate(count):
        inner = words[row, 1 : length - 1]
        said[row, : length - 1] = torch.cat([inner, torch.tensor([2])])
        read[row, : length - 1] = torch.cat([torch.tensor([7]), inner])
    return {
        "first": first,
        "second": second,
        "region_features": torch.randn(3, 3, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64),
        "region_mask": torch.tensor([[True, True, False], [True, True, True], [True, False, False]]),
        "partner": torch.tensor(PARTNER),
        "masked": {"input_ids": first["input_ids"].where(labels == -100, 3), "labels": labels},
        "decoder": {"decoder_input_ids": read, "decoder_attention_mask": (read != 1).long(), "labels": said},
    }


def weak_batch() -> dict:
    return {
        "first": texts([1, 2, 3], 7, seed=4),
        "second": texts([4, 2, 1], 6, seed=5),
        "pixel_values": torch.randn(3, 3, 8, 8, generator=torch.Generator().manual_seed(6), dtype=torch.float64),
        "partner": torch.tensor(PARTNER),
    }


def parallel_batch(**more) -> dict:
    return {"first": texts([1, 4, 2, 3], 6, seed=7), "second": texts([3, 2, 1, 5], 7, seed=8), **more}


def batches() -> dict:
    return {"strict": strict_batch(), "weak": weak_batch(), "parallel": parallel_batch()}


def encoded(model, batch, side: str, row: int, image: int | None = None):
    length = int(batch[side]["attention_mask"][row].sum())
    visual = {
        name: batch[name][image : image + 1]
        for name in ("region_features", "region_mask", "pixel_values")
        if name in batch and image is not None
    }
    return model.model.encode(input_ids=batch[side]["input_ids"][row : row + 1, :length], **visual)


def vector(*arguments) -> torch.Tensor:
    return encoded(*arguments).pooler_output[0]


def distances(anchor: torch.Tensor, others: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack([((anchor - other) ** 2).sum().sqrt() for other in others])


def contrast_of(model, batch, average: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Equations 9 and 12 of one data set, and the probability of equation 4."""
    losses, probabilities, vtr, tr = [], [], [], []
    for b, hat in enumerate(PARTNER):
        anchor = vector(model, batch, "first", b, b)
        pairs = [("second", b, b), ("first", hat, b), ("second", hat, b), ("first", b, hat), ("second", b, hat)]
        pairs += [("first", hat, hat), ("second", hat, hat)]
        found = distances(anchor, [vector(model, batch, *pair) for pair in pairs])
        contrast = interpolated_contrastive_loss(found[:1], found[None, 1:], average)
        losses.append(contrast.loss)
        probabilities.append(contrast.probability)
        vtr.append(found[:3])
        alone = [vector(model, batch, *pair) for pair in (("second", b), ("first", hat), ("second", hat))]
        tr.append(distances(vector(model, batch, "first", b), alone).detach())
    relevance = relevance_regularization(torch.stack(vtr), torch.stack(tr))
    return torch.stack(losses).mean(), relevance, torch.stack(probabilities).mean()


def translation_loss(model, batch, average: float, alike: tuple[tuple[int, int], ...] = ()) -> torch.Tensor:
    """XTCL; pairs that are `alike` are not each other's negatives."""
    count = len(batch["first"]["input_ids"])
    losses = []
    for b in range(count):
        others = [k for k in range(count) if k != b and (b, k) not in alike and (k, b) not in alike]
        anchor = vector(model, batch, "first", b)
        near = distances(anchor, [vector(model, batch, "second", b)])
        far = distances(anchor, [vector(model, batch, side, k) for side in ("first", "second") for k in others])
        losses.append(interpolated_contrastive_loss(near, far[None], average).loss)
    return torch.stack(losses).mean()


def matching(model, batch) -> tuple[torch.Tensor, torch.Tensor]:
    logits, matches = [], []
    for b, hat in enumerate(PARTNER):
        for side in ("first", "second"):
            for row in (b, hat):
                logits.append(model.matching_head(vector(model, batch, side, row, b))[0])
                matches.append(float(row == b))
    logits, matches = torch.stack(logits), torch.tensor(matches, dtype=torch.float64)
    right = ((logits > 0) == (matches > 0)).double().mean()
    return binary_cross_entropy_with_logits(logits, matches), right


def masked_language(model, batch) -> tuple[torch.Tensor, torch.Tensor]:
    guessed, said = [], []
    masked = {**batch, "masked": {**batch["first"], "input_ids": batch["masked"]["input_ids"]}}
    for b in range(len(PARTNER)):
        output = encoded(model, masked, "masked", b, b)
        labels = batch["masked"]["labels"][b]
        for place in (labels != -100).nonzero().flatten().tolist():
            state = output.last_hidden_state[0, output.text_start[0] + place]
            guessed.append(cross_entropy(model.lm_head(state)[None], labels[place : place + 1]))
        target = {name: value[b] for name, value in batch["decoder"].items()}
        length = int(target["decoder_attention_mask"].sum())
        states = model.model.decoder(
            input_ids=target["decoder_input_ids"][None, :length], encoder_hidden_states=output.last_hidden_state
        ).last_hidden_state[0]
        said += [
            cross_entropy(model.lm_head(state)[None], target["labels"][place : place + 1])
            for place, state in enumerate(states)
        ]
    return torch.stack(guessed).mean(), torch.stack(said).mean()


def set_averages(model, textual: float, visio_textual: float) -> None:
    for running, value in ((model.textual_probability, textual), (model.visio_textual_probability, visio_textual)):
        running.probabilities[0], running.steps = value, torch.ones_like(running.steps)


def test_every_part_and_the_gradient_are_those_of_pairs_that_are_encoded_one_by_one():
    model, given = make_model(relevance_weight=0.5, xtcl_weight=2.0, itm_weight=3.0), batches()
    set_averages(model, 0.3, 0.6)
    output = model(**given)
    strict, _, _ = contrast_of(model, given["strict"], 0.6)
    weak, relevance, _ = contrast_of(model, given["weak"], 0.6)
    mlm, decoder = masked_language(model, given["strict"])
    itm, accuracy = matching(model, given["strict"])
    expected = {
        "strict_contrast_loss": strict,
        "weak_contrast_loss": weak,
        "relevance_loss": relevance,
        "rxvtcl_loss": strict + weak + 0.5 * relevance,
        "xtcl_loss": translation_loss(model, given["parallel"], 0.3),
        "mlm_loss": mlm,
        "decoder_loss": decoder,
        "mclm_loss": mlm + decoder,
        "itm_loss": itm,
        "itm_accuracy": accuracy,
    }
    expected["loss"] = (
        expected["mclm_loss"] + 3 * expected["itm_loss"] + 2 * expected["xtcl_loss"] + expected["rxvtcl_loss"]
    )
    assert output.keys() == expected.keys()
    for name, value in expected.items():
        assert output[name].item() == pytest.approx(value.item(), rel=1e-6), name
    names, parameters = zip(*model.named_parameters(), strict=True)
    gradients = (torch.autograd.grad(each["loss"], parameters) for each in (output, expected))
    for name, ours, theirs in zip(names, *gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7, msg=lambda text, name=name: f"{name}: {text}")
        assert ours.any(), name


def test_a_batch_in_which_no_word_is_masked_has_no_loss_of_words():
    model, given = make_model(), batches()
    given["strict"]["masked"]["labels"][:] = -100
    output = model(**given)
    assert output.mlm_loss == 0 and output.loss.isfinite()


def test_pairs_that_share_something_are_no_negatives():
    """The first and third translate one text; the second is about what the fourth is about."""
    model = make_model()
    batch = parallel_batch(identities=torch.tensor([[1, 2, 3, 4], [5, 6, 1, 7], [8, 9, 10, 9]]))
    set_averages(model, 0.3, 0.6)
    expected = translation_loss(model, batch, 0.3, alike=((0, 2), (1, 3)))
    assert model(parallel=batch).xtcl_loss.item() == pytest.approx(expected.item())


def test_averages_are_those_of_previous_steps_of_training():
    model, given = make_model(dropout=0.0), batches()
    model(**given)
    assert model.textual_probability.steps == model.visio_textual_probability.steps == 0
    model.train()
    model(**given)
    _, _, strict = contrast_of(model, given["strict"], 0.0)
    _, _, weak = contrast_of(model, given["weak"], 0.0)
    average = model.visio_textual_probability.average
    assert average.item() == pytest.approx((strict + weak).item() / 2)
    second = model(**given)
    assert second.strict_contrast_loss.item() == pytest.approx(contrast_of(model, given["strict"], average)[0].item())
    assert model.textual_probability.steps == model.visio_textual_probability.steps == 2
