"""FSDP and DeepSpeed by configuration: the example files, and what of them runs without a GPU."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.utils import DeepSpeedPlugin, FullyShardedDataParallelPlugin
from processes import ProcessesDied, together
from scaled_training import PLAIN, launch_environment, train, train_sharded, train_with_deepspeed
from tiny_training import shapes_trainer

from babelens.trainers.processes import check_shardable

EXAMPLES = Path(__file__).parents[2] / "examples" / "accelerate"
FSDP = EXAMPLES / "fsdp.yaml"


@pytest.mark.parametrize("name", ["ddp", "fsdp", "deepspeed"])
def test_accelerate_reads_the_examples(name):
    config = load_config_from_file(str(EXAMPLES / f"{name}.yaml"))
    assert config.distributed_type.value == {"ddp": "MULTI_GPU"}.get(name, name.upper())
    assert config.mixed_precision == "bf16"


# LAMB and a clipped gradient need the norms of whole weights; chunks gather them again and again.
@pytest.mark.parametrize(
    "settings",
    [
        {"optim": "lamb", "learning_rate": 1e-3, "max_grad_norm": 0.5},
        {"embed_chunk_size": 2, "eval_strategy": "steps", "eval_steps": 4},
        {
            "towers": {"image": {"train": "none"}, "text": {"train": "upper", "layers": 1}},
            "text": {"num_hidden_layers": 2},  # the states between the two layers are known
        },
    ],
    ids=["lamb, clipped", "chunks, evaluated", "half-frozen"],
)
def test_sharded_weights_train_as_whole_ones(tmp_path, settings):
    shared = {"shares": [5, 3], "double": True, "max_steps": 4, **PLAIN, **settings}
    whole = together(2, train, tmp_path, **shared)[0]
    sharded = together(2, train_sharded, tmp_path, FSDP, blocks="BertLayer,CLIPEncoderLayer", **shared)[0]
    for task, losses in whole.losses.items():
        np.testing.assert_allclose(sharded.losses[task], losses, rtol=1e-11, err_msg=task)
    assert sharded.weights.keys() == whole.weights.keys()
    for name, value in whole.weights.items():
        np.testing.assert_allclose(sharded.weights[name], value, rtol=1e-9, atol=1e-11, err_msg=name)


def test_a_sharded_run_resumes_to_the_same_weights(tmp_path):
    settings = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "per_device_train_batch_size": 4}
    unbroken = together(2, train_sharded, tmp_path / "unbroken", FSDP, **settings)[0]
    with pytest.raises(ProcessesDied):
        together(2, train_sharded, tmp_path / "killed", FSDP, die_at=3, **settings)
    resumed = together(2, train_sharded, tmp_path / "killed", FSDP, resume=True, **settings)[0]
    for name, value in unbroken.weights.items():
        assert np.array_equal(resumed.weights[name], value), name


def test_deepspeed_gets_what_the_example_says(monkeypatch):
    """As far as it goes without DeepSpeed: what accelerate makes of the file, and what the trainer must fill in."""
    for name, value in launch_environment(EXAMPLES / "deepspeed.yaml").items():
        monkeypatch.setenv(name, value)
    plugin = DeepSpeedPlugin()
    assert plugin.zero_stage == 2
    assert plugin.deepspeed_config["gradient_accumulation_steps"] == "auto"
    assert plugin.deepspeed_config["gradient_clipping"] == "auto"


@pytest.mark.parametrize("settings", [{}, {"embed_chunk_size": 2, "gradient_accumulation_steps": 2}])
def test_deepspeed_trains_as_one_process(tmp_path, settings):
    """Where it is installed. In float32, in which it keeps its weights."""
    pytest.importorskip("deepspeed")
    shared = {"max_steps": 4, **PLAIN, "optim": "adamw_torch", "learning_rate": 1e-3, **settings}
    expected = together(1, train, tmp_path, shares=[8], **shared)[0]
    for found in together(2, train_with_deepspeed, tmp_path, EXAMPLES / "deepspeed.yaml", shares=[5, 3], **shared):
        for task, losses in expected.losses.items():
            np.testing.assert_allclose(found.losses[task], losses, rtol=1e-5, err_msg=task)


@pytest.mark.parametrize(
    ("plugin", "settings", "message"),
    [
        ({"fsdp_version": 1}, {}, "fsdp_version=1 must be 2"),
        ({"state_dict_type": "SHARDED_STATE_DICT"}, {}, "fsdp_state_dict_type=SHARDED_STATE_DICT must be FULL"),
        (
            {},
            {"task_learning_rates": {"image_text": 1e-3, "text_text": 1e-4}},
            "task_learning_rates cannot be used with",
        ),
        ({}, {"embed_chunk_size": 2, "embed_chunks_kept": 2}, "embed_chunks_kept cannot be used with FSDP"),
    ],
)
def test_what_cannot_be_sharded_is_refused(tmp_path, plugin, settings, message):
    args = shapes_trainer(tmp_path, **settings).args
    defaults = {"fsdp_version": 2, "state_dict_type": "FULL_STATE_DICT", "cpu_ram_efficient_loading": False}
    state = SimpleNamespace(fsdp_plugin=FullyShardedDataParallelPlugin(**defaults | plugin))
    with pytest.raises(ValueError, match=message):
        check_shardable(args, state)


def test_lamb_is_refused_with_deepspeed(tmp_path):
    state = SimpleNamespace(deepspeed_plugin=DeepSpeedPlugin(zero_stage=2))
    with pytest.raises(ValueError, match="optim='lamb' cannot be used with DeepSpeed"):
        check_shardable(shapes_trainer(tmp_path).args, state)
