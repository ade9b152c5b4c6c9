import copy
import dataclasses
import json
import pickle
from typing import Any

import pytest
from huggingface_hub.errors import StrictDataclassFieldValidationError
from transformers import AutoConfig, PreTrainedConfig

import babelens

from .common import Contract


class ConfigContract(Contract):
    """Configurations come back as they were saved, with the keys of others."""

    @pytest.fixture
    def config(self, make) -> Any:
        return make.func.config(**make.keywords)

    def test_round_trips(self, config, tmp_path):
        for each in (config, type(config)()):
            for use_diff in (True, False):
                again = type(config).from_dict(json.loads(each.to_json_string(use_diff=use_diff)))
                assert again.to_dict() == each.to_dict()
        config.save_pretrained(tmp_path)
        for loader in (type(config), AutoConfig):
            again = loader.from_pretrained(tmp_path)
            assert type(again) is type(config)
            again.name_or_path = config.name_or_path
            assert again.to_dict() == config.to_dict()
        for again in (copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
            assert again.to_dict() == config.to_dict()

    def test_registered_by_its_name(self, config):
        assert type(AutoConfig.for_model(config.model_type)) is type(config)
        assert babelens.METHODS[config.model_type].config is type(config)

    def test_unknown_keys_are_kept_and_ignored(self, config, tmp_path):
        """A newer version, transformers or a tool of the Hub has written them, also into a tower's part."""
        towers = [name for name in config.sub_configs_defaults if getattr(config, name) is not None]
        config.save_pretrained(tmp_path)
        content = json.loads((tmp_path / "config.json").read_text())
        for part in (content, *(content[tower] for tower in towers)):
            part |= {"pipeline_tag": "zero-shot-image-classification", "of_version_9": {"a": [1]}}
            part |= {"quantization_config": {"quant_method": "torchao"}, "transformers.js_config": {"dtype": "q8"}}
        (tmp_path / "config.json").write_text(json.dumps(content))
        for loader in (type(config), AutoConfig):
            loaded = loader.from_pretrained(tmp_path)
            assert type(loaded) is type(config)
            loaded.save_pretrained(tmp_path / "again")
            again = json.loads((tmp_path / "again" / "config.json").read_text())
            for part in (again, *(again[tower] for tower in towers)):
                assert part["pipeline_tag"] == "zero-shot-image-classification"
                assert part["of_version_9"] == {"a": [1]} and part["transformers.js_config"] == {"dtype": "q8"}

    def test_a_wrong_type_is_refused(self, config):
        for field in _own_fields(config):
            with pytest.raises(StrictDataclassFieldValidationError, match=f"'{field.name}'"):
                type(config)(**{field.name: object()})


def _own_fields(config: Any) -> list[dataclasses.Field]:
    """The fields that a method adds to transformers' own, towers apart."""
    others = {field.name for field in dataclasses.fields(PreTrainedConfig)} | set(config.sub_configs)
    return [field for field in dataclasses.fields(config) if field.name not in others]
