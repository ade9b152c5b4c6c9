import numpy as np
import pytest
import torch
import torch.distributed as dist
from transformers import set_seed

from babelens import Rc3Config, Rc3ForPreTraining
from babelens.data.batching.mixture import TaskData, TaskSampler
from babelens.data.batching.rc3 import TranslationCollator
from babelens.data.batching.views import translation_pairs, weak_pairs
from babelens.data.corpus.loading import load_captions
from babelens.trainers.checkpoints import newest_checkpoint
from babelens.trainers.large_batches import gather_rows
from babelens.utils.errors import InputError
from tests.support.processes import DIED, together
from tests.support.tiny_rc3 import REGION_SIZE, SIZES, rc3_data, rc3_processor, rc3_trainer, train
from tests.support.tiny_training import assert_same, shapes_corpus

OBJECTIVES = ("mclm", "itm", "xtcl", "rxvtcl")


def batches(trainer, count: int = 3) -> list[dict]:
    loader = trainer.get_train_dataloader()
    return [batch for batch, _ in zip(loader, range(count), strict=False)]


def test_a_step_takes_a_batch_of_each_data_set_of_its_own_size(tmp_path):
    (batch,) = batches(rc3_trainer(tmp_path, data_set_batch_sizes={"parallel": 12, "weak": 6}), 1)
    sizes = {name: len(part["first"]["input_ids"]) for name, part in batch.items()}
    assert sizes == {"strict": 8, "weak": 6, "parallel": 12}
    # As in the paper, the strict data set has regions and the weak one pixels.
    assert "region_features" in batch["strict"] and "pixel_values" not in batch["strict"]
    assert "pixel_values" in batch["weak"] and "region_features" not in batch["weak"]


@pytest.mark.parametrize(
    ("arguments", "strict", "weak"),
    [
        ({"strict_visual": "both", "weak_visual": "both"}, *[{"region_features", "pixel_values"}] * 2),
        ({"strict_visual": "patches", "weak_visual": "regions"}, {"pixel_values"}, {"region_features"}),
    ],
)
def test_images_are_given_as_asked_for(tmp_path, arguments, strict, weak):
    (batch,) = batches(rc3_trainer(tmp_path, max_steps=1, **arguments), 1)
    for part, expected in ((batch["strict"], strict), (batch["weak"], weak)):
        assert part.keys() & {"region_features", "pixel_values"} == expected


def pair_of(trainer, batch) -> set[tuple[str, str]]:
    processor = trainer.processing_class
    tags = {processor.language_token_id(tag): tag for tag in processor.languages}
    sides = []
    for side in (batch["first"], batch["second"]):
        last = side["input_ids"].gather(1, side["attention_mask"].sum(1, keepdim=True) - 1).flatten()
        sides.append([tags[token] for token in last.tolist()])
    return set(zip(*sides, strict=True))


@pytest.mark.parametrize("process", [None, 1])
def test_every_batch_is_of_one_pair_which_its_partners_share(tmp_path, process):
    trainer = rc3_trainer(tmp_path, data=rc3_data() | {"weak": shapes_corpus()})
    sampler = TaskSampler(trainer.mixture, 4, seed=3, num_processes=1 if process is None else 2)
    given = [trainer.mixture[draw] for number, draw in enumerate(sampler) if process in (None, number % 2)]
    met = {name: [pair_of(trainer, batch[name]) for batch in given] for name in ("strict", "weak", "parallel")}
    for pairs in met.values():
        assert all(len(pair) == 1 for pair in pairs)  # so that the partner of a row, in the batch, has its pair
        assert len(set(map(frozenset, (pair for batch in pairs for pair in batch)))) == 3
    assert len({tuple(map(frozenset, pairs)) for pairs in met.values()}) == 3  # each data set has a pair of its own


class MeanColours:
    """Two regions of each image: its colour, and its version."""

    identity = "mean colour, version"

    def __init__(self) -> None:
        self.read = 0  # images

    def __call__(self, images, version: int = 0) -> np.ndarray:
        self.read += len(images)
        colours = [np.asarray(images[row]).reshape(-1, 3).mean(0) / 255 for row in range(len(images))]
        regions = np.full((len(images), 2, REGION_SIZE), float(version), np.float32)
        regions[:, 0, :3] = colours
        return regions

    def versions(self, images, augmentation, augmented: int) -> np.ndarray:
        return np.stack([self(images, version) for version in range(augmented + 1)], axis=1)


def test_extracted_regions_are_computed_once(tmp_path):
    extractor = MeanColours()
    for _ in range(2):
        trainer = rc3_trainer(tmp_path, regions=extractor, cache_dir=str(tmp_path / "cache"), strict_visual="both")
        (batch,) = batches(trainer, 1)
        pixels = batch["strict"]["pixel_values"] / 2 + 0.5
        found = batch["strict"]["region_features"][:, 0, :3]
        torch.testing.assert_close(found, pixels.mean((2, 3)), atol=0.01, rtol=0)
    assert extractor.read == 16


def test_training_draws_from_the_regions_of_augmented_images(tmp_path):
    settings = {"image_augmentation": {"rotation": 10}, "augmented_regions": 3}
    trainer = rc3_trainer(tmp_path, regions=MeanColours(), cache_dir=str(tmp_path / "cache"), **settings)
    drawn = [batch["strict"]["region_features"][:, 1, 0] for batch in batches(trainer, 8)]
    assert torch.cat(drawn).unique().tolist() == [0, 1, 2, 3]
    again = [batch["strict"]["region_features"][:, 1, 0] for batch in batches(trainer, 8)]
    torch.testing.assert_close(again, drawn, rtol=0, atol=0)
    for batch in trainer._eval_batches({"strict": shapes_corpus()}):
        assert not batch["strict"]["region_features"][:, 1].any()  # images as they are


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"data": {"strict": None}}, "no data for weak, parallel"),
        ({"model": {"visual": "regions"}, "image_augmentation": {}}, "image_augmentation has no effect"),
        ({"data_set_batch_sizes": {"weak": 0}}, r"data_set_batch_sizes\['weak'\]=0 must be"),
        (
            {"data_set_batch_sizes": {"weak": 17}},
            "task 'weak' has in 'de with en' 16 examples, fewer than a batch of 17",
        ),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, given, message):
    with pytest.raises(ValueError, match=message):
        rc3_trainer(tmp_path, **given).train()


def test_a_stream_is_refused(tmp_path):
    stream = load_captions(shapes_corpus().to_iterable_dataset(), check_images=False)
    for given in (stream, TaskData(stream), weak_pairs(stream)):
        with pytest.raises(InputError, match=r"weak: .*stream.*streaming=False"):
            rc3_trainer(tmp_path, data=rc3_data() | {"weak": given})


def test_training_lowers_the_losses_and_logs_them(tmp_path):
    trainer = rc3_trainer(tmp_path, max_steps=40, logging_steps=20, model={"dropout": 0.0, "init_std": 0.2})
    trainer.train()
    first, last = (entry for entry in trainer.state.log_history if "loss" in entry)
    for name in ("mlm", "decoder", "xtcl", "strict_contrast", "weak_contrast"):
        assert last[f"{name}_loss"] < first[f"{name}_loss"], name
    assert first["mclm_loss"] == pytest.approx(first["mlm_loss"] + first["decoder_loss"], abs=1e-3)
    assert first["loss"] == pytest.approx(sum(first[f"{name}_loss"] for name in OBJECTIVES), abs=1e-3)
    assert 0 < last["p_avg_textual"] < 1 and 0 < last["p_avg_visio_textual"] < 1


def test_a_non_finite_loss_stops_before_the_weights(tmp_path):
    trainer = rc3_trainer(tmp_path)
    with torch.no_grad():
        trainer.model.matching_head.bias.fill_(torch.nan)
    before = trainer.model.lm_head.weight.clone()
    with pytest.raises(InputError, match="the loss of itm_loss is nan in step 1"):
        trainer.train()
    assert torch.equal(trainer.model.lm_head.weight, before)


def test_evaluation_measures_matching_and_leaves_the_averages(tmp_path):
    trainer = rc3_trainer(tmp_path, max_steps=2)
    trainer.train()
    state = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    metrics = trainer.evaluate()
    assert metrics == trainer.evaluate()
    assert 0 <= metrics["eval_itm_accuracy"] <= 1
    assert metrics.keys() >= {"eval_loss", "eval_mclm_loss", "eval_strict_contrast_loss"}
    assert all(torch.equal(value, state[name]) for name, value in trainer.model.state_dict().items())
    everything = trainer.evaluate({"all": rc3_data(), "some": shapes_corpus()})
    assert everything["eval_some_itm_accuracy"] == metrics["eval_itm_accuracy"]
    assert everything.keys() >= {"eval_all_xtcl_loss", "eval_all_relevance_loss"}
    assert "eval_some_xtcl_loss" not in everything


@pytest.mark.slow
def test_two_killed_processes_resume_to_the_same_weights(tmp_path):
    """With dropout, masks and p_avg; saved in the middle of an epoch, killed by SIGKILL."""
    settings = {"max_steps": 9, "save_strategy": "steps", "save_steps": 3, "per_device_train_batch_size": 4}
    first, second = together(2, train, tmp_path / "unbroken", **settings)
    assert_same(first, second)
    with pytest.raises(DIED):
        together(2, train, tmp_path / "killed", die_at=8, **settings)
    assert newest_checkpoint(tmp_path / "killed").name == "checkpoint-6"
    assert first["textual_probability.steps"] == 9
    for resumed in together(2, train, tmp_path / "killed", resume=True, **settings):
        assert_same(resumed, first)


def test_two_processes_step_as_one_with_both_batches(tmp_path):
    """Only the strict data set, whose objectives are means over images; one process accumulates its batch."""
    model = {"dropout": 0.0, "xtcl_weight": 0.0, "mclm_weight": 0.0}
    settings = {
        "model": model,
        "data": rc3_data() | {"strict": TaskData(shapes_corpus(), languages=["de", "en"])},  # the pair of every step
        "optim": "sgd",
        "learning_rate": 0.05,
        "max_steps": 4,
        "per_device_train_batch_size": 4,
    }
    several = together(2, train, tmp_path / "two", **settings)[0]
    (one,) = together(1, train, tmp_path / "one", gradient_accumulation_steps=2, **settings)
    assert several["visio_textual_probability.probabilities"].any()
    for name, value in one.items():
        np.testing.assert_allclose(several[name], value, atol=2e-6, err_msg=name)


def contrasted(rows: slice | None) -> tuple[float, dict[str, np.ndarray]]:
    set_seed(3)
    processor = rc3_processor()
    weights = dict.fromkeys(("mclm_weight", "itm_weight", "rxvtcl_weight"), 0.0) | {"init_std": 0.2, "dropout": 0.0}
    model = Rc3ForPreTraining(Rc3Config(**SIZES | processor.config_fields() | weights)).train()
    model.textual_probability.observe(torch.tensor(0.6))  # so that negatives are interpolated
    examples = translation_pairs(shapes_corpus(), [("de", "en")])[:8]
    del examples[6]["image_id"]  # as of texts without images
    mine = slice(None) if rows is None else slice(4 * dist.get_rank(), 4 * dist.get_rank() + 4)
    batch = TranslationCollator(processor)(examples[mine], [2] * len(examples[mine]))
    loss = model(parallel=batch, gather=gather_rows if rows else None).loss
    loss.backward()
    return loss.item(), {name: p.grad.numpy() for name, p in model.named_parameters() if p.grad is not None}


def in_a_group() -> tuple[float, dict[str, np.ndarray]]:
    dist.init_process_group("gloo")
    return contrasted(slice(4))


def test_parallel_texts_of_all_processes_are_contrasted():
    (loss, gradient), (other_loss, other_gradient) = together(2, in_a_group)
    expected, expected_gradient = contrasted(None)
    assert loss == pytest.approx(expected, abs=1e-5) and other_loss == pytest.approx(expected, abs=1e-5)
    assert gradient.keys() == expected_gradient.keys()
    for name, value in expected_gradient.items():  # averaged, as by DistributedDataParallel
        np.testing.assert_allclose((gradient[name] + other_gradient[name]) / 2, value, atol=2e-6, err_msg=name)
