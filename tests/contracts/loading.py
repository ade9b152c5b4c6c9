import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

from .common import Contract


class LoadingContract(Contract):
    """A loaded model is as a freshly made one wherever its folder does not say otherwise."""

    @pytest.fixture
    def made(self, model) -> PreTrainedModel:
        torch.manual_seed(0)
        return type(model)(model.config)

    def test_what_is_frozen_when_made_is_frozen_when_loaded(self, model, made, tmp_path):
        model.requires_grad_(True)  # a folder does not say what was trained
        model.save_pretrained(tmp_path)
        loaded, _ = type(model).from_pretrained(tmp_path, output_loading_info=True)
        for other in (loaded, type(model).from_pretrained(tmp_path)):
            assert _trained(other) == _trained(made)

    def test_weights_that_a_folder_lacks_are_drawn_as_when_made(self, model, made, tmp_path, dirty_memory):
        model.save_pretrained(tmp_path)
        weights = load_file(tmp_path / "model.safetensors")
        for there in ({}, dict(list(weights.items())[::2])):
            save_file(there, tmp_path / "model.safetensors", metadata={"format": "pt"})
            torch.manual_seed(1)
            loaded = type(model).from_pretrained(tmp_path)
            for name, expected in _tensors(made).items():
                if name not in weights or not there:
                    _assert_drawn_alike(name, _tensors(loaded)[name], expected)
            assert all(torch.equal(loaded.state_dict()[name], value) for name, value in there.items())


def _trained(model: PreTrainedModel) -> dict[str, bool]:
    return {name: weight.requires_grad for name, weight in model.named_parameters()}


def _tensors(model: PreTrainedModel) -> dict[str, Tensor]:
    return dict(model.named_parameters()) | dict(model.named_buffers())


def _assert_drawn_alike(name: str, found: Tensor, expected: Tensor) -> None:
    assert found.shape == expected.shape and found.dtype == expected.dtype, name
    if not expected.is_floating_point() or expected.numel() < 2 or expected.std() == 0:
        assert torch.equal(found, expected), name
        return
    assert found.isfinite().all(), name
    ratio = (found.std() / expected.std()).item()
    # The standard deviation of few numbers says little.
    most = 1.5 if expected.numel() >= 100 else 2.5 if expected.numel() >= 10 else 20
    assert 1 / most < ratio < most, (name, ratio)
