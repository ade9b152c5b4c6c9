"""What every configuration keeps."""

import copy
import dataclasses
import json
import pickle
from typing import Any

import pytest
from huggingface_hub.errors import StrictDataclassFieldValidationError
from transformers import (
    AutoConfig,
    PreTrainedConfig,
)

import babelens

from .common import (
    Contract,
)

# Keys that transformers writes into a configuration, or reads from one that other tools wrote.
WRITTEN_BY_TRANSFORMERS = {
    "quantization_config": {"quant_method": "torchao", "quant_type": {"default": {"_type": "Int8WeightOnlyConfig"}}},
    "fusion_config": {"patch_embeddings": True},
    "tie_word_embeddings": False,
    "transformers_weights": "model.safetensors",
    "transformers.js_config": {"dtype": "q8", "use_external_data_format": {"model.onnx": True}},
    "gradient_checkpointing": False,
}


class ConfigContract(Contract):
    """Configurations come back as they were saved, and refuse what they do not know."""

    @pytest.fixture
    def config(self, make) -> Any:
        return make.func.config(**make.keywords)

    def test_json_round_trip(self, config):
        for use_diff in (True, False):
            again = type(config).from_dict(json.loads(config.to_json_string(use_diff=use_diff)))
            assert again.to_dict() == config.to_dict()

    def test_defaults_round_trip(self, config):
        default = type(config)()
        again = type(config).from_dict(json.loads(default.to_json_string()))
        assert again.to_dict() == default.to_dict()

    def test_saved_and_loaded(self, config, tmp_path):
        config.save_pretrained(tmp_path)
        for loader in (type(config), AutoConfig):
            again = loader.from_pretrained(tmp_path)
            assert type(again) is type(config)
            again.name_or_path = config.name_or_path
            assert again.to_dict() == config.to_dict()

    def test_copied_and_pickled(self, config):
        for again in (copy.deepcopy(config), pickle.loads(pickle.dumps(config))):
            assert again.to_dict() == config.to_dict()

    def test_registered_by_its_name(self, config):
        assert type(AutoConfig.for_model(config.model_type)) is type(config)
        assert babelens.METHODS[config.model_type].config is type(config)

    def test_an_unknown_key_is_refused_by_name(self, config):
        known = _own_fields(config)[0].name
        with pytest.raises(ValueError, match="has no key 'no_such_key'"):
            type(config)(no_such_key=1)
        with pytest.raises(ValueError, match=f"did you mean '{known}'"):
            type(config)(**{known[:-1]: getattr(config, known)})

    def test_an_unknown_key_of_a_tower_is_refused_by_name(self, config):
        for tower in config.sub_configs_defaults:
            settings = getattr(config, tower).to_dict()
            with pytest.raises(ValueError, match=f"has no key '{tower}.no_such_key'"):
                type(config)(**{tower: settings | {"no_such_key": 1}})

    def test_an_unknown_key_in_a_file_is_refused(self, config, tmp_path):
        towers = list(config.sub_configs_defaults)
        for place in (lambda content: content, *(lambda content, tower=tower: content[tower] for tower in towers)):
            config.save_pretrained(tmp_path)
            content = json.loads((tmp_path / "config.json").read_text())
            place(content)["no_such_key"] = 1
            (tmp_path / "config.json").write_text(json.dumps(content))
            with pytest.raises(ValueError, match="no_such_key"):
                AutoConfig.from_pretrained(tmp_path)

    @pytest.mark.parametrize("key", list(WRITTEN_BY_TRANSFORMERS))
    def test_what_transformers_writes_is_read(self, config, key, tmp_path):
        value = WRITTEN_BY_TRANSFORMERS[key]
        towers = list(config.sub_configs_defaults)
        for place in (lambda content: content, *(lambda content, tower=tower: content[tower] for tower in towers)):
            config.save_pretrained(tmp_path)
            content = json.loads((tmp_path / "config.json").read_text())
            place(content)[key] = value
            (tmp_path / "config.json").write_text(json.dumps(content))
            loaded = AutoConfig.from_pretrained(tmp_path)
            assert place(loaded.to_dict())[key] == value
            loaded.save_pretrained(tmp_path)
            if key != "transformers_weights" or place(content) is not content:  # says which file was read
                assert place(AutoConfig.from_pretrained(tmp_path).to_dict())[key] == value

    def test_a_misspelt_key_of_transformers_is_refused(self, config):
        for key in ("quantisation_config", "fusion_configs", "transformers.js_configs", "tie_word_embedding"):
            with pytest.raises(ValueError, match=f"has no key '{key}'; did you mean"):
                type(config)(**{key: {}})

    def test_a_wrong_type_is_refused(self, config):
        for field in _own_fields(config):
            with pytest.raises(StrictDataclassFieldValidationError, match=f"'{field.name}'"):
                type(config)(**{field.name: object()})


def _own_fields(config: Any) -> list[dataclasses.Field]:
    """The fields that a method adds to transformers' own, towers apart."""
    others = {field.name for field in dataclasses.fields(PreTrainedConfig)} | set(config.sub_configs)
    return [field for field in dataclasses.fields(config) if field.name not in others]
