import pytest
import torch

from babelens import CrossLingualConsistency, CrossLingualConsistencyConfig, SmalrConfig, SmalrModel, load_preset
from babelens.configuration.configuration_smalr import SMALR_LANGUAGES, SPECIAL_IDS
from babelens.modeling.losses.smalr import masked_reconstruction_loss, sentence_grid
from babelens.modeling.losses.triplet import (
    multimodal_triplet_loss,
    pairwise_distances,
    same_label,
    top_violation_triplet_loss,
)
from babelens.modeling.modeling_smalr import LatentVocabulary, SmalrLatentModel
from tests import contracts

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


class TestSmalr(contracts.ConfigContract, contracts.DualEncoderContract, contracts.PublishingContract):
    factory = "make_smalr"
    free_in_texts = contracts.BATCH  # a GRU is unrolled over the places of its texts
    freezable = ("text_model", "image_branch")
    has_tokenizer = False

    def training_batches(self, processor):
        labels = torch.arange(len(contracts.TEXTS)) // 2
        images = processor(images=contracts.drawn_images(len(contracts.TEXTS) // 2), return_tensors="pt")
        texts = processor(
            text=["a red unicorn", *contracts.TEXTS[1:]], language=contracts.LANGUAGES, return_tensors="pt"
        )
        return {"image_text": dict(texts) | dict(images) | {"text_labels": labels, "image_labels": labels.unique()}}


@pytest.fixture(scope="session")
def make_latent_smalr():
    return lambda: (SmalrLatentModel(SmalrConfig(**TINY)), None)


class TestLatentSmalr(contracts.LoadingContract):
    factory = "make_latent_smalr"


def test_each_language_is_read_by_an_encoder_of_its_own(make_smalr):
    model, processor = make_smalr(language_branches=True, specific_words=None, latent_tokens=0)
    inputs = processor(text=contracts.TEXTS, language=contracts.LANGUAGES, return_tensors="pt")
    together = model.eval()(**inputs).text_embeds
    for row, (text, language) in enumerate(zip(contracts.TEXTS, contracts.LANGUAGES, strict=True)):
        alone = model(**processor(text=[text], language=language, return_tensors="pt")).text_embeds[0]
        torch.testing.assert_close(together[row], alone)
    with torch.no_grad():
        model.text_model[0].projection.bias += 1
    moved = (model(**inputs).text_embeds - together).abs().amax(1) > 0
    assert torch.equal(moved, inputs["language_ids"] == 0)


def test_hard_attention_takes_the_best_token():
    torch.manual_seed(0)
    attention = LatentVocabulary(SmalrConfig(**TINY)).eval()
    torch.nn.init.normal_(attention.latent)
    vectors, weight = torch.randn(4, 3), torch.randn(4, 8)
    scores = attention.score(vectors)
    best = scores.argmax(1)
    embeds = attention(vectors)
    assert torch.equal(embeds, attention.latent[best])
    (embeds * weight).sum().backward()
    # by hand: the token's own gradient, and d p / d score = p (1[j = best] - p_j) times what the token is worth
    probabilities = scores.softmax(1).detach()
    worth = (attention.latent[best] * weight).sum(1).detach()
    chosen = torch.nn.functional.one_hot(best, 5)
    p = (probabilities * chosen).sum(1, keepdim=True)
    expected = worth[:, None] * p * (chosen - probabilities)  # [4, 5]
    torch.testing.assert_close(attention.score.bias.grad, expected.sum(0))
    torch.testing.assert_close(attention.score.weight.grad, expected.T @ vectors)
    torch.testing.assert_close(attention.latent.grad, chosen.float().T @ weight)


def tiny(**settings) -> SmalrModel:
    torch.manual_seed(0)
    return SmalrModel(SmalrConfig(**TINY | settings))


def latent_model() -> SmalrLatentModel:
    torch.manual_seed(1)
    model = SmalrLatentModel(SmalrConfig(**TINY))
    model.vectors[SPECIAL_IDS:].normal_()
    return model


def test_words_without_a_token_are_assigned():
    latent = latent_model()
    assigned = latent.assignment()
    shared = torch.cat([assigned[4:6], assigned[10:11]])  # the rare words of both languages
    model = SmalrModel.from_latent(latent)
    assert model.config.latent_tokens == len(shared.unique())
    ids, languages = torch.tensor([[7, 8], [7, 0]]), torch.tensor([0, 1])
    words = model.get_text_features(ids, language_ids=languages, output_hidden_states=True).hidden_states[0]
    assert torch.equal(words[0], latent.attention.latent[shared[:2]])
    assert torch.equal(words[1, 0], latent.attention.latent[shared[2]])
    assert torch.equal(model.word_embedding.specific[4:], latent.vectors[SPECIAL_IDS:][6:10])


def test_sentences_of_an_image_are_pulled_together():
    latent = latent_model().eval()
    ids, languages = torch.tensor([[3, 4], [3, 5], [6, 7], [4, 0]]), torch.tensor([0, 1, 0, 1])
    output = latent(ids, (ids > 0).long(), languages)
    words = latent.attention(latent.vectors[SPECIAL_IDS:])
    expected = torch.stack([words[[0, 1]].mean(0), words[[6, 8]].mean(0), words[[3, 4]].mean(0), words[7]])
    torch.testing.assert_close(output.text_embeds, torch.nn.functional.normalize(expected, dim=-1))
    same = latent.contrastive_objective(output, positives=torch.zeros(1, 4, dtype=torch.long))
    assert same.item() == 0  # no negatives
    assert latent.contrastive_objective(output, positives=torch.tensor([[0, 0, 1, 1]])).isfinite()


def training_batch():
    torch.manual_seed(2)
    images, labels = torch.randn(3, 7), torch.tensor([5, 6, 7])
    ids = torch.randint(3, 8, (12, 4))
    languages = torch.tensor([0, 0, 1, 1]).repeat(3)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "language_ids": languages}
    return inputs | {"image_features": images, "image_labels": labels, "text_labels": labels.repeat_interleave(4)}


def test_without_other_terms_it_is_the_mean_over_languages():
    model = tiny(mask_weight=0, adversarial_weight=0, neighborhood_weight=0, image_dropout=0.0)
    inputs = training_batch()
    output = model(**inputs)
    expected = []
    for language in (0, 1):
        mine = inputs["language_ids"] == language
        distances = pairwise_distances(output.image_embeds, output.text_embeds[mine])
        expected.append(
            multimodal_triplet_loss(distances, same_label(inputs["image_labels"], inputs["text_labels"][mine]))
        )
    torch.testing.assert_close(model.contrastive_objective(output), torch.stack(expected).mean())


def test_masked_sentences_use_all_pairs_of_languages():
    model = tiny().train()
    inputs = training_batch()
    keep = torch.arange(12) != 5  # the second sentence of the second image in the first language
    inputs |= {name: inputs[name][keep] for name in ("input_ids", "attention_mask", "language_ids", "text_labels")}
    output = model(**inputs)
    pairs = torch.tensor([[0, 2], [1, 3], [4, 5], [7, 9], [8, 10]]).T
    expected = torch.zeros(())
    for fill, masked, whole in (
        (model.alignment.fill_sentence, output.masked_sentence_embeds, output.sentence_embeds),
        (model.alignment.fill_text, output.masked_text_embeds, output.text_embeds),
    ):
        filled = fill(torch.cat([masked[pairs[0]], masked[pairs[1]]], -1)).chunk(2, -1)
        expected = expected + masked_reconstruction_loss(masked[pairs], torch.stack(filled), whole[pairs])
    found = model._mask_loss(output, sentence_grid(inputs["text_labels"], inputs["language_ids"]))
    torch.testing.assert_close(found, expected)


MULE = {"specific_words": None, "latent_tokens": 0, "mask_weight": 0}


def test_the_warm_up_brings_words_of_two_languages_together():
    model, inputs = tiny(**MULE), training_batch()
    labels, languages = inputs["text_labels"], inputs["language_ids"]
    output = model(**{name: inputs[name] for name in ("input_ids", "attention_mask", "language_ids")})
    loss = model.contrastive_objective(output, positives=labels[None])
    distances = pairwise_distances(output.sentence_embeds, output.sentence_embeds)
    expected = []
    for one, other in ((0, 1), (1, 0)):
        mine, theirs = languages == one, languages == other
        expected.append(
            top_violation_triplet_loss(
                distances[mine][:, theirs], same_label(labels[mine], labels[theirs]), furthest_positive=True
            )
        )
    torch.testing.assert_close(loss, torch.stack(expected).mean())
    loss.backward()
    assert all(layer.weight.grad.any() for layer in model.word_embedding.projections)
    assert model.text_model[0].gru.weight_hh_l0.grad is None
    with pytest.raises(ValueError, match="12 sentences came with 3 labels"):
        model.contrastive_objective(output, positives=labels[:3])


def test_word_vectors_are_drawn_to_the_initial_ones(tmp_path):
    model, inputs = tiny(**MULE, vector_weight=0.5), training_batch()
    model.load_word_vectors(torch.randn(11, 3))
    embedding = model.word_embedding
    assert embedding.drift() == 0
    with torch.no_grad():
        embedding.specific += torch.randn(11, 3)
    moved = (embedding.specific - embedding.initial_specific).detach()
    output = model(**inputs)
    loss = model.contrastive_objective(output)
    model.config.vector_weight = 0
    by_language = [part.square().sum() / 2 for part in moved.split([6, 5])]
    expected = model.contrastive_objective(output) + 0.5 * torch.stack(by_language).mean()
    torch.testing.assert_close(loss, expected)
    model.config.vector_weight = 0.5
    model.save_pretrained(tmp_path)
    assert torch.equal(
        SmalrModel.from_pretrained(tmp_path).word_embedding.initial_specific, embedding.initial_specific
    )
    assert not hasattr(tiny(**MULE).word_embedding, "initial_specific")
    assert torch.equal(model.compress().eval()(**inputs).text_embeds, model.eval()(**inputs).text_embeds)


def test_the_compressed_model_embeds_the_same(make_smalr, tmp_path):
    model, processor = make_smalr()
    small = model.compress()
    batch = contracts.image_text_batch(processor)
    with torch.no_grad():
        found, expected = small(**batch), model(**batch)
    assert torch.equal(found.text_embeds, expected.text_embeds)
    assert torch.equal(found.image_embeds, expected.image_embeds)
    with pytest.raises(ValueError, match="a compressed model cannot be trained"):
        small(**batch, return_loss=True)
    small.save_pretrained(tmp_path)
    again = SmalrModel.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        assert torch.equal(again(**batch).text_embeds, expected.text_embeds)
    assert set(small.parameter_parts()) == {"image", "transformer", "backbone", "embeddings"}


# The paper (section 5) gives the words of English alone, 25,126. Those of ten languages together follow from another
# of its numbers: words make up 93 % of MULE. 15,000 latent tokens are taken to be in use after the first stage.
VOCABULARIES = [25_126, *[31_500] * 9]


def counts(**settings):
    with torch.device("meta"):
        model = SmalrModel(load_preset("smalr-base", vocabulary_sizes=VOCABULARIES, **settings))
    parts = model.parameter_parts()
    fills = [model.alignment.fill_sentence, model.alignment.fill_text]  # which learn nothing without masked words
    unused = sum(p.numel() for layer in fills for p in layer.parameters()) if not model.config.mask_weight else 0
    return model.num_parameters() - unused, parts["transformer"] + parts["image"]


def test_ten_languages_in_twenty_million_parameters():
    trained, needed = counts(latent_tokens=15_000)
    consistency = CrossLingualConsistency(CrossLingualConsistencyConfig(languages=SMALR_LANGUAGES))
    assert trained < 20e6
    assert needed + consistency.num_parameters() == pytest.approx(7.1e6, rel=0.1)
    mule, mule_needed = counts(specific_words=None, latent_tokens=0, mask_weight=0.0, word_size=300)
    assert mule > 5 * trained
    assert 1 - mule_needed / mule == pytest.approx(0.93, abs=0.005)


def test_exploration_takes_one_of_the_best_now_and_then():
    torch.manual_seed(0)
    attention = LatentVocabulary(SmalrConfig(**TINY | {"exploration_probability": 0.5, "exploration_tokens": 2}))
    scores = torch.tensor([[5.0, 4.0, 0.0, 0.0, 0.0]]).expand(4000, -1)
    shares = attention._choose(scores).bincount(minlength=5) / 4000
    torch.testing.assert_close(shares, torch.tensor([0.75, 0.25, 0, 0, 0]), atol=0.03, rtol=0)
    assert attention.eval()._choose(scores).unique().tolist() == [0]
