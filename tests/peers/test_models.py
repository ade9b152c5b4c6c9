"""transformers' `ModelTesterMixin` on every model, and on transformers' own CLIP for comparison."""

import copy
import unittest
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor
from transformers_tests import test_modeling_common
from transformers_tests.generation.test_utils import GenerationTesterMixin
from transformers_tests.test_modeling_common import ModelTesterMixin

from babelens import Rc3ForPreTraining, Rc3ForVisualReasoning, Rc3Model
from babelens.modeling.modeling_rc3_tasks import TASK_MODELS
from tests.contracts import image_text_batch, visio_textual_batch

TINY_VIT = {
    "model_type": "vit",
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "image_size": 32,
    "patch_size": 8,
}
ROWS = 8


_settle = test_modeling_common.set_config_for_less_flaky_test


def _settle_own(config: Any) -> None:
    """The suite's precautions against rounding, for settings that only our configurations have. Its bounds are for
    outputs of about one; CLIP's logits, and the rounding of float16, which is greater without AVX-512, are 14 times
    larger."""
    known = [(part, set(vars(part))) for part in test_modeling_common._get_nested_configs(config)]
    _settle(config)
    for part, names in known:
        for name in set(vars(part)) - names:
            delattr(part, name)
        if "logit_scale_init_value" in names:
            part.logit_scale_init_value = 0.0


test_modeling_common.set_config_for_less_flaky_test = _settle_own
Inputs = dict[str, Any]
Made = tuple[type, Any, Inputs]  # a model's class, a configuration, inputs


@dataclass
class Tester:
    """The mixin's tester; `make` gets pytest's `getfixturevalue`, and returns the model's class, configuration and
    inputs."""

    make: Callable[[Callable[[str], Any]], Made]
    labels: Inputs = field(default_factory=dict)
    num_hidden_layers: int = 2
    num_attention_heads: int = 2
    hidden_size: int = 16
    has_attentions: bool = True
    is_composite: bool = True
    is_encoder_decoder: bool = False
    is_training: bool = True
    reads_languages: bool = False
    test_all_params_have_gradient: bool = True
    made: Made | None = None

    @property
    def text_model_tester(self) -> "Tester":
        """The suite takes the text tower's inputs from it, where it does not know them all."""
        if not self.reads_languages or self.made is None:
            raise AttributeError("text_model_tester")
        model_class, config, inputs = self.made
        texts = {name: value for name, value in inputs.items() if name != "pixel_values"}
        return replace(self, reads_languages=False, made=(model_class, config, texts))

    def prepare_config_and_inputs_for_common(self) -> tuple[Any, Inputs]:
        assert self.made is not None
        return copy.deepcopy(self.made[1]), copy.deepcopy(self.made[2])

    prepare_config_and_inputs = prepare_config_and_inputs_for_common

    def get_config(self) -> Any:
        return self.prepare_config_and_inputs_for_common()[0]

    @property
    def batch_size(self) -> int:
        return len(self._texts)

    @property
    def seq_length(self) -> int:
        return self._texts.shape[1]

    @property
    def _texts(self) -> Tensor:
        assert self.made is not None
        inputs = self.made[2]
        return inputs["input_ids"] if "input_ids" in inputs else inputs["parallel"]["first"]["input_ids"]


class Suite(ModelTesterMixin):
    tester: ClassVar[Tester]
    test_resize_embeddings = True

    @pytest.fixture(autouse=True)
    def _prepare(self, request: pytest.FixtureRequest) -> None:
        tester = type(self).tester
        if tester.made is None:
            model_class, config, inputs = tester.make(request.getfixturevalue)
            # A new configuration, which names no attention implementation yet, and enough rows for every test.
            tester.made = model_class, type(config).from_dict(config.to_dict()), _rows(inputs)
        self.model_tester = tester
        self.additional_model_inputs = [
            key for key in tester.made[2] if key not in ("input_ids", "attention_mask", "decoder_input_ids")
        ]
        self.all_model_classes = (tester.made[0],)
        self.test_all_params_have_gradient = tester.test_all_params_have_gradient
        self.has_attentions = tester.has_attentions
        self._is_composite = tester.is_composite
        self.is_encoder_decoder = tester.is_encoder_decoder

    def _prepare_for_class(self, inputs_dict: Inputs, model_class: type, return_labels: bool = False) -> Inputs:
        inputs = super()._prepare_for_class(inputs_dict, model_class, return_labels=False)
        return inputs | (copy.deepcopy(type(self).tester.labels) if return_labels else {})


def _rows(inputs: Inputs) -> Inputs:
    if isinstance(inputs, Tensor):
        return inputs[torch.arange(ROWS) % len(inputs)]
    return {key: _rows(value) for key, value in inputs.items()}


def _dual_encoder(factory: str, **options: Any) -> Callable[[Callable[[str], Any]], Made]:
    def make(fixture: Callable[[str], Any]) -> Made:
        model, processor = fixture(factory)(**options)
        return type(model), model.config, image_text_batch(processor)

    return make


def _clip(fixture: Callable[[str], Any]) -> Made:
    mla, processor = fixture("make_mla")()
    model = mla.unload()
    inputs = image_text_batch(processor)
    native = processor(text=["a red car"] * len(inputs["input_ids"]), language="en", return_tensors="pt")
    inputs |= {"input_ids": native["input_ids"], "attention_mask": native["attention_mask"]}
    inputs.pop("language_ids")
    return type(model), model.config, inputs


def _compressed(fixture: Callable[[str], Any]) -> Made:
    model, processor = fixture("make_smalr")()
    return type(model), model.compress().config, image_text_batch(processor)


def _rc3(model_class: type, **options: Any) -> Callable[[Callable[[str], Any]], Made]:
    def make(fixture: Callable[[str], Any]) -> Made:
        model, _ = fixture("make_rc3")(model_class, **options)
        if model_class is Rc3ForPreTraining:
            ids = visio_textual_batch()
            texts = {name: ids[name] for name in ("input_ids", "attention_mask")}
            return model_class, model.config, {"parallel": {"first": texts, "second": copy.deepcopy(texts)}}
        inputs = visio_textual_batch(images=2 if model_class is Rc3ForVisualReasoning else 1)
        # The suite masks up to two tokens at the end of a text, which must still end with a language's.
        inputs["input_ids"] = torch.tensor([[0, 10, 11, 12 + row, 6, 6, 6] for row in range(4)])
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        if model_class is Rc3Model or model.can_generate():
            inputs["decoder_input_ids"] = torch.tensor([[7, 10, 11]] * 4)
        return model_class, model.config, inputs

    return make


LOSS = {"return_loss": True}
# A batch of images trains one of MURAL's two heads; RC3's classifiers do not use the decoder.
UNUSED: dict[str, Any] = {"test_all_params_have_gradient": False}
TESTERS = {
    "TestClip": Tester(_clip, labels=LOSS),
    "TestMural": Tester(_dual_encoder("make_mural", vision_config=TINY_VIT), labels=LOSS, **UNUSED),
    "TestMuralEfficientNet": Tester(_dual_encoder("make_mural"), labels=LOSS, has_attentions=False, **UNUSED),
    "TestEtcl": Tester(_dual_encoder("make_etcl", vision_config=TINY_VIT), labels=LOSS),
    "TestMla": Tester(_dual_encoder("make_mla"), labels=LOSS, reads_languages=True),
    "TestMlaStudent": Tester(_dual_encoder("make_mla_student"), labels=LOSS),
    "TestSmalr": Tester(_dual_encoder("make_smalr"), labels=LOSS, has_attentions=False),
    "TestSmalrCompressed": Tester(_compressed, has_attentions=False, is_training=False),
    "TestLiwe": Tester(_dual_encoder("make_liwe"), labels=LOSS, has_attentions=False),
    "TestRc3Model": Tester(_rc3(Rc3Model), is_encoder_decoder=True, is_composite=False, is_training=False),
    "TestRc3ForPreTraining": Tester(_rc3(Rc3ForPreTraining), is_composite=False, has_attentions=False, **UNUSED),
}
RC3_LABELS = {
    "Rc3ForConditionalGeneration": torch.tensor([[10, 11, 2]] * ROWS),
    "Rc3ForVisualEntailment": torch.arange(ROWS) % 3,
    "Rc3ForVisualReasoning": torch.arange(ROWS) % 2,
    "Rc3ForVisualQuestionAnswering": torch.eye(7)[torch.arange(ROWS) % 7],
    "Rc3ForImageTextRetrieval": torch.tensor([2, 0]),
}
for model_class in TASK_MODELS:
    name = model_class.__name__
    options = {"num_labels": 7} if name == "Rc3ForVisualQuestionAnswering" else {}
    TESTERS[f"Test{name}"] = Tester(
        _rc3(model_class, **options),
        labels={"labels": RC3_LABELS[name]},
        is_encoder_decoder=name == "Rc3ForConditionalGeneration",
        is_composite=False,
        test_all_params_have_gradient=name == "Rc3ForConditionalGeneration",
    )

for name, tester in TESTERS.items():
    writes = name == "TestRc3ForConditionalGeneration"
    bases = (Suite, *([GenerationTesterMixin] if writes else []), unittest.TestCase)
    globals()[name] = type(name, bases, {"tester": tester, "__module__": __name__})
