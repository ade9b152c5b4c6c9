"""Where the training of a language begins: a base that reads each piece as if it were translated."""

import pytest
import torch
from tiny_native import shapes_texts, tiny_bert, tiny_clip, tiny_dual_encoder

from babelens import MlaStudentModel, MlaStudentProcessor
from babelens.processing.processing_mla import MlaProcessor
from babelens.processing.tokenizer_training import train_wordpiece
from babelens.trainers.closed_starts import solve_embedding, solve_projection
from babelens.workflows.building import native_with_vocabulary

WORDS = {"red": "rot", "green": "grün", "blue": "blau", "dot": "punkt", "box": "kasten", "star": "stern"}
NATIVES = [f"{color} {thing}" for color in list(WORDS)[:3] for thing in list(WORDS)[3:]]
TEXTS = [" ".join(WORDS[word] for word in native.split()) for native in NATIVES]


@pytest.mark.parametrize("acquirer", ["mlp", "linear"])
def test_a_text_is_read_as_its_translation(acquirer):
    native, native_processor = tiny_clip(list(WORDS))
    tokenizer = train_wordpiece(TEXTS, 200, min_frequency=1)
    table = torch.randn(len(tokenizer), 24)  # wider than the tower's, whose rows it therefore holds whole
    model = native_with_vocabulary(native, tokenizer, table, native_language="en", acquirer=acquirer)
    model.add_language("de")
    processor = MlaProcessor.for_native(native.config, native_processor, tokenizer, languages=["de"])
    text, translation = "ein kasten rot", "box red"  # "ein" is in no sentence

    def embedded(text, language):
        inputs = processor(text=[text], language=language, return_tensors="pt")
        return model.get_text_features(**inputs).pooler_output

    before = embedded("kasten rot", "de")
    solve_embedding(model, processor, "de", (TEXTS, NATIVES))
    torch.testing.assert_close(embedded("kasten rot", "de"), embedded(translation, "en"), rtol=1e-4, atol=1e-4)
    assert (before - embedded(translation, "en")).abs().max() > 0.1
    assert embedded(text, "de").isfinite().all()


@torch.no_grad()
def test_a_student_begins_where_no_other_length_is_nearer(tmp_path):
    """To the native features, which its training goes towards."""
    native, native_processor = tiny_clip()
    encoder, tokenizer = tiny_bert()
    options = {"languages": ["de"], "strategy": "projection", "text_pooling": "mean", "text_dropout": 0.0}
    model = MlaStudentModel.from_towers(native, encoder, **options).eval()
    processor = MlaStudentProcessor.for_student(model.config, native_processor, tokenizer)
    texts, natives = shapes_texts()[1::3], shapes_texts()[::3]
    solve_projection(model, processor, {"de": (texts, natives)}, cache_dir=str(tmp_path))
    found, right = (
        model.get_text_features(**processor(text=side, language=tag, return_tensors="pt")).pooler_output
        for side, tag in ((texts, "de"), (natives, "en"))
    )
    assert not 0.9 < float(right.norm(dim=1).mean()) < 1.1  # a length that a direction alone would not have
    best = float((found * right).sum() / found.square().sum())  # what to multiply with for the least squares
    assert 0.8 < best < 1.3


def test_a_narrower_table_holds_what_it_can():
    native, native_processor = tiny_dual_encoder()
    tokenizer = train_wordpiece(TEXTS, 200, min_frequency=1)
    table = torch.zeros(len(tokenizer), 8)
    model = native_with_vocabulary(native, tokenizer, table, native_language="en")
    model.add_language("de")
    processor = MlaProcessor.for_native(native.config, native_processor, tokenizer, languages=["de"])
    solve_embedding(model, processor, "de", (TEXTS, NATIVES))
    found = model.embedding.mla_embedding(torch.arange(len(tokenizer)))
    right = native.text_model.get_input_embeddings().weight[native_processor.tokenizer.sep_token_id]
    projection = model.embedding.mla_embedding.projection.weight
    torch.testing.assert_close(found[tokenizer.sep_token_id], projection @ (projection.T @ right))
