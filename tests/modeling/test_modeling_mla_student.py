import numpy as np
import pytest
import torch

from babelens import Embedder, MlaStudentModel, MlaStudentProcessor
from tests.contracts import (
    LANGUAGES,
    TEXTS,
    ConfigContract,
    DualEncoderContract,
    ProcessorContract,
    PublishedModelContract,
    PublishingContract,
    image_text_batch,
)
from tests.support.mla_training import COLD, losses
from tests.support.tiny_native import tiny_bert, tiny_clip
from tests.support.tiny_training import changed, shapes_corpus, weights


class TestDistillation(ConfigContract, DualEncoderContract, PublishingContract):
    """MKD."""

    factory = "make_mla_student"
    freezable = ("projection",)
    # Graphs of students are exported in tests/inference; the native model's towers are MLA's.
    test_images_of_any_number = None

    def training_batches(self, processor):
        return {"image_text": image_text_batch(processor), "text_text": native_pairs(processor)}


def native_pairs(processor):
    native = processor.native(text=TEXTS[::-1], language="en", return_tensors="pt")
    paired = {f"paired_{name}": value for name, value in native.items()}
    return dict(processor(text=TEXTS, language=LANGUAGES, return_tensors="pt")) | paired


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
    assert parts.get("acquirers", 0) == (2 * (2 * 16 * 8 + 16 + 8) if strategy == "acquisition" else 0)


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


def test_distillation_is_the_mean_error_of_all_sentences(make_mla_trainer):
    """Each of an English sentence's two translations comes with the sentence itself (Zhang et al., table 7)."""
    native, native_processor = tiny_clip()
    bert, tokenizer = tiny_bert()
    torch.manual_seed(0)
    student = MlaStudentModel.from_towers(native, bert, languages=["de", "fr"])
    parts = student, MlaStudentProcessor.for_native(native.config, native_processor, tokenizer)
    settings = COLD | {"per_device_train_batch_size": 2 * 2 * 16, "mix_languages": True, "max_steps": 6}
    trainer = make_mla_trainer(parts=parts, **settings)
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
    before = weights(trainer.model)
    trained = {name for name, parameter in trainer.model.named_parameters() if parameter.requires_grad}
    trainer.train()
    assert losses(trainer)[0] == pytest.approx(np.mean(errors), rel=1e-3) and losses(trainer)[-1] < losses(trainer)[0]
    assert trained == changed(before, weights(trainer.model))
