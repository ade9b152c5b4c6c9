"""Texts of which a word-level model knows nothing, or masking leaves nothing: all is finite, and learned with."""

import numpy as np
import torch

from babelens import Embedder, SmalrConfig, SmalrModel
from babelens.configuration.configuration_smalr import PADDING_ID, SPECIAL_IDS, UNKNOWN_ID
from babelens.modeling.modeling_smalr_latent import SmalrLatentModel

TINY = {
    "languages": ["en", "de"],
    "vocabulary_sizes": [6, 5],
    "word_size": 3,
    "specific_words": 4,
    "latent_tokens": 5,
    "hidden_size": 8,
    "image_feature_size": 7,
    "image_hidden_size": 9,
    "initializer_range": 0.3,
}
LABELS = torch.tensor([0, 0, 1, 1])
LANGUAGE_IDS = torch.tensor([0, 1, 0, 1])


def test_words_that_no_language_has_seen_are_one_word(make_smalr):
    model, processor = make_smalr()
    for each in (model, model.compress()):
        embedder = Embedder(each, processor)
        never = embedder.encode_text(["xyzzy", "plugh", "", "?!"], language=["en", "de", "fr", "en"])
        np.testing.assert_array_equal(never, np.broadcast_to(never[:1], never.shape))
        np.testing.assert_allclose(np.linalg.norm(never, axis=1), 1, rtol=1e-6)
        one, two = embedder.encode_text(["a xyzzy car", "a car"], language="en")
        assert np.abs(one - two).max() > 1e-3  # it is read, and not left out


def test_the_latent_vocabulary_beside_unknown_words():
    torch.manual_seed(0)
    model = SmalrLatentModel(SmalrConfig(**TINY)).train()
    model.vectors[SPECIAL_IDS:].normal_()
    ids = torch.tensor([[3, 4], [UNKNOWN_ID, UNKNOWN_ID], [5, UNKNOWN_ID], [6, PADDING_ID]])
    output = model(ids, (ids != PADDING_ID).long(), LANGUAGE_IDS)
    assert not output.text_embeds[1].any() and output.text_embeds[[0, 2, 3]].any(1).all()
    model.contrastive_objective(output, positives=LABELS).backward()
    assert model.attention.latent.grad.any()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_sentences_that_masking_leaves_empty_are_learned_with():
    torch.manual_seed(0)
    model = SmalrModel(SmalrConfig(**TINY | {"mask_probability": 0.999999})).train()
    ids = torch.tensor([[3, 4], [3, PADDING_ID], [5, UNKNOWN_ID], [6, 4]])
    output = model(
        input_ids=ids,
        attention_mask=(ids != PADDING_ID).long(),
        language_ids=LANGUAGE_IDS,
        image_features=torch.randn(2, 7),
        image_labels=torch.tensor([0, 1]),
        text_labels=LABELS,
        return_loss=True,
    )
    assert not output.masked_sentence_embeds.any()
    output.loss.backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert output.loss.isfinite() and all(gradient.isfinite().all() for gradient in gradients)
    assert model.alignment.fill_sentence.weight.grad.isfinite().all()
