import copy
import pickle
from dataclasses import fields

import numpy as np
import pytest
from transformers import HfArgumentParser, TrainingArguments

import babelens
from babelens.evaluation.retrieval import RetrievalEvaluator
from babelens.utils.errors import InputError
from tests.support.tiny_training import shapes_corpus, shapes_trainer

ARGUMENTS = [
    babelens.MlaTrainingArguments,
    babelens.SmalrTrainingArguments,
    babelens.LiweTrainingArguments,
    babelens.Rc3TaskTrainingArguments,
    babelens.Rc3TrainingArguments,
]


@pytest.fixture
def given(tmp_path):
    plain = shapes_trainer(tmp_path)
    parts = {"model": plain.model, "args": plain.args, "processing_class": plain.processing_class}
    return parts | {"train_dataset": shapes_corpus(), "eval_dataset": shapes_corpus()}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"data_collator": list}, "data_collator"),
        ({"compute_metrics": dict}, "compute_metrics"),
        ({"args": TrainingArguments("runs")}, "ContrastiveTrainingArguments"),
        ({"processing_class": None}, "processing_class"),
    ],
)
def test_what_would_have_no_effect_is_refused_by_name(given, changes, named):
    with pytest.raises(InputError, match=named):
        babelens.MuralTrainer(**given | changes)


@pytest.mark.parametrize(
    ("kind", "option"),
    [
        (babelens.SmalrTrainingArguments, "embed_chunk_size"),
        (babelens.SmalrTrainingArguments, "towers"),
        (babelens.MlaTrainingArguments, "text_augmentation"),
    ],
)
def test_methods_do_not_have_the_options_that_they_would_not_read(tmp_path, kind, option):
    with pytest.raises(TypeError, match=option):
        kind(output_dir=str(tmp_path), **{option: None})
    (parsed,) = HfArgumentParser(kind).parse_args_into_dataclasses(["--output_dir", str(tmp_path)])
    assert getattr(parsed, option) is None


@pytest.mark.parametrize("kind", ARGUMENTS)
def test_every_option_has_its_help(kind):
    assert not [option.name for option in fields(kind) if option.init and not option.metadata.get("help")]


def test_the_arguments_of_a_user_stay_as_they_are(tmp_path):
    trainer = shapes_trainer(tmp_path, shards={"image_text": 2}, max_steps=2, save_steps=1, save_strategy="steps")
    args = copy.copy(trainer.args)
    args.ignore_data_skip, args.save_total_limit = False, 1
    before = vars(args).copy()
    parts = {"processing_class": trainer.processing_class, "train_dataset": trainer.train_dataset}
    babelens.MuralTrainer(trainer.model, args, **parts).train()
    assert vars(args) == before


def test_saved_arguments_hold_no_token(given):
    given["args"].hub_token = "hunter2"
    trainer = babelens.MuralTrainer(**given)
    assert trainer.args.hub_token == "hunter2" and b"hunter2" not in pickle.dumps(trainer.args)


def test_evaluators_replace_retrieval_and_data_may_have_names(given):
    def width(model, processor, data):
        return {"width": model.config.projection_dim, "rows": len(data)}

    given["eval_dataset"] = {"shapes": shapes_corpus()}
    found = babelens.MuralTrainer(**given, evaluator=[width, RetrievalEvaluator(languages=["de"])]).evaluate()
    assert {"eval_shapes_rows", "eval_shapes_mean_recall_de", "eval_shapes_loss"} <= found.keys()
    assert "eval_shapes_mean_recall_en" not in found


def test_the_evaluation_loss_is_that_of_one_batch(given):
    """In float64 by the definition: pairs of the same image are positives, the others negatives."""
    trainer = babelens.MuralTrainer(**given)
    metrics, corpus = trainer.evaluate(), shapes_corpus()
    embedder = babelens.Embedder(trainer.model, trainer.processing_class)
    images = embedder.encode_image(corpus["image"]).astype(np.float64)
    losses = []
    for language in ("en", "de", "fr"):
        captions = [
            caption["text"] for row in corpus["captions"] for caption in row if caption["language"] == language
        ]
        texts = embedder.encode_text(captions, language=language).astype(np.float64)
        for rows in np.arange(16).reshape(8, 2).T:  # batches of 8: every second caption
            logits = texts[rows] @ images[rows].T / trainer.model.temperature.item()
            for each in (logits, logits.T):
                losses.append(np.mean(np.log(np.exp(each).sum(1)) - np.diag(each)))
    assert metrics["eval_loss"] == pytest.approx(2 * np.mean(losses), rel=1e-5)
    with pytest.raises(InputError, match="evaluate"):
        trainer.predict(corpus)


def test_unread_languages_are_refused_before_the_training(make_mla_trainer):
    trainer = make_mla_trainer(model={"languages": ["de"]}, languages=["de"])
    trainer.args.eval_strategy = "steps"
    trainer.eval_dataset = shapes_corpus()
    with pytest.raises(InputError, match=r"fr.*eval_languages"):
        trainer.train()
    trainer.args.eval_languages = ["de", "en"]
    assert "eval_mean_recall_en" in trainer.evaluate()
