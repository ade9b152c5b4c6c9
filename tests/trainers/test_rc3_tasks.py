import math

import numpy as np
import pytest
import torch
from transformers import ResNetConfig, ResNetModel, set_seed

from babelens import (
    Rc3ForConditionalGeneration,
    Rc3ForImageTextRetrieval,
    Rc3ForVisualEntailment,
    Rc3ForVisualQuestionAnswering,
    Rc3ForVisualReasoning,
    Rc3Model,
    Rc3Processor,
)
from babelens.data import image_text_pairs, triplets
from babelens.data.batching import rc3
from babelens.data.batching.mixture import TaskData
from babelens.evaluation.tasks import label_accuracy, translation_quality
from babelens.inference.backbones import RegionExtractor
from babelens.trainers.arguments import Rc3TaskTrainingArguments
from babelens.trainers.rc3_tasks import RC3_TASKS, Rc3TaskTrainer, task_of
from babelens.utils.errors import CorpusError, InputError
from tests.contracts import assert_equal
from tests.support import tiny_rc3_tasks as tiny
from tests.support.tiny_training import COLORS, prepared, shapes_corpus

TRUTH = {"id2label": {0: "false", 1: "true"}}
CORPUS = shapes_corpus()
QUESTIONS = tiny.colour_rows(answers=list(COLORS))
REGIONS = tiny.regions_of(CORPUS)


@pytest.fixture
def rc3_processor() -> Rc3Processor:
    """A new one for every test: training changes the length of its texts."""
    return tiny.tiny_processor()


@pytest.fixture
def inputs(rc3_processor) -> rc3.TaskInputs:
    return rc3.TaskInputs(rc3_processor, tiny.tiny_config(rc3_processor), REGIONS)


def trainer(model, processor, output, data, *, evaluated=None, regions=None, **changes) -> Rc3TaskTrainer:
    arguments = Rc3TaskTrainingArguments(str(output), **tiny.SETTINGS | changes)
    return prepared(
        Rc3TaskTrainer(
            model, arguments, processing_class=processor, train_dataset=data, eval_dataset=evaluated, regions=regions
        )
    )


def made(model_class, processor, **config):
    set_seed(0)
    return model_class(tiny.tiny_config(processor, **config))


def test_rows_become_texts_with_images_and_labels(inputs):
    rows = rc3.LabelledExamples(tiny.colour_rows(), ["de"]).__getitems__([0, 1])
    assert [(row["language"], row["label"]) for row in rows] == [("de", "true"), ("de", "false")]
    batch = rc3.LabelCollator(inputs, ["true", "false"])(rows, [0, 0])  # numbers are the model's, not the data's
    assert batch.pop("labels").tolist() == [0, 1]
    expected = inputs.processor(
        text=[row["text"] for row in rows],
        language="de",
        images=[row["image"] for row in rows],
        regions=[REGIONS[row["image_id"]] for row in rows],
        return_tensors="pt",
    )
    assert_equal(batch, dict(expected))


def test_a_caption_has_four_candidates_of_its_own_language(inputs):
    view = image_text_pairs(CORPUS, ["en", "de"])
    ids = list(CORPUS["image_id"])
    like = rc3.most_similar(rc3.image_vectors(None, ids, REGIONS), ids, count=1)
    collate = rc3.CandidateCollator(inputs, view, like)
    examples = RC3_TASKS["image-text-retrieval"].examples(TaskData(CORPUS, ["en", "de"])).__getitems__([0, 3])
    batch = collate(examples, [1, 2])
    assert batch["labels"].tolist() == [0, 0] and len(batch["input_ids"]) == 2 * rc3.CANDIDATES
    texts = inputs.processor.batch_decode(batch["input_ids"])
    captions = [caption["text"] for caption in CORPUS[int(like[0, 0])]["captions"] if caption["language"] == "en"]
    assert texts[0] == texts[2] == examples[0]["text"] and texts[3] in captions
    assert len({texts[0], texts[1]}) == 2
    pixels = batch["pixel_values"]
    assert all(torch.equal(pixels[0], pixels[row]) for row in (1, 3)) and not torch.equal(pixels[0], pixels[2])
    languages = [row["language"] for row in examples for _ in range(rc3.CANDIDATES)]
    ends = [int(ids[mask.bool()][-1]) for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True)]
    assert ends == [inputs.processor.language_token_id(language) for language in languages]
    assert_equal(collate(examples, [1, 2]), batch)
    assert not torch.equal(collate(examples, [1, 4])["input_ids"][4:], batch["input_ids"][4:])


@pytest.mark.parametrize(
    ("model_class", "data", "config", "steps"),
    [
        pytest.param(Rc3ForVisualEntailment, TaskData(tiny.colour_rows(), ["en"]), TRUTH, 100, marks=pytest.mark.slow),
        pytest.param(Rc3ForVisualReasoning, TaskData(tiny.pair_rows(), ["en"]), {}, 160, marks=pytest.mark.slow),
        pytest.param(Rc3ForImageTextRetrieval, TaskData(CORPUS, ["en"]), {}, 100, marks=pytest.mark.slow),
        (Rc3ForVisualQuestionAnswering, TaskData(QUESTIONS, ["en"]), {"id2label": dict(enumerate(COLORS))}, 40),
        (Rc3ForConditionalGeneration, TaskData(CORPUS, None, [("en", "de")]), {}, 40),
    ],
)
def test_each_task_is_learned_from_its_english_data(model_class, data, config, steps, rc3_processor, tmp_path):
    model = made(model_class, rc3_processor, visual="regions", encoder_layers=2, **config)
    run = trainer(model, rc3_processor, tmp_path, data, regions=REGIONS, max_steps=steps)
    examples = run.mixture.tasks[run.task.name].__getitems__(list(range(len(run.mixture))))
    assert {example.get("language", example.get("language_a")) for example in examples} == {"en"}
    run.train()
    losses = [entry["loss"] for entry in run.state.log_history if "loss" in entry]
    assert losses[-1] < losses[0] / 2, losses


def test_regions_are_of_augmented_images_only_in_training(rc3_processor, tmp_path):
    torch.manual_seed(0)
    config = ResNetConfig(embedding_size=8, hidden_sizes=[tiny.REGION_SIZE], depths=[1], layer_type="basic")
    extractor = RegionExtractor(ResNetModel(config), rc3_processor.image_processor, grid=2)
    model = made(Rc3ForVisualEntailment, rc3_processor, visual="regions", **TRUTH)
    settings = {"regions": extractor, "image_augmentation": {"horizontal_flip": 0.0, "color_jitter": 0.5}}
    run = trainer(model, rc3_processor, tmp_path, TaskData(tiny.colour_rows(), ["en"]), **settings)
    examples = rc3.LabelledExamples(tiny.colour_rows()).__getitems__([0, 1])
    collate = run.mixture.collators[run.task.name]
    plain, one, again, other = (
        collate.inputs(examples, seeds)["region_features"] for seeds in (None, [1, 2], [1, 2], [3, 2])
    )
    expected = np.stack(list(extractor([example["image"] for example in examples])))
    np.testing.assert_array_equal(plain.numpy(), expected)
    assert torch.equal(one, again) and torch.equal(one[1], other[1]) and not torch.equal(one[0], other[0])
    assert not torch.allclose(one, plain)


def test_evaluations_are_by_language_and_their_mean(rc3_processor, tmp_path):
    model = made(Rc3ForVisualEntailment, rc3_processor, visual="patches", **TRUTH)
    run = trainer(model, rc3_processor, tmp_path, None, evaluated=tiny.colour_rows())
    metrics = run.evaluate()
    by_language = label_accuracy(model, rc3_processor, rc3.LabelledExamples(tiny.colour_rows()))
    assert list(by_language) == tiny.LANGUAGES and all(numbers["n"] == 32 for numbers in by_language.values())
    assert {
        f"eval_accuracy_{tag}": numbers["accuracy"] for tag, numbers in by_language.items()
    }.items() <= metrics.items()
    assert math.isclose(metrics["eval_accuracy"], np.mean([numbers["accuracy"] for numbers in by_language.values()]))
    assert "eval_test_accuracy_de" in run.evaluate({"test": TaskData(tiny.colour_rows(), ["de"])})


def test_settings_of_generation_are_kept_with_the_model(rc3_processor, tmp_path):
    model = made(Rc3ForConditionalGeneration, rc3_processor, visual="patches")
    kept = {"num_beams": 3, "max_new_tokens": 5}
    run = trainer(
        model, rc3_processor, tmp_path, TaskData(CORPUS, None, [("en", "de")]), max_text_length=6, generation=kept
    )
    assert run.mixture[{"translation": ([0], [0])}]["translation"]["input_ids"].shape == (1, 6)
    model.save_pretrained(tmp_path / "model")
    loaded = Rc3ForConditionalGeneration.from_pretrained(tmp_path / "model")
    assert (loaded.generation_config.num_beams, loaded.generation_config.max_new_tokens) == (3, 5)


def test_accuracy_counts_what_is_right_and_no_label_as_wrong(rc3_processor):
    rows = tiny.colour_rows(["en"])
    model = made(Rc3ForVisualEntailment, rc3_processor, visual="patches", **TRUTH)
    with torch.no_grad():
        model.classifier.weight.zero_()
        model.classifier.bias.copy_(torch.tensor([0.0, 1.0]))  # always true
    assert label_accuracy(model, rc3_processor, rc3.LabelledExamples(rows))["en"] == {"accuracy": 50.0, "n": 32}
    labels = [None if place < 8 else label for place, label in enumerate(rows["label"])]
    unlabelled = rows.remove_columns("label").add_column("label", labels).cast_column("label", rows.features["label"])
    assert (
        label_accuracy(model, rc3_processor, rc3.LabelledExamples(unlabelled), batch_size=5)["en"]["accuracy"] == 37.5
    )


def test_translations_are_those_of_generate(rc3_processor):
    metrics = pytest.importorskip("sacrebleu").metrics
    model = made(Rc3ForConditionalGeneration, rc3_processor, visual="patches").eval()
    view = triplets(CORPUS, [("en", "de"), ("en", "fr")])
    results = translation_quality(model, rc3_processor, view, batch_size=5)
    said, right = [], []
    for row in (row for row in view if row["language_b"] == "fr"):
        batch = rc3_processor(text=row["text_a"], language="en", images=row["image"], return_tensors="pt")
        said += rc3_processor.batch_decode(model.generate(**batch, language="fr", max_new_tokens=32))
        right.append(row["text_b"])
    assert list(results) == ["en-de", "en-fr"] and results["en-fr"]["n"] == 16
    assert results["en-fr"]["chrf"] == metrics.CHRF().corpus_score(said, [right]).score
    assert results["en-fr"]["bleu"] == metrics.BLEU().corpus_score(said, [right]).score


def test_an_answer_outside_of_the_vocabulary_is_refused(rc3_processor, tmp_path):
    model = made(Rc3ForVisualQuestionAnswering, rc3_processor, id2label={0: "green", 1: "blue"})
    with pytest.raises(CorpusError, match="'red' is none of the model's 2 answers"):
        trainer(model, rc3_processor, tmp_path, QUESTIONS)
    with pytest.raises(CorpusError, match="row 0: 'red'"):
        label_accuracy(model, rc3_processor, rc3.LabelledExamples(QUESTIONS))


def test_a_model_of_two_images_is_given_two(rc3_processor, tmp_path):
    two = made(Rc3ForVisualReasoning, rc3_processor, visual="patches")
    with pytest.raises(InputError, match=r"reads left_image, right_image"):
        trainer(two, rc3_processor, tmp_path, tiny.colour_rows())
    one = made(Rc3ForVisualEntailment, rc3_processor, visual="patches", **TRUTH)
    with pytest.raises(InputError, match=r"reads image with.*have left_image"):
        trainer(one, rc3_processor, tmp_path, tiny.pair_rows())


def test_data_without_labels_or_tasks_are_refused(rc3_processor, tmp_path):
    with pytest.raises(CorpusError, match="text, language and a ClassLabel label"):
        rc3.LabelledExamples(tiny.colour_rows().remove_columns("label"))
    with pytest.raises(TypeError, match="Rc3Model"):
        task_of(Rc3Model(tiny.tiny_config(rc3_processor)))
