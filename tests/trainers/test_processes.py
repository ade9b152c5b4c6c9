from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from accelerate.state import PartialState
from transformers import Trainer, TrainingArguments, set_seed

import babelens
from babelens.modeling.losses import contrastive_loss
from babelens.processing.processing_smalr import frequent_words
from babelens.processing.tokenizer_training import train_wordpiece
from babelens.trainers.contrastive import ContrastiveTrainer
from babelens.trainers.large_batches import gather_rows, row_counts
from tests.contracts import TINY_RC3, visio_textual_batch
from tests.support.mla_training import SETTINGS, mla_trainer
from tests.support.processes import together
from tests.support.scaled_training import BATCH_NORM, PLAIN, train
from tests.support.tiny_native import tiny_clip, tiny_mla
from tests.support.tiny_rc3 import rc3_trainer
from tests.support.tiny_training import QUIET, shapes_captions, shapes_corpus, shapes_processor, shapes_texts, weights
from tests.support.versions import CHECKPOINTING

STEPS = {"max_steps": 5, "double": True, "max_grad_norm": 0.0, **PLAIN}
SAME_RATE = {"image_text": 0.1, "text_text": 0.1}  # two optimizers that do together what one would


@pytest.mark.parametrize(
    ("shares", "same", "settings"),
    [
        ([4, 1, 3], {}, {"loss_tile_size": 3, "embed_chunk_size": 2, "gradient_caching": False}),
        ([3, 5], {"gradient_accumulation_steps": 2}, {"task_learning_rates": SAME_RATE, "embed_chunk_size": 2}),
    ],
    ids=["three uneven, in tiles, chunks with graphs", "two optimizers, chunks, accumulation"],
)
def test_processes_train_as_one_does(tmp_path, shares, same, settings):
    """In float64: the loss of each step, and the final weights. Images recur across processes."""
    expected = together(1, train, tmp_path / "one", shares=[8], **STEPS | same)[0]
    for rank in together(len(shares), train, tmp_path / "many", shares=shares, **STEPS | same | settings):
        for task, losses in expected.losses.items():
            assert len(losses) == 5 * same.get("gradient_accumulation_steps", 1)
            np.testing.assert_allclose(rank.losses[task], losses, rtol=1e-9, err_msg=task)
        for name, value in expected.weights.items():
            np.testing.assert_allclose(rank.weights[name], value, rtol=1e-8, atol=1e-10, err_msg=name)


def whole_batch(count: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(count)
    x, y = torch.randn(2, count, 5, dtype=torch.float64, generator=generator).unbind()
    labels = torch.stack([torch.arange(count) // 4, torch.arange(count) % 5])
    temperature = torch.tensor(0.3, dtype=torch.float64)
    return x.requires_grad_(), y.requires_grad_(), labels, temperature.requires_grad_()


def loss_and_gradients(shares: list[int]) -> tuple[float, np.ndarray, np.ndarray, float]:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mine = slice(sum(shares[:rank]), sum(shares[: rank + 1]))
    x, y, labels, temperature = whole_batch(sum(shares))
    x, y = (side.detach()[mine].requires_grad_() for side in (x, y))
    counts = row_counts(len(x), x.device)
    assert counts == shares
    positives = gather_rows(labels[:, mine].T, counts).T
    loss = sum(contrastive_loss(gather_rows(x, counts), gather_rows(y, counts), temperature, positives=positives))
    loss.backward()
    return loss.item(), x.grad.numpy(), y.grad.numpy(), temperature.grad.item()


def smalr_loss_and_gradients(shares: list[int]) -> tuple[float, dict[str, np.ndarray]]:
    rank = PartialState(cpu=True).process_index
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "word_size": 3, "image_feature_size": 5, "image_hidden_size": 6, "latent_tokens": 4}
    config = babelens.SmalrConfig(languages=["en", "de"], vocabulary_sizes=[6, 6], specific_words=3, **sizes)
    model = babelens.SmalrModel(config).double().eval()  # neither masks nor batch statistics
    count = sum(shares)
    ids, features = torch.randint(3, 9, (2 * count, 4)), torch.randn(count, 5, dtype=torch.float64)
    start = sum(shares[:rank])
    mine, labels = slice(2 * start, 2 * (start + shares[rank])), torch.arange(count) // 2  # every two show the same
    texts = labels.repeat_interleave(2)[mine]
    output = model(
        input_ids=ids[mine],
        language_ids=torch.tensor([0, 1]).repeat(shares[rank]),
        image_features=features[start : start + shares[rank]],
        image_labels=labels[start : start + shares[rank]],
        text_labels=texts,
        return_logits=False,
    )
    counts = row_counts(len(texts), texts.device)
    trainer = SimpleNamespace(model=model, args=SimpleNamespace(gather_negatives=True), objective_options=dict)
    loss = ContrastiveTrainer._objective(trainer, output, texts[None], counts)
    loss.backward()
    return loss.item(), {n: p.grad.numpy() for n, p in model.named_parameters() if p.grad is not None}


def test_every_row_gets_the_gradient_of_the_whole_batch():
    """Sizes differ, one process has no row, and equal labels are in different processes."""
    shares = [3, 0, 6]
    x, y, labels, temperature = whole_batch(9)
    loss = sum(contrastive_loss(x, y, temperature, positives=labels))
    loss.backward()
    found = together(3, loss_and_gradients, shares)
    for value, *_ in found:
        assert value == pytest.approx(loss.item(), rel=1e-12)
    # Sums over three processes, which averaging the weights' gradients undoes.
    for column, expected in ((1, x.grad), (2, y.grad)):
        rows = np.concatenate([rank[column] for rank in found])
        np.testing.assert_allclose(rows / 3, expected.numpy(), rtol=1e-10, atol=1e-14)
    assert np.mean([rank[3] for rank in found]) == pytest.approx(temperature.grad.item(), rel=1e-10)


def test_a_batch_may_have_more_texts_than_images():
    """SMALR's: texts and images are gathered each by their own numbers, and labels match across processes."""
    [(loss, expected)] = together(1, smalr_loss_and_gradients, [6])
    found = together(2, smalr_loss_and_gradients, [5, 1])
    for value, _ in found:
        assert value == pytest.approx(loss, rel=1e-12)
    for name, gradient in expected.items():
        parts = [gradients[name] for _, gradients in found if name in gradients]
        np.testing.assert_allclose(sum(parts) / 2, gradient, rtol=1e-9, atol=1e-13, err_msg=name)


# Steps that follow the gradient, which AdamW would divide by its own size, rounding errors included.
DESCENT = {"optim": "sgd", "max_steps": 6, "weight_decay": 0.0, "lr_scheduler_type": "constant", "warmup_steps": 0}


def parallel_mla_trainer(output: Path, **changes: Any) -> babelens.MlaTrainer:
    parts = tiny_mla(tiny_clip(), train_wordpiece(shapes_texts(), 200, min_frequency=1))
    parts[0].double()
    settings = DESCENT | {"learning_rate": 0.1, "cache": output / "cache"}
    return mla_trainer(parts, output, ["text_text", "image_text"], **settings | changes)


def smalr_trainer(output: Path, *, mask: bool = False, **changes: Any) -> babelens.SmalrTrainer:
    """With all losses but masked words, whose masks are random, unless `mask`."""
    set_seed(1)
    vocabularies = {language: frequent_words(texts, language) for language, texts in sorted(shapes_captions().items())}
    config = babelens.SmalrConfig(
        languages=list(vocabularies),
        vocabulary_sizes=[len(own) for own in vocabularies.values()],
        word_size=8,
        hidden_size=16,
        image_hidden_size=16,
        specific_words=3,
        latent_tokens=4,
        image_dropout=0.0,
        exploration_probability=0.0,
        mask_weight=1e-3 if mask else 0,
        initializer_range=0.3,
        vision_config=BATCH_NORM | {"hidden_sizes": [8, 12]},
        image_feature_size=12,
    )
    settings = SETTINGS | DESCENT | {"learning_rate": 0.05, "max_grad_norm": 1.0}
    model = babelens.SmalrModel(config).double()
    model.vision_model.float()
    # In training mode it would divide by the statistics of its own process's images.
    norm = model.image_branch.norm.eval()
    norm.train = lambda mode=True: norm
    return babelens.SmalrTrainer(
        model,
        babelens.SmalrTrainingArguments(output_dir=str(output), **settings | changes),
        processing_class=babelens.SmalrProcessor(shapes_processor().image_processor, vocabularies),
        train_dataset={"image_text": shapes_corpus()},
        cache_dir=str(output / "cache"),
    )


TRAINERS = {"mla": parallel_mla_trainer, "smalr": smalr_trainer, "rc3": rc3_trainer}


def train_method(method: str, output: Path, **changes: Any) -> tuple[list[float], dict[str, np.ndarray]]:
    trainer = TRAINERS[method](output, **changes)
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry], weights(trainer.model)


def evaluate(method: str, output: Path, data: Any) -> dict[str, float]:
    metrics = TRAINERS[method](output).evaluate(data)
    return {name: value for name, value in metrics.items() if not name.endswith(("runtime", "_per_second"))}


HALVES = ({"per_device_train_batch_size": 8}, {"per_device_train_batch_size": 4})


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("mla", {"embed_chunk_size": 2, "text_text_objective": "nce", "mix_languages": True}),
        ("smalr", {"languages_per_batch": 2}),
    ],
)
def test_two_processes_learn_what_one_does(tmp_path, method, settings):
    """In float64: steps at a sharp temperature multiply the rounding errors of float32 a thousandfold."""
    one, two = HALVES
    ((expected, weights),) = together(1, train_method, method, tmp_path / "one", **settings | one)
    for losses, found in together(2, train_method, method, tmp_path / "two", **settings | two):
        np.testing.assert_allclose(losses, expected, rtol=1e-9)
        assert len(losses) == 6
        for name, value in weights.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-8, atol=1e-10, err_msg=name)


def test_two_processes_measure_what_one_does(tmp_path):
    (expected,) = together(1, evaluate, "mla", tmp_path / "one", shapes_corpus())
    assert len(expected) > 2
    for found in together(2, evaluate, "mla", tmp_path / "two", shapes_corpus()):
        assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_masks_of_words_are_drawn_by_each_process(tmp_path):
    """The layers that fill in masked words are read by the loss, outside of the wrapped model."""
    (losses, first), (others, second) = together(2, train_method, "smalr", tmp_path, mask=True, **HALVES[1])
    assert losses == others and np.isfinite(losses).all()
    assert all(np.array_equal(second[name], value) for name, value in first.items())


def train_rc3_head(folder: Path, **settings: Any) -> dict[str, np.ndarray]:
    """By transformers' own `Trainer`."""
    torch.manual_seed(0)
    model = babelens.Rc3ForImageTextRetrieval(babelens.Rc3Config(**TINY_RC3 | {"dropout": 0.0}))
    quiet = {name: value for name, value in QUIET.items() if name != "precision"}
    given = quiet | {"max_steps": 2, "per_device_train_batch_size": 1, "remove_unused_columns": False}
    arguments = TrainingArguments(folder, **given | settings)
    batch = visio_textual_batch() | {"labels": torch.tensor([1])}
    trainer = Trainer(model, arguments, train_dataset=[batch] * 4, data_collator=lambda examples: dict(examples[0]))
    trainer.train()
    return {name: value.detach().clone().numpy() for name, value in model.state_dict().items()}


@pytest.mark.slow
def test_heads_of_rc3_do_not_wait_for_the_decoder(tmp_path):
    settings = {CHECKPOINTING: True, f"{CHECKPOINTING}_kwargs": {"use_reentrant": False}}
    first, second = together(2, train_rc3_head, tmp_path / "two", **settings)
    (alone,) = together(1, train_rc3_head, tmp_path / "one")
    for name, value in alone.items():
        assert np.array_equal(first[name], second[name]), name
        np.testing.assert_allclose(first[name], value, rtol=0, atol=1e-5, err_msg=name)
