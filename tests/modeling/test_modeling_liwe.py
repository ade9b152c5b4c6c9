import pytest
import torch

from babelens import LiweConfig, LiweModel
from babelens.modeling.losses.triplet import annealed_hinge_loss
from babelens.modeling.modeling_liwe import WordEncoder
from tests.contracts import (
    BATCH,
    LANGUAGES,
    TEXTS,
    ConfigContract,
    DualEncoderContract,
    PublishingContract,
    drawn_images,
)

TINY = {
    "vocab_size": 9,
    "character_size": 3,
    "word_length": 4,
    "word_hidden_sizes": [5],
    "word_size": 6,
    "hidden_size": 8,
    "image_feature_size": 7,
    "initializer_range": 0.5,
}


class TestLiwe(ConfigContract, DualEncoderContract, PublishingContract):
    factory = "make_liwe"
    free_in_texts = BATCH  # a GRU is unrolled over the places of its texts
    freezable = ("text_model", "image_projection")
    has_tokenizer = False

    def training_batches(self, processor):
        labels = torch.arange(len(TEXTS)) // 2
        batch = dict(processor(images=drawn_images(3), text=TEXTS, language=LANGUAGES, return_tensors="pt"))
        given = {"text_labels": labels, "image_labels": labels.unique(), "language_ids": torch.arange(len(TEXTS)) % 2}
        return {"image_text": batch | given}


def test_a_word_is_a_convolution_over_its_characters():
    """The linear layer is a convolution as wide as a word."""
    torch.manual_seed(0)
    words = WordEncoder(LiweConfig(**TINY | {"word_hidden_sizes": []})).eval()
    ids = torch.tensor([[3, 4, 0, 0], [1, 2, 3, 8]])
    embedded = words.characters(ids)
    embedded[0, 2:] = 0
    weight = words.convolutions[0].weight.unflatten(1, (4, 3)).transpose(1, 2)  # [6, C * c] -> [6, c, C]
    convolved = torch.nn.functional.conv1d(embedded.transpose(1, 2), weight)[..., 0]
    norm = words.convolutions[1]
    expected = torch.nn.functional.leaky_relu(convolved / (norm.running_var + norm.eps).sqrt(), 0.1)
    torch.testing.assert_close(words(ids), expected)


def test_padding_takes_no_part_in_batch_normalisation():
    torch.manual_seed(0)
    model = LiweModel(LiweConfig(**TINY)).train()
    ids = torch.randint(1, 9, (4, 3, 4))
    padded = torch.cat([ids, torch.zeros_like(ids)], 1)
    mask = torch.ones(4, 6, dtype=torch.long)
    mask[:, 3:] = 0
    expected = model(input_ids=ids).text_embeds
    torch.testing.assert_close(model(input_ids=padded, attention_mask=mask).text_embeds, expected)
    torch.testing.assert_close(model(input_ids=padded).text_embeds, expected)  # what is padding, the characters say


@pytest.mark.parametrize("steps", [0, 10, 100])
def test_it_is_the_mean_over_languages_and_over_their_pairs(steps):
    torch.manual_seed(0)
    model = LiweModel(LiweConfig(**TINY)).eval()
    generator = torch.Generator().manual_seed(2)
    order = torch.randperm(12, generator=generator)
    inputs = {
        "input_ids": torch.randint(1, 9, (12, 2, 4), generator=generator),
        "language_ids": torch.tensor([0, 0, 1, 1]).repeat(3)[order],
        "image_features": torch.randn(3, 7, generator=generator),
        "image_labels": torch.tensor([5, 6, 7]),
        "text_labels": torch.tensor([5, 6, 7]).repeat_interleave(4)[order],
    }
    output = model(**inputs)
    images, texts = output.image_embeds, output.text_embeds
    languages, labels = inputs["language_ids"], inputs["text_labels"]
    one, other = (languages == 0).nonzero()[:, 0], (languages == 1).nonzero()[:, 0]

    def hinge(x, x_labels, y, y_labels, rate=0.991):
        hardness = 1 - rate**steps
        return annealed_hinge_loss(1 - x @ y.T, x_labels[:, None] == y_labels[None], hardness=hardness, margin=0.2)

    drawn = [hinge(images, inputs["image_labels"], texts[rows], labels[rows]) for rows in (one, other)]
    translations = hinge(texts[one], labels[one], texts[other], labels[other], rate=0.91)
    torch.testing.assert_close(model.contrastive_objective(output, step=steps), sum(drawn) / 2 + translations)
    model.config.translation_weight = 0.5
    torch.testing.assert_close(model.contrastive_objective(output, step=steps), sum(drawn) / 2 + translations / 2)
