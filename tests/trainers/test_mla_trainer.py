from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from babelens.data.batching import views
from babelens.data.batching.mixture import TaskData
from babelens.modeling.losses import symmetric_contrastive_loss
from babelens.utils.errors import InputError
from tests.support.mla_training import COLD, STILL, assert_close, first_gradients, losses, trained_parts
from tests.support.tiny_dual_encoders import tiny_student_of
from tests.support.tiny_native import tiny_bert, tiny_clip
from tests.support.tiny_training import changed, shapes_corpus, weights


@pytest.mark.parametrize("cached", [True, False])
def test_batch_norm_keeps_its_statistics(make_mla_trainer, make_mla_on_mural, cached):
    parts = make_mla_on_mural(languages=["de", "fr"])
    parts[1].languages = ["de", "fr"]
    trainer = make_mla_trainer(["image_text"], parts=parts, cache_frozen_features=cached, max_steps=8)
    buffers = [name for name in trainer.model.state_dict() if "running_mean" in name]
    assert buffers
    assert trained_parts(trainer) == {"de", "fr", "embedding"}


def test_finetuning_on_english_leaves_the_acquirers(make_mla_trainer, clip_mla):
    model, processor = clip_mla()
    acquired = {name: value.clone() for name, value in model.state_dict().items() if ".mla_" in name}
    trainer = make_mla_trainer(["image_text"], parts=(model, processor), trainable="native", max_steps=4)
    assert list(trainer.tasks["image_text"].groups) == ["en"]
    assert trained_parts(trainer) == {"native"}
    fresh = clip_mla(native=model.unload())[0]  # the same languages on the model that was tuned
    missing, unexpected = fresh.load_state_dict(acquired, strict=False)
    assert not unexpected and not any(".mla_" in name for name in missing)
    batch = processor(text=["ein roter Punkt", "a red dot"], language=["de", "en"], return_tensors="pt")
    with torch.no_grad():
        features = [part.eval().get_text_features(**batch).pooler_output for part in (model, fresh)]
    assert torch.equal(*features)


def test_all_trains_everything_in_every_language(make_mla_trainer):
    trainer = make_mla_trainer(["image_text"], trainable="all", train_temperature=True, max_steps=12)
    assert list(trainer.tasks["image_text"].groups) == ["en", "de", "fr"]
    before = weights(trainer.model)
    trainer.train()
    assert changed(before, weights(trainer.model)) == {name for name, _ in trainer.model.named_parameters()}


def test_fine_tuning_leaves_the_temperature_at_a_hundredth(make_mla_trainer):
    """The loss's temperature, as the authors do; the native model's stays."""
    trainer = make_mla_trainer(["image_text"], trainable="all", max_steps=2)
    before = weights(trainer.model)
    outputs = []
    objective = trainer.model.contrastive_objective
    trainer.model.contrastive_objective = lambda output, **kw: outputs.append((output, kw)) or objective(output, **kw)
    trainer.train()
    assert not [name for name in changed(before, weights(trainer.model)) if "logit_scale" in name]
    (output, options), *_ = outputs
    x, y = output.image_embeds.detach(), output.text_embeds.detach()
    expected = symmetric_contrastive_loss(x, y, 0.01, positives=options["positives"]) / 2
    assert losses(trainer)[0] == pytest.approx(expected.item(), rel=1e-3)


def test_a_frozen_native_model_has_no_temperature_to_train(make_mla_trainer):
    with pytest.raises(InputError, match="train_temperature: with trainable='acquirers'"):
        make_mla_trainer(train_temperature=True)


@pytest.mark.parametrize(
    ("data", "languages", "named"),
    [
        (TaskData(shapes_corpus(), pairs=[("de", "fr")]), None, "translations into 'en', not from"),
        (TaskData(shapes_corpus(), pairs=[("fr", "en")]), ["de"], "'fr'"),
        (shapes_corpus().to_iterable_dataset(), None, "text_text: MLA needs a Dataset, not a stream"),
    ],
    ids=["other languages", "frozen translations", "a stream"],
)
def test_data_that_do_not_fit_are_refused(make_mla_trainer, data, languages, named):
    with pytest.raises(InputError, match=named):
        make_mla_trainer({"text_text": data}, languages=languages)


def test_a_model_without_languages_is_refused(make_mla_trainer):
    with pytest.raises(InputError, match="language"):
        make_mla_trainer(["text_text"], model={"languages": []}).train()


def test_biases_are_exempt_from_weight_decay(make_mla_trainer):
    trainer = make_mla_trainer()
    decayed, exempt = trainer.create_optimizer().param_groups
    assert (decayed["weight_decay"], exempt["weight_decay"]) == (0.2, 0.0)
    names = {id(parameter): name for name, parameter in trainer.model.named_parameters()}
    decayed, exempt = ([names[id(p)] for p in group["params"]] for group in (decayed, exempt))
    assert decayed and all(name.endswith("weight") for name in decayed)
    assert exempt and all(name.endswith("bias") for name in exempt)
    trained = {name for name, parameter in trainer.model.named_parameters() if parameter.requires_grad}
    assert sorted(decayed + exempt) == sorted(trained)


@pytest.mark.parametrize(("cached", "objective"), [(True, "mse"), (False, "nce")])
def test_a_triplet_has_both_losses_on_one_batch(make_mla_trainer, cached, objective):
    """Language exposure and native language transfer of the same texts, in one language."""
    settings = {"cache_frozen_features": cached, "text_text_objective": objective, **COLD}
    trainer = make_mla_trainer(["triplet"], max_steps=8, **settings)
    assert list(trainer.tasks["triplet"].groups) == ["de", "fr"]
    model, batches = trainer.model, []
    objective_of = model.contrastive_objective
    model.contrastive_objective = lambda output, **kw: batches.append((output, kw)) or objective_of(output, **kw)
    assert trained_parts(trainer) == {"de", "fr", "embedding"}
    output, options = batches[0]
    exposure = symmetric_contrastive_loss(output.image_embeds, output.text_embeds, 0.01, **options) / 2
    if objective == "mse":
        transfer = torch.nn.functional.mse_loss(output.text_features, output.paired_text_features)
    else:
        transfer = symmetric_contrastive_loss(output.paired_text_embeds, output.text_embeds, 0.01, **options) / 2
    assert losses(trainer)[0] == pytest.approx((exposure + transfer).item(), rel=1e-3)


def test_a_step_has_one_language_unless_they_are_mixed(make_mla_trainer):
    languages, task = [], "text_text"
    for mixed in (False, True):
        trainer = make_mla_trainer([task], mix_languages=mixed)
        languages.append([set(batch[task]["language_ids"].tolist()) for batch in trainer.get_train_dataloader()])
    assert all(len(one) == 1 for one in languages[0]) and set.union(*languages[0]) == {1, 2}
    assert any(len(several) == 2 for several in languages[1])


@pytest.mark.parametrize(("task", "objective", "mixed"), [("text_text", "mse", False), ("image_text", "nce", True)])
def test_features_from_the_cache_are_those_of_the_model(make_mla_trainer, monkeypatch, task, objective, mixed):
    settings = {"mix_languages": mixed, f"{task}_objective": objective, **COLD}
    expected = first_gradients(make_mla_trainer([task], cache_frozen_features=False, **settings | STILL))
    assert_close(first_gradients(make_mla_trainer([task], **settings)), expected)
    monkeypatch.setattr("babelens.inference.embedder.Embedder._encode", None)  # from here on all must be found
    assert_close(first_gradients(make_mla_trainer([task], **settings)), expected)


@pytest.mark.parametrize("task", ["text_text", "image_text"])
def test_a_model_in_another_state_has_features_of_its_own(make_mla_trainer, clip_mla, task, tmp_path):
    model, processor = clip_mla()
    kept = tmp_path / "cache"
    make_mla_trainer([task], parts=(model, processor))
    make_mla_trainer([task], parts=(model, processor))
    assert len(list(kept.iterdir())) == 1
    with torch.no_grad():
        model.native_model.text_projection.weight[0, 0] += 1e-3
        model.native_model.visual_projection.weight[0, 0] += 1e-3
    make_mla_trainer([task], parts=(model, processor))
    assert len(list(kept.iterdir())) == 2
    processor.image_processor.image_mean = [0.5, 0.5, 0.5]
    processor.max_text_length = 6
    make_mla_trainer([task], parts=(model, processor))
    assert len(list(kept.iterdir())) == 3


def test_images_with_cached_features_are_never_decoded(make_mla_trainer, monkeypatch):
    make_mla_trainer(["image_text"])

    def refuse(*arguments):
        raise AssertionError("an image was decoded")

    monkeypatch.setattr(views, "read_image", refuse)
    make_mla_trainer(["image_text"]).train()
    with pytest.raises(AssertionError, match="an image was decoded"):
        make_mla_trainer(["image_text"], cache_frozen_features=False).train()


def test_augmentation_of_images_with_features_is_refused(make_mla_trainer):
    with pytest.raises(InputError, match="image_augmentation has no effect"):
        make_mla_trainer(["image_text"], **STILL)
    make_mla_trainer(["text_text"], **STILL)


UPPER = {"text": {"train": "upper", "layers": 1}}
# Steps that follow the gradient.
DESCENT = COLD | {"optim": "sgd", "learning_rate": 0.1, "learning_rate_mapping": {"^text_model": 0.05}}


@pytest.mark.parametrize(
    ("model", "changes"),
    [({"native_texts": "native"}, {}), ({"strategy": "distillation"}, {"embed_chunk_size": 3})],
    ids=str,
)
def test_the_upper_layers_are_trained_and_no_others(make_mla_trainer, model: dict[str, Any], changes: dict[str, Any]):
    options = {"strategy": "projection", "text_pooling": "mean"} | model
    parts = tiny_student_of(tiny_clip, partial(tiny_bert, layers=3), **options)
    settings = DESCENT | {"towers": UPPER, "per_device_train_batch_size": 8, "mix_languages": True}
    trainer = make_mla_trainer(parts=parts, **settings | changes)
    before = weights(trainer.model)
    trainer.train()
    for name, value in weights(trainer.model).items():
        is_trained = name.startswith(("projection.", "text_model.encoder.layer.2."))
        # A bias of keys adds the same to all logits of a query.
        assert name.endswith("key.bias") or np.array_equal(value, before[name]) != is_trained, name
