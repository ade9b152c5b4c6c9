import pytest
import torch

from babelens import ContrastiveTrainingArguments
from babelens.trainers.arguments import fastest_precision
from babelens.utils.errors import InputError
from tests.support.tiny_training import shapes_trainer

HARDWARE = {"amx_bf16": False, "avx512_bf16": True}


@pytest.fixture
def chosen(monkeypatch, tmp_path):
    monkeypatch.delenv("ACCELERATE_MIXED_PRECISION", raising=False)

    def choose(flags, **asked):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: flags)
        args = ContrastiveTrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to="none", **asked)
        assert args.bf16 == (args.mixed_precision == "bf16") == (args.chosen_precision == "bfloat16")
        return args.chosen_precision

    return choose


@pytest.mark.parametrize("flags", [{}, {"amx_bf16": False, "avx512_bf16": False}, HARDWARE, {"bf16": True}])
def test_bfloat16_where_the_processor_has_instructions_for_it(chosen, flags):
    assert chosen(flags) == fastest_precision("cpu") == ("bfloat16" if any(flags.values()) else "float32")


def test_what_is_asked_for_is_done(chosen, monkeypatch):
    assert chosen({}, precision="bfloat16") == chosen({}, bf16=True) == "bfloat16"
    assert chosen(HARDWARE, precision="float32") == chosen(HARDWARE, bf16=False) == "float32"
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")  # by `accelerate launch`
    assert chosen({}, precision="float32") == "float32"
    for wrong in ({"precision": "float32", "bf16": True}, {"precision": "float16"}):
        with pytest.raises(InputError, match=r"bf16|CPU"):
            chosen({}, **wrong)


def test_the_next_trainer_of_a_model_uses_its_own_precision(tmp_path):
    """accelerate would keep the first one's."""
    dtypes = []
    first = shapes_trainer(tmp_path / "first", precision="bfloat16", max_steps=1)
    linear = next(module for module in first.model.modules() if isinstance(module, torch.nn.Linear))
    linear.register_forward_hook(lambda *parts: dtypes.append(parts[-1].dtype))
    first.train()
    second = shapes_trainer(tmp_path / "second", precision="float32", max_steps=1)
    second.model = second.model_wrapped = first.model
    second.train()
    assert list(dict.fromkeys(dtypes)) == [torch.bfloat16, torch.float32]
    assert {weight.dtype for weight in first.model.parameters()} == {torch.float32}
