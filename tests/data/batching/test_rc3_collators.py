import numpy as np
import pytest
import torch

from babelens.data.batching.rc3 import TranslationCollator, TripletCollator, partners
from babelens.data.batching.views import translation_pairs, triplets
from babelens.utils.errors import InputError
from tests.support.tiny_rc3 import rc3_processor, shapes_regions
from tests.support.tiny_training import shapes_corpus

SEEDS = list(range(100, 116))


@pytest.fixture(scope="module")
def processor():
    return rc3_processor()


def examples(view, count=16):
    return view.__getitems__(np.random.default_rng(0).permutation(len(view))[:count].tolist())


@pytest.fixture(scope="module")
def strict():
    regions = shapes_regions()
    view = triplets(shapes_corpus(), [("de", "en")])
    return [example | {"regions": regions[example["image_id"]]} for example in examples(view)]


def texts(processor, inputs):
    return [processor.decode(ids) for ids in inputs["input_ids"]]


def test_partners_are_a_permutation_that_shows_something_else():
    ids = [f"image {number % 4}" for number in range(6)] + ["most"] * 5
    partner = partners(ids, np.random.default_rng(0))
    assert sorted(partner) == list(range(len(ids)))
    assert all(ids[place] != ids[other] for place, other in enumerate(partner))
    with pytest.raises(InputError, match="7 of the 13 images of a batch show 'most'"):
        partners([*ids, "most", "most"], np.random.default_rng(0))


def test_strict_batch(processor, strict):
    batch = TripletCollator(processor, 0.5)(strict, SEEDS)
    images_and_texts = {"pixel_values", "region_features", "region_mask", "first", "second"}
    assert batch.keys() == images_and_texts | {"partner", "masked", "decoder"}
    first, second = texts(processor, batch["first"]), texts(processor, batch["second"])
    turned = first[0] != strict[0]["text_a"]
    for row, example in enumerate(strict):
        sides = [(example["text_a"], example["language_a"]), (example["text_b"], example["language_b"])]
        if turned:
            sides.reverse()
        for side, found, (text, language) in zip(("first", "second"), (first, second), sides, strict=True):
            assert found[row] == text
            last = batch[side]["input_ids"][row, batch[side]["attention_mask"][row].sum() - 1]
            assert last == processor.language_token_id(language)
        assert batch["decoder"]["decoder_input_ids"][row, 0] == processor.language_token_id(sides[1][1])
        said = batch["decoder"]["labels"][row]
        assert processor.decode(said[said != -100]) == sides[1][0]
        assert np.array_equal(batch["region_features"][row], example["regions"])
    images = processor(images=[example["image"] for example in strict], return_tensors="pt")
    assert torch.equal(batch["pixel_values"], images["pixel_values"])


def test_masked_words_are_those_of_the_first_text(processor, strict):
    batch = TripletCollator(processor, 0.5)(strict, SEEDS)
    masked, labels, first = batch["masked"]["input_ids"], batch["masked"]["labels"], batch["first"]["input_ids"]
    is_masked = labels != -100
    assert is_masked.any(1).sum() > 8
    assert torch.equal(first[is_masked], labels[is_masked])
    assert (masked[is_masked] == processor.tokenizer.mask_token_id).all()
    assert torch.equal(masked[~is_masked], first[~is_masked])


def test_an_example_is_drawn_by_its_own_seed(processor, strict):
    whole, part = (TripletCollator(processor, 0.5)(strict[:count], SEEDS[:count]) for count in (16, 5))
    again = TripletCollator(processor, 0.5)(strict, SEEDS)
    other = TripletCollator(processor, 0.5)(strict, [seed + 1 for seed in SEEDS])
    for row in range(5):
        assert texts(processor, part["first"])[row] == texts(processor, whole["first"])[row]
        length = part["masked"]["input_ids"].shape[1]
        assert torch.equal(part["masked"]["labels"][row], whole["masked"]["labels"][row, :length])
    torch.testing.assert_close(again, whole, rtol=0, atol=0)
    assert not torch.equal(other["partner"], whole["partner"])
    assert not torch.equal(other["masked"]["labels"], whole["masked"]["labels"])


def languages_of(processor, inputs):
    lengths = inputs["attention_mask"].sum(1)
    return set(inputs["input_ids"][torch.arange(len(lengths)), lengths - 1].tolist())


def test_a_batch_has_one_language_on_each_side(processor, strict):
    given = [dict(example) for example in strict]
    for example in given[::2]:  # pairs with the other language first
        for name in ("text", "language"):
            example[f"{name}_a"], example[f"{name}_b"] = example[f"{name}_b"], example[f"{name}_a"]
    found = set()
    for seed in range(8):
        collate = (TripletCollator(processor, 0.5), TranslationCollator(processor))[seed % 2]
        batch = collate(given, list(range(seed, seed + len(given))))
        (first,), (second,) = (languages_of(processor, batch[side]) for side in ("first", "second"))
        found.add((first, second))
    de, en = (processor.language_token_id(language) for language in ("de", "en"))
    assert found == {(de, en), (en, de)}


def test_parallel_batch_says_what_is_alike(processor):
    given = examples(translation_pairs(shapes_corpus(), [("de", "en")]), 12)
    given += [{key: value for key, value in example.items() if key != "image_id"} for example in given[:2]]
    batch = TranslationCollator(processor)(given, SEEDS[:14])
    assert batch.keys() == {"first", "second", "identities"}
    labels = batch["identities"]
    alike = (labels[:, None, :, None] == labels[None, :, None, :]).any(0).any(0)
    for a, one in enumerate(given):
        for b, other in enumerate(given):
            shared = {one["text_a"], one["text_b"]} & {other["text_a"], other["text_b"]}
            same_image = "image_id" in one and one["image_id"] == other.get("image_id")
            assert alike[a, b] == (bool(shared) or same_image)
    assert alike.sum() > 14
