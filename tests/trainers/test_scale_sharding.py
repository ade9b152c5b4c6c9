"""FSDP and DeepSpeed by configuration: the example files, and what of them runs without a GPU."""

import os
from pathlib import Path

import numpy as np
import pytest
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import launch_command_parser
from accelerate.utils import DeepSpeedPlugin, FullyShardedDataParallelPlugin
from accelerate.utils.launch import prepare_deepspeed_cmd_env
from processes import ProcessesDied, together
from scaled_training import PLAIN, launch_environment, train, train_sharded
from tiny_training import shapes_trainer

EXAMPLES = Path(__file__).parents[2] / "examples"
FSDP = EXAMPLES / "fsdp.yaml"


@pytest.mark.parametrize("name", ["ddp", "fsdp", "deepspeed"])
def test_accelerate_reads_the_examples(name):
    config = load_config_from_file(str(EXAMPLES / f"{name}.yaml"))
    assert config.distributed_type.value == {"ddp": "MULTI_GPU"}.get(name, name.upper())
    assert config.mixed_precision == "bf16"


# LAMB and a clipped gradient need the norms of whole weights; chunks gather them again and again.
@pytest.mark.parametrize(
    "settings",
    [{"optim": "lamb", "learning_rate": 1e-3, "max_grad_norm": 0.5}, {"embed_chunk_size": 2, "eval_strategy": "steps"}],
    ids=["lamb, clipped", "chunks, evaluated"],
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
    """As far as it goes without DeepSpeed itself."""
    config = EXAMPLES / "deepspeed.yaml"
    environment = launch_environment(config)
    assert environment["ACCELERATE_USE_DEEPSPEED"] == "true"
