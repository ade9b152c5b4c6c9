"""peft's `PeftCommonTester` on MLA's adapter of a tiny CLIP."""

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from peft_tests.testing_common import PeftCommonTester
from transformers import CLIPModel

from babelens import MlaAdapterConfig

SETTINGS = {"language": "de", "vocab_size": 30, "embedding_size": 6, "sep_token_id": 3, "acquirer_size": 4}
SETTINGS |= {"train_embedding": False}  # shared by all adapters, whose name its weights therefore lack
# Arguments of the common tests; some take more.
OPTIONS: dict[str, Any] = {"safe_serialization": True, "use_reentrant": True, "dtype": torch.float16}
OPTIONS |= {"raises_err": True, "test_name": "mla"}
TESTS = sorted(name for name in dir(PeftCommonTester) if name.startswith("_test_"))


class TestMlaAdapter(PeftCommonTester):
    transformers_class = CLIPModel

    def prepare_inputs_for_testing(self) -> dict[str, torch.Tensor]:
        ids = torch.tensor([[2, 5, 6, 9, 3], [2, 7, 3, 0, 0], [2, 9, 8, 3, 0]])
        return {"input_ids": ids, "pixel_values": torch.ones(3, 3, 32, 32)}

    @pytest.fixture
    def base(self, make_mla: Any, tmp_path: Path) -> str:
        make_mla()[0].unload().save_pretrained(tmp_path / "clip")
        return str(tmp_path / "clip")

    @pytest.mark.parametrize("name", TESTS)
    def test_common(self, name: str, base: str) -> None:
        test = getattr(self, name)
        given = {"model_id": base, "config_cls": MlaAdapterConfig, "config_kwargs": dict(SETTINGS)} | OPTIONS
        wanted = inspect.signature(test).parameters
        if not set(wanted) <= set(given):
            pytest.skip("for another method of peft")
        test(**{key: value for key, value in given.items() if key in wanted})
