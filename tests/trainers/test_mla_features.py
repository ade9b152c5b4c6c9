import pytest
import torch

from babelens.data.batching import views
from babelens.utils.errors import InputError
from tests.support.mla_training import COLD, STILL, assert_close, first_gradients


@pytest.mark.parametrize(
    ("task", "objective", "mixed"),
    [("text_text", "mse", False), ("image_text", "nce", True)],
)
def test_features_from_the_cache_are_those_of_the_model(make_mla_trainer, monkeypatch, task, objective, mixed):
    """Loss and every gradient of a step, computed, cached, and found again."""
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
