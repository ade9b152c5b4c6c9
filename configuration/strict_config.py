"""The old place of what `configuration_two_tower` holds."""

from transformers import PreTrainedConfig as StrictConfig  # noqa: F401

from .configuration_two_tower import *  # noqa: F403
