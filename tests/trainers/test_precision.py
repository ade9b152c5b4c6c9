"""Which precision training computes in, who decides, and that a resumed run keeps it."""

import json
import logging
import os
import pickle

import pytest
import torch

from babelens import ContrastiveTrainingArguments
from babelens.trainers.arguments import LiweTrainingArguments
from babelens.trainers.precision import fastest_precision, precision_of
from babelens.trainers.rc3_arguments import Rc3TaskTrainingArguments, Rc3TrainingArguments
from babelens.utils.errors import TrainingSetupError
from tests.support.processes import together
from tests.support.tiny_training import shapes_trainer

KINDS = [ContrastiveTrainingArguments, LiweTrainingArguments, Rc3TrainingArguments, Rc3TaskTrainingArguments]
SOFTWARE = {"amx_bf16": False, "avx512_bf16": False, "avx2": True}
HARDWARE = {"amx_bf16": False, "avx512_bf16": True, "avx2": True}


@pytest.fixture
def processor(monkeypatch):
    """Has torch say that the processor has these instructions."""

    def set_instructions(flags):
        fastest_precision.cache_clear()
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: flags)

    monkeypatch.delenv("ACCELERATE_MIXED_PRECISION", raising=False)
    yield set_instructions
    fastest_precision.cache_clear()


def arguments(tmp_path, kind=ContrastiveTrainingArguments, **changes):
    return kind(output_dir=str(tmp_path), **{"use_cpu": True, "report_to": "none"} | changes)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("flags", "name"), [(SOFTWARE, "float32"), (HARDWARE, "bfloat16")])
def test_bfloat16_where_the_processor_has_instructions_for_it(processor, tmp_path, kind, flags, name):
    processor(flags)
    args = arguments(tmp_path, kind)
    assert args.chosen_precision.name == name
    assert (args.bf16, args.fp16) == (name == "bfloat16", False)
    assert args.mixed_precision == ("bf16" if name == "bfloat16" else "no")
    assert ("avx512_bf16" if name == "bfloat16" else "in software") in str(args.chosen_precision)
    assert pickle.loads(pickle.dumps(args)).chosen_precision == args.chosen_precision


@pytest.mark.parametrize(
    ("flags", "name"),
    [({"amx_bf16": True}, "bfloat16"), ({"bf16": True, "neon": True}, "bfloat16"), ({"bf16": False}, "float32")],
)
def test_the_other_processors(processor, flags, name):
    processor(flags)
    assert fastest_precision("cpu").name == name


@pytest.mark.parametrize("flags", [{}, {"architecture": "riscv64"}])
def test_float32_if_instructions_are_unknown(processor, flags):
    """Two runs on one machine compute in the same precision: nothing is timed."""
    processor(flags)
    assert fastest_precision("cpu").name == "float32"


def test_float32_if_instructions_are_unused(processor, monkeypatch):
    processor(HARDWARE)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert fastest_precision("cpu").name == "float32"


def test_what_is_asked_for_is_done(processor, tmp_path):
    processor(SOFTWARE)
    for asked in ({"precision": "bfloat16"}, {"bf16": True}, {"precision": "bfloat16", "bf16": True}):
        assert arguments(tmp_path, **asked).bf16 and arguments(tmp_path, **asked).chosen_precision.is_asked
    processor(HARDWARE)
    for asked in ({"precision": "float32"}, {"bf16": False}):
        assert not arguments(tmp_path, **asked).bf16 and arguments(tmp_path, **asked).chosen_precision.is_asked
    # As arguments are copied.
    args = arguments(tmp_path)
    copied = {name: getattr(args, name) for name in ("precision", "bf16", "fp16")}
    assert arguments(tmp_path, **copied).bf16


def test_bfloat16_needs_no_word_about_a_missing_accelerator(processor, tmp_path):
    processor(HARDWARE)
    if torch.accelerator.is_available():
        pytest.skip("there is an accelerator")
    assert arguments(tmp_path, use_cpu=False).bf16


@pytest.mark.parametrize(
    "asked",
    [
        {"precision": "float32", "bf16": True},
        {"precision": "bfloat16", "bf16": False},
        {"precision": "bfloat16", "fp16": True},
        {"bf16": True, "fp16": True},
    ],
)
def test_contradictions_are_refused(tmp_path, asked):
    with pytest.raises(TrainingSetupError, match="contradict each other"):
        arguments(tmp_path, **asked)


def test_what_does_not_exist_is_refused(tmp_path):
    with pytest.raises(TrainingSetupError, match="must be one of auto, float32, bfloat16, float16"):
        arguments(tmp_path, precision="bf16")
    with pytest.raises(TrainingSetupError, match="a CPU has float32 and bfloat16"):
        arguments(tmp_path, precision="float16")


def test_the_launcher_decides_where_nobody_else_does(processor, tmp_path, monkeypatch):
    processor(SOFTWARE)
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    args = arguments(tmp_path)
    assert args.bf16 and str(args.chosen_precision) == "bfloat16, as the launcher's mixed_precision=bf16 says"
    with pytest.raises(TrainingSetupError, match="contradict"):
        arguments(tmp_path, precision="float32")
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "no")  # what it says when it was told nothing
    assert not arguments(tmp_path).bf16 and arguments(tmp_path, precision="bfloat16").bf16


def test_the_log_says_what_and_why(processor, tmp_path, caplog):
    processor(HARDWARE)
    with caplog.at_level(logging.INFO, logger="babelens"):
        trainer = shapes_trainer(tmp_path, precision="auto", max_steps=1)
        trainer.train()
    said = [record.getMessage() for record in caplog.records if record.getMessage().startswith("Training in")]
    assert said == ["Training in bfloat16, because this processor multiplies it (avx512_bf16)"]
    assert trainer.accelerator.mixed_precision == "bf16"


# ---- Resuming ----


def weights(trainer):
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """Weights after eight steps in each precision, with a checkpoint after four."""
    found = {}
    for name in ("float32", "bfloat16"):
        folder = tmp_path_factory.mktemp(name)
        trainer = shapes_trainer(folder, precision=name, max_steps=8, save_strategy="steps", save_steps=4)
        trainer.train()
        found[name] = (folder, weights(trainer))
    assert not all(torch.equal(found["float32"][1][key], found["bfloat16"][1][key]) for key in found["float32"][1])
    return found


@pytest.mark.parametrize("began", ["float32", "bfloat16"])
@pytest.mark.parametrize("flags", [SOFTWARE, HARDWARE])
def test_a_resumed_run_keeps_its_precision_on_any_machine(processor, tmp_path, unbroken, caplog, began, flags):
    folder, expected = unbroken[began]
    assert precision_of(folder / "checkpoint-4") == began
    processor(flags)
    here = fastest_precision("cpu").name
    trainer = shapes_trainer(tmp_path, precision="auto", max_steps=8)
    with caplog.at_level(logging.INFO, logger="babelens"):
        trainer.train(resume_from_checkpoint=str(folder / "checkpoint-4"))
    assert trainer.args.chosen_precision.name == began
    found = weights(trainer)
    assert all(torch.equal(found[key], expected[key]) for key in expected)
    assert ("a new run would compute in" in caplog.text) == (here != began)


def test_a_change_of_precision_is_said(processor, tmp_path, unbroken, caplog):
    folder, _ = unbroken["bfloat16"]
    trainer = shapes_trainer(tmp_path, precision="float32", max_steps=5)
    trainer.train(resume_from_checkpoint=str(folder / "checkpoint-4"))
    assert trainer.accelerator.mixed_precision == "no"
    assert "was trained in bfloat16; training continues in float32, as precision='float32' says" in caplog.text


def test_a_checkpoint_of_earlier_versions_says_nothing(processor, tmp_path, unbroken, caplog):
    folder, _ = unbroken["bfloat16"]
    file = folder / "checkpoint-8" / "trainer_state.json"
    state = json.loads(file.read_text())
    del state["stateful_callbacks"]["PrecisionState"]
    file.write_text(json.dumps(state))
    trainer = shapes_trainer(tmp_path, precision="float32", max_steps=9)
    trainer.train(resume_from_checkpoint=str(folder / "checkpoint-8"))
    assert "does not record in which precision it was trained" in caplog.text


# ---- Several processes ----


def train_where_one_has_hardware(rank_0, rank_1, output):
    """What each process makes of `auto`, on machines with these instructions."""
    flags = (rank_0, rank_1)[int(os.environ["RANK"])]
    torch.cpu.get_capabilities = lambda: flags
    trainer = shapes_trainer(output, precision="auto", max_steps=2)
    trainer.train()
    return str(trainer.args.chosen_precision), trainer.args.bf16, trainer.accelerator.mixed_precision


def test_all_processes_compute_in_one_precision(tmp_path):
    found = together(2, train_where_one_has_hardware, HARDWARE, SOFTWARE, tmp_path / "mixed")
    reason = "float32, because not every process has hardware that multiplies bfloat16"
    assert found == [(reason, False, "no")] * 2
    found = together(2, train_where_one_has_hardware, HARDWARE, HARDWARE, tmp_path / "alike")
    assert [part[1:] for part in found] == [(True, "bf16")] * 2
