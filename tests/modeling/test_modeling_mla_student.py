from functools import partial

import numpy as np
import pytest
import torch
from transformers import AutoModel

from babelens import Embedder, MlaStudentModel
from babelens.modeling.acquirer import plain_state_dict
from tests import contracts
from tests.support.mla_training import COLD, losses
from tests.support.tiny_dual_encoders import tiny_student_of, tiny_vision_text
from tests.support.tiny_native import tiny_bert, tiny_clip, tiny_siglip
from tests.support.tiny_text_encoders import text_encoder
from tests.support.tiny_training import changed, shapes_corpus, weights


class TestDistillation(contracts.ConfigContract, contracts.DualEncoderContract, contracts.PublishingContract):
    """MKD."""

    factory = "make_mla_student"
    freezable = ("projection",)
    # Graphs of students are exported in tests/inference; the native model's towers are MLA's.
    test_images_of_any_number = None

    def training_batches(self, processor):
        return {"image_text": contracts.image_text_batch(processor), "text_text": native_pairs(processor)}


def native_pairs(processor):
    native = processor.native(text=contracts.TEXTS[::-1], language="en", return_tensors="pt")
    paired = {f"paired_{name}": value for name, value in native.items()}
    return dict(processor(text=contracts.TEXTS, language=contracts.LANGUAGES, return_tensors="pt")) | paired


class TestAcquisition(contracts.PublishedModelContract):
    """CMA."""

    factory = "make_mla_student"
    options = {"strategy": "acquisition"}


class TestNativeTexts(contracts.ProcessorContract):
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
    settings = COLD | {"per_device_train_batch_size": 2 * 2 * 16, "mix_languages": True, "max_steps": 6}
    trainer = make_mla_trainer(parts=tiny_student_of(tiny_clip, tiny_bert), **settings)
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


ENGLISH, OTHERS = ["a red bar", "an old blue dot in green"], ["ein roter Balken", "un point"]


def token_ids():
    torch.manual_seed(0)
    ids, mask = torch.randint(4, 60, (3, 7)), torch.ones(3, 7, dtype=torch.long)
    mask[1, 5:] = 0
    return {"input_ids": ids, "attention_mask": mask}


def test_any_text_encoder_is_a_student(tmp_path):
    """From its folder, with acquirers behind each of its blocks, saved and loaded."""
    encoder = text_encoder("modernbert", num_hidden_layers=3)
    encoder.save_pretrained(tmp_path / "text")
    options = {"languages": ["de", "fr"], "strategy": "acquisition", "acquirer_size": 4, "text_pooling": "mean"}
    model = MlaStudentModel.from_towers(tiny_clip()[0], tmp_path / "text", **options)
    assert len(model.acquirers()) == 3
    found = plain_state_dict(model.text_model)
    assert all(torch.equal(found[name], value) for name, value in encoder.state_dict().items() if name in found)
    taught = torch.randn(3, 16)
    model.train()(**token_ids(), paired_text_features=taught, return_loss=True).loss.backward()
    assert all(parameter.grad.any() for acquirer in model.acquirers() for parameter in acquirer.parameters())
    model.eval().save_pretrained(tmp_path / "student")
    again = AutoModel.from_pretrained(tmp_path / "student")
    with torch.no_grad():
        features = [each.get_text_features(**token_ids()).pooler_output for each in (model, again)]
    assert torch.equal(*features)


def test_native_texts_keep_their_embeddings_to_the_bit():
    model, processor = tiny_student_of(partial(tiny_vision_text, "bert"), tiny_bert, native_texts="native")
    assert model.config.learned_languages == ["de", "fr"] and model.config.known_languages == ["en", "de", "fr"]
    found, plain = Embedder(model, processor), Embedder(*tiny_vision_text("bert"))
    plain.model.requires_grad_(False)  # as in the student: torch may multiply weights that are trained in another way
    settings = {"language": "en", "normalize": False}
    assert (found.encode_text(ENGLISH, **settings) == plain.encode_text(ENGLISH, **settings)).all()
    images = contracts.drawn_images(3)
    assert (found.encode_image(images) == plain.encode_image(images)).all()


def test_a_batch_of_both_is_as_each_alone():
    model, processor = tiny_student_of(tiny_siglip, tiny_bert, native_texts="native")
    reading, _ = tiny_student_of(tiny_siglip, tiny_bert)
    reading.load_state_dict(model.state_dict())
    texts, languages = [OTHERS[0], ENGLISH[0], OTHERS[1], ENGLISH[1]], ["de", "en", "fr", "en"]
    inputs = processor(text=texts, language=languages, return_tensors="pt")
    assert inputs["language_ids"].tolist() == [1, 0, 1, 0]
    alone = processor(text=ENGLISH, language="en", return_tensors="pt")
    with torch.no_grad():
        features = model(**inputs).text_features
        torch.testing.assert_close(features[[1, 3]], model.get_text_features(**alone).pooler_output)
        student = reading.get_text_features(inputs["input_ids"][::2], inputs["attention_mask"][::2])
        torch.testing.assert_close(features[::2], student.pooler_output)
