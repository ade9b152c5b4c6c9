"""MLA's baselines: the contracts, what each strategy trains, and both trained by MLA's trainer."""

import numpy as np
import pytest
import torch

from babelens import Embedder, MlaStudentModel, MlaStudentProcessor, MlaTrainer, MlaTrainingArguments
from tests.contracts import (
    LANGUAGES,
    TEXTS,
    ConfigContract,
    DualEncoderContract,
    ProcessorContract,
    PublishedModelContract,
    PublishingContract,
    assert_equal,
    embeddings,
    image_text_batch,
)
from tests.support.mla_training import SETTINGS
from tests.support.tiny_native import tiny_bert, tiny_clip
from tests.support.tiny_training import prepared, shapes_corpus


class StudentContract(DualEncoderContract):
    factory = "make_mla_student"
    freezable = ("projection",)
    # Graphs of students are exported in tests/inference; the native model's towers are MLA's.
    test_images_of_any_number = None

    def training_batches(self, processor):
        return {"image_text": image_text_batch(processor), "text_text": native_pairs(processor)}

    def test_attention_implementations_agree(self, model, batch):
        results = []
        for implementation in ("eager", "sdpa"):
            model.set_attn_implementation({"text_config": implementation, "base_config": implementation})
            for tower in (model.text_model, model.native_model.vision_model):
                assert tower.config._attn_implementation == implementation
            results.append(embeddings(model, batch))
        assert_equal(*results, rtol=0, atol=1e-5)


def native_pairs(processor):
    native = processor.native(text=TEXTS[::-1], language="en", return_tensors="pt")
    paired = {f"paired_{name}": value for name, value in native.items()}
    return dict(processor(text=TEXTS, language=LANGUAGES, return_tensors="pt")) | paired


class TestDistillation(StudentContract, ConfigContract, PublishingContract):
    """MKD."""


class TestAcquisition(PublishedModelContract):
    """CMA."""

    factory = "make_mla_student"
    options = {"strategy": "acquisition"}


class TestNativeTexts(ProcessorContract):
    factory = "make_mla_student"
    options = {"native_texts": "native", "text_pooling": "mean"}


@pytest.fixture(params=["distillation", "acquisition"])
def strategy(request):
    return request.param


def test_each_strategy_trains_its_parts(make_mla_student, strategy):
    model, _ = make_mla_student(strategy=strategy)
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    projection = {"projection.weight", "projection.bias"}
    if strategy == "distillation":
        assert trained == projection | {name for name, _ in model.named_parameters() if name.startswith("text_model.")}
    else:
        layer = "text_model.encoder.layer.{}.mla_acquirers.every.{}.{}"
        parts = [(block, part, kind) for block in (0, 1) for part in ("down", "up") for kind in ("weight", "bias")]
        assert trained == projection | {layer.format(*part) for part in parts}
    parts = model.parameter_parts()
    assert sum(parts.values()) == model.num_parameters()
    assert parts["acquirers"] == (2 * (2 * 16 * 8 + 16 + 8) if strategy == "acquisition" else 0)


def test_cross_modal_acquirers_follow_whole_blocks(make_mla_student):
    """y = x + W2 ReLU(W1 x + b1) + b2 after each block, then [CLS] and the projection, step by step."""
    model, processor = make_mla_student(strategy="acquisition")
    inputs = processor(text=["ein rotes Auto", "un chien"], language=["de", "fr"], return_tensors="pt")
    mask = torch.where(inputs["attention_mask"][:, None, None] == 1, 0.0, torch.finfo().min)
    with torch.no_grad():
        states = model.text_model.embeddings(inputs["input_ids"])
        for block, acquirer in zip(model.text_model.encoder.layer, model.acquirers(), strict=True):
            states = block.base_layer(states, mask)
            hidden = (states @ acquirer.down.weight.T + acquirer.down.bias).clamp(min=0)
            states = states + hidden @ acquirer.up.weight.T + acquirer.up.bias
        expected = states[:, 0] @ model.projection.weight.T + model.projection.bias
        torch.testing.assert_close(model.get_text_features(**inputs).pooler_output, expected)


def test_distillation_is_the_mean_error_of_all_sentences(tmp_path):
    """Each of an English sentence's two translations comes with the sentence itself (Zhang et al., table 7)."""
    native, native_processor = tiny_clip()
    bert, tokenizer = tiny_bert()
    torch.manual_seed(0)
    settings = SETTINGS | {"per_device_train_batch_size": 2 * 2 * 16, "mix_languages": True, "max_steps": 6}
    trainer = prepared(
        MlaTrainer(
            model=MlaStudentModel.from_towers(native, bert, languages=["de", "fr"]),
            args=MlaTrainingArguments(output_dir=str(tmp_path / "run"), **settings | {"warmup_steps": 0}),
            processing_class=MlaStudentProcessor.for_native(native.config, native_processor, tokenizer),
            train_dataset={"text_text": shapes_corpus()},
            cache_dir=str(tmp_path / "cache"),
        )
    )
    for module in trainer.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    student, native = Embedder(trainer.model, trainer.processing_class), Embedder(*tiny_clip())
    captions = [{c["language"]: c["text"] for c in row["captions"]} for row in shapes_corpus()]
    features = {"normalize": False, "language": "en"}
    taught = native.encode_text([caption["en"] for caption in captions], **features).astype(np.float64)
    errors = [
        (student.encode_text([caption[tag] for caption in captions], **features) - taught) ** 2
        for tag in ("en", "en", "de", "fr")
    ]
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    trained = {name for name, parameter in trainer.model.named_parameters() if parameter.requires_grad}
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[0] == pytest.approx(np.mean(errors), rel=1e-3) and losses[-1] < losses[0]
    assert trained == {n for n, value in trainer.model.state_dict().items() if not torch.equal(value, before[n])}
