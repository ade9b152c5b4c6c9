import pytest
import torch
from transformers import set_seed

from babelens import MlaTrainer, MlaTrainingArguments
from babelens.processing.tokenizer_training import train_wordpiece
from tests.support.tiny_native import tiny_clip, tiny_mla
from tests.support.tiny_training import QUIET, changed, prepared, shapes_corpus, shapes_texts, weights

SETTINGS = QUIET | {"per_device_train_batch_size": 4, "max_steps": 3, "learning_rate": 1e-2}
# No warm-up: the first step already shows what training does. The cache has no mirror images, either.
COLD = {"warmup_steps": 0}
STILL = {"image_augmentation": {"horizontal_flip": 0.0}, **COLD}


@pytest.fixture(scope="module")
def clip_mla():
    clip, clip_processor = tiny_clip()
    tokenizer = train_wordpiece(shapes_texts(), 200, min_frequency=1)

    def make(languages=("de", "fr"), native=clip, native_processor=clip_processor, **options):
        return tiny_mla((native, native_processor), tokenizer, languages, **options)

    return make


@pytest.fixture
def make_mla_trainer(clip_mla, tmp_path):
    def make(tasks=("text_text",), *, parts=None, output="run", model=None, **changes):
        given = {"cache": tmp_path / "cache", **changes}
        return prepared(mla_trainer(parts or clip_mla(**(model or {})), tmp_path / output, tasks, **given))

    return make


def mla_trainer(parts, output, tasks, *, cache, **changes):
    return MlaTrainer(
        model=parts[0],
        args=MlaTrainingArguments(output_dir=str(output), **SETTINGS | changes),
        processing_class=parts[1],
        train_dataset=tasks if isinstance(tasks, dict) else dict.fromkeys(tasks, shapes_corpus()),
        cache_dir=str(cache),
    )


def trained_parts(trainer):
    before = weights(trainer.model)
    trainer.train()
    return {
        name.split(".mla_acquirers.")[1].split(".")[0]
        if ".mla_acquirers." in name
        else "embedding"
        if ".mla_embedding." in name
        else "native"
        for name in changed(before, weights(trainer.model))
    }


def losses(trainer, name="loss"):
    return [entry[name] for entry in trainer.state.log_history if name in entry]


def first_gradients(trainer):
    set_seed(0)
    batch = next(iter(trainer.get_train_dataloader()))
    trainer.current_gradient_accumulation_steps = 1
    loss = trainer.training_step(trainer.model, batch)
    return loss, {name: p.grad for name, p in trainer.model.named_parameters() if p.grad is not None}


def assert_close(found, expected):
    torch.testing.assert_close(found[0], expected[0], rtol=1e-5, atol=1e-6)
    assert found[1].keys() == expected[1].keys()
    greatest = max(gradient.norm() for gradient in expected[1].values())
    for name, gradient in expected[1].items():
        assert (found[1][name] - gradient).norm() <= 1e-5 * gradient.norm() + 1e-6 * greatest, name
