"""Training on images with texts in several languages: its batches, and LIWE's own trainer."""

import numpy as np
import pytest
import torch
from transformers import set_seed

from babelens import (
    LiweConfig,
    LiweModel,
    LiweProcessor,
    LiweTrainer,
    LiweTrainingArguments,
    SmalrConfig,
    SmalrModel,
    SmalrProcessor,
    SmalrTrainer,
    SmalrTrainingArguments,
)
from babelens.data.batching.collators import CaptionedImages, SentenceCollator
from babelens.processing.processing_liwe import frequent_characters
from babelens.processing.processing_smalr import frequent_words
from tests.support.tiny_training import QUIET, prepared, shapes_captions, shapes_corpus, shapes_processor

QUICK = QUIET | {"per_device_train_batch_size": 8, "max_steps": 12}


@pytest.fixture(scope="module")
def corpus():
    return shapes_corpus()


@pytest.fixture
def processor():
    return LiweProcessor(shapes_processor().image_processor, frequent_characters(shapes_captions()), word_length=8)


def test_languages_of_a_batch_are_drawn_with_its_seeds(corpus, processor):
    view = CaptionedImages(corpus, ["fr", "en", "de"], with_images=False)
    everything, some = (SentenceCollator(processor, lambda *_: None, 1, count) for count in (3, 2))
    examples = view.__getitems__([0, 1])
    assert everything(examples, [1, 2])["language_ids"].tolist() == [0, 1, 2] * 2
    drawn = [some(examples, [seed, 0])["language_ids"].tolist() for seed in range(20)]
    assert {tuple(ids) for ids in drawn} == {(0, 1) * 2, (0, 2) * 2, (1, 2) * 2}
    assert drawn == [some(examples, [seed, 5])["language_ids"].tolist() for seed in range(20)]
    texts = [
        caption for example in examples for caption in (example["captions"]["fr"][0], example["captions"]["de"][0])
    ]
    seed = next(seed for seed in range(20) if drawn[seed] == [0, 2, 0, 2])
    encoded = processor(text=texts, language=["fr", "de"] * 2, return_tensors="pt")
    assert torch.equal(some(examples, [seed, 0])["input_ids"], encoded["input_ids"])


def test_sentences_in_the_same_order_are_translations(processor):
    """Five captions in two languages translate each other; a third language has three."""
    words = {"en": "thing", "de": "ding", "fr": "chose"}
    captions = {tag: [f"{word}{n}" for n in range(3 if tag == "fr" else 5)] for tag, word in words.items()}
    read: dict[str, list[str]] = {tag: [] for tag in words}

    class Recorder:
        def __call__(self, text, language, return_tensors):
            for each, tag in zip(text, language, strict=True):
                read[tag].append(each[-1])
            return {}

    collator = SentenceCollator(Recorder(), lambda *_: None, 2)
    for seed in range(30):
        collator([{"image_id": "1", "captions": captions}], [seed])
    assert read["en"] == read["de"] and set(read["en"]) == set("01234")
    assert read["fr"] != read["en"] and set(read["fr"]) == set("012")


@pytest.fixture
def smalr_trainer(corpus, tmp_path):
    set_seed(1)
    vocabularies = {language: frequent_words(texts, language) for language, texts in sorted(shapes_captions().items())}
    processor = SmalrProcessor(shapes_processor().image_processor, vocabularies)
    sizes = [len(own) for own in vocabularies.values()]
    tiny = {"word_size": 8, "hidden_size": 16, "image_hidden_size": 16, "image_feature_size": 12}
    mule = {"specific_words": None, "latent_tokens": 0, "mask_weight": 0, "initializer_range": 0.3}
    config = SmalrConfig(languages=list(vocabularies), vocabulary_sizes=sizes, **tiny, **mule)
    arguments = SmalrTrainingArguments(output_dir=str(tmp_path), learning_rate=1e-2, **QUICK)
    return prepared(
        SmalrTrainer(SmalrModel(config), arguments, processing_class=processor, train_dataset={"text_text": corpus})
    )


def test_the_warm_up_trains_the_projections_of_words_alone(smalr_trainer):
    model = smalr_trainer.model
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    smalr_trainer.train()
    changed = {name for name, weight in model.named_parameters() if not torch.equal(weight, before[name])}
    projections = {name for name in before if name.startswith("word_embedding.projections.")}
    assert changed == {name for name in projections if name.endswith("weight")} | (changed & projections)
    assert model.word_embedding.specific.requires_grad  # they are trained afterwards
    losses = [entry["loss"] for entry in smalr_trainer.state.log_history if "loss" in entry]
    assert losses[-1] < losses[0]
    assert smalr_trainer.optimizer.param_groups[0]["lr"] == 1e-2


@pytest.fixture
def liwe_trainer(corpus, processor, tmp_path):
    set_seed(1)
    tiny = {"character_size": 8, "word_length": 8, "word_hidden_sizes": [32], "word_size": 32, "hidden_size": 32}
    features = {f"{row}": np.random.default_rng(row).normal(size=12).astype("float32") for row in range(16)}
    model = LiweModel(LiweConfig(vocab_size=processor.vocab_size, image_feature_size=12, **tiny))

    class View(CaptionedImages):
        def __getitems__(self, indices):
            examples = super().__getitems__(indices)
            return [e | {"image_features": features[str(i)]} for e, i in zip(examples, indices, strict=True)]

    arguments = LiweTrainingArguments(output_dir=str(tmp_path), **QUICK)
    data = {"image_text": View(corpus, with_images=False)}
    return prepared(LiweTrainer(model, arguments, processing_class=processor, train_dataset=data))


def test_liwe_learns_with_adamax_step_by_step(liwe_trainer):
    seen, objective = [], liwe_trainer.model.contrastive_objective

    def annealed(output, *, step, **options):
        seen.append(step)
        return objective(output, step=step, **options)

    liwe_trainer.model.contrastive_objective = annealed
    liwe_trainer.train()
    assert type(liwe_trainer.optimizer.optimizer) is torch.optim.Adamax
    assert liwe_trainer.optimizer.param_groups[0]["lr"] == 1e-3
    assert seen == list(range(12))
    losses = [entry["loss"] for entry in liwe_trainer.state.log_history if "loss" in entry]
    assert losses[-1] < losses[0]
