import torch
from transformers import AutoModel

from babelens import Embedder, MlaStudentModel
from babelens.modeling.acquirer import plain_state_dict
from tests.contracts import drawn_images
from tests.support.tiny_dual_encoders import tiny_vision_text
from tests.support.tiny_native import student_processor, tiny_bert, tiny_clip, tiny_siglip
from tests.support.tiny_text_encoders import text_encoder

ENGLISH, OTHERS = ["a red bar", "an old blue dot in green"], ["ein roter Balken", "un point"]


def student_of(native, text, tokenizer, **options):
    model = MlaStudentModel.from_towers(native[0], text, languages=["de", "fr"], **options)
    return model, student_processor(model.config, native[1], tokenizer)


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
    native = tiny_vision_text("bert")
    bert, tokenizer = tiny_bert()
    model, processor = student_of(native, bert, tokenizer, native_texts="native")
    assert model.config.learned_languages == ["de", "fr"] and model.config.known_languages == ["en", "de", "fr"]
    found, plain = Embedder(model.eval(), processor), Embedder(*tiny_vision_text("bert"))
    plain.model.requires_grad_(False)  # as in the student: torch may multiply weights that are trained in another way
    settings = {"language": "en", "normalize": False}
    assert (found.encode_text(ENGLISH, **settings) == plain.encode_text(ENGLISH, **settings)).all()
    images = drawn_images(3)
    assert (found.encode_image(images) == plain.encode_image(images)).all()


def test_a_batch_of_both_is_as_each_alone():
    bert, tokenizer = tiny_bert()
    model, processor = student_of(tiny_siglip(), bert, tokenizer, native_texts="native")
    reading, _ = student_of(tiny_siglip(), bert, tokenizer)
    reading.load_state_dict(model.state_dict())
    texts, languages = [OTHERS[0], ENGLISH[0], OTHERS[1], ENGLISH[1]], ["de", "en", "fr", "en"]
    inputs = processor(text=texts, language=languages, return_tensors="pt")
    assert inputs["language_ids"].tolist() == [1, 0, 1, 0]
    alone = processor(text=ENGLISH, language="en", return_tensors="pt")
    with torch.no_grad():
        features = model.eval()(**inputs).text_features
        torch.testing.assert_close(features[[1, 3]], model.get_text_features(**alone).pooler_output)
        student = reading.eval().get_text_features(inputs["input_ids"][::2], inputs["attention_mask"][::2])
        torch.testing.assert_close(features[::2], student.pooler_output)
