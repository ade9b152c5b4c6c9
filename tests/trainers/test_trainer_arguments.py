"""What trainers take from transformers' `Trainer`: what they honor, and what they refuse by name."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
from transformers import HfArgumentParser, TrainingArguments, integrations, trainer as transformers_trainer
from transformers.trainer_utils import BestRun, HPSearchBackend, default_hp_space_optuna

from babelens import ContrastiveTrainingArguments, MlaTrainingArguments, MuralTrainer, SmalrTrainingArguments
from babelens.trainers.retrieval_evaluator import RetrievalEvaluator
from babelens.utils.errors import InputError
from tests.support.mla_training import clip_mla, make_mla_trainer  # noqa: F401
from tests.support.tiny_training import assert_same, shapes_corpus, shapes_trainer, weights

SEARCH = {"save_strategy": "steps", "save_steps": 2, "eval_strategy": "steps", "eval_steps": 2, "max_steps": 4}


@pytest.fixture
def given(tmp_path):
    """The arguments of a trainer."""
    plain = shapes_trainer(tmp_path)
    parts = {"model": plain.model, "args": plain.args, "processing_class": plain.processing_class}
    return parts | {"train_dataset": shapes_corpus(), "eval_dataset": shapes_corpus()}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"data_collator": list}, "data_collator"),
        ({"compute_loss_func": sum}, "compute_loss_func"),
        ({"compute_metrics": dict, "evaluator": dict}, "compute_metrics"),
        ({"args": TrainingArguments("runs")}, "ContrastiveTrainingArguments"),
        ({"processing_class": None}, "processing_class"),
    ],
)
def test_what_would_have_no_effect_is_refused_by_name(given, changes, named):
    with pytest.raises(InputError, match=named):
        MuralTrainer(**given | changes)


@pytest.mark.parametrize(
    ("kind", "option"),
    [
        (SmalrTrainingArguments, "embed_chunk_size"),
        (SmalrTrainingArguments, "towers"),
        (MlaTrainingArguments, "text_augmentation"),
    ],
)
def test_methods_do_not_have_the_options_that_they_would_not_read(tmp_path, kind, option):
    with pytest.raises(TypeError, match=option):
        kind(output_dir=str(tmp_path), **{option: None})
    (parsed,) = HfArgumentParser(kind).parse_args_into_dataclasses(["--output_dir", str(tmp_path)])
    assert getattr(parsed, option) is None


def test_the_arguments_of_a_user_stay_as_they_are(tmp_path):
    trainer = shapes_trainer(tmp_path, shards={"image_text": 2}, max_steps=2, save_steps=1, save_strategy="steps")
    args = copy.copy(trainer.args)
    args.ignore_data_skip, args.save_total_limit = False, 1
    before = vars(args).copy()
    parts = {"processing_class": trainer.processing_class, "train_dataset": trainer.train_dataset}
    MuralTrainer(trainer.model, args, **parts).train()
    assert vars(args) == before


def test_metrics_are_computed_from_embeddings_in_each_language(given):
    seen = []

    def first_image_similarity(prediction):
        texts, images = prediction.predictions
        seen.append((texts.shape, images.shape, prediction.label_ids.tolist()))
        return {"cosine": float((texts * images[prediction.label_ids]).sum(1).mean())}

    metrics = MuralTrainer(**given, compute_metrics=first_image_similarity).evaluate()
    assert seen == [((16, 32), (16, 32), list(range(16)))] * 3
    by_language = [metrics[f"eval_cosine_{tag}"] for tag in ("en", "de", "fr")]
    assert metrics["eval_cosine"] == pytest.approx(np.mean(by_language))
    assert "eval_mean_recall_fr" in metrics


def test_evaluators_replace_retrieval_and_data_may_have_names(given):
    def width(model, processor, data):
        return {"width": model.config.projection_dim, "rows": len(data)}

    given["eval_dataset"] = {"shapes": shapes_corpus()}
    found = MuralTrainer(**given, evaluator=[width, RetrievalEvaluator(languages=["de"])]).evaluate()
    assert {"eval_shapes_rows", "eval_shapes_mean_recall_de", "eval_shapes_loss"} <= found.keys()
    assert "eval_shapes_mean_recall_en" not in found


def test_the_evaluation_loss_is_that_of_one_batch(given):
    """In float64 by the definition: pairs of the same image are positives, the others negatives."""
    trainer = MuralTrainer(**given)
    predicted = trainer.predict(shapes_corpus())
    assert [side.shape for side in predicted.predictions] == [(48, 32), (16, 32)]
    assert predicted.label_ids.tolist() == [*range(16)] * 3
    texts, images = (side.astype(np.float64) for side in predicted.predictions)
    losses = []
    for start in range(0, 48, 16):
        own = predicted.label_ids[start : start + 16]
        for rows in np.arange(16).reshape(8, 2).T:  # batches of 8: every second caption
            logits = texts[start + rows] @ images[own[rows]].T / trainer.model.temperature.item()
            for each in (logits, logits.T):
                losses.append(np.mean(np.log(np.exp(each).sum(1)) - np.diag(each)))
    assert predicted.metrics["test_loss"] == pytest.approx(2 * np.mean(losses), rel=1e-5)
    assert predicted.metrics["test_mean_recall"] == trainer.evaluate()["eval_mean_recall"]


@pytest.mark.parametrize("metric", [None, "loss"])
def test_the_best_model_is_found_by_recall_by_default(tmp_path, metric):
    chosen = {"metric_for_best_model": metric} if metric else {}
    trainer = shapes_trainer(tmp_path, load_best_model_at_end=True, **SEARCH, **chosen)
    trainer.train()
    name = f"eval_{metric or 'mean_recall'}"
    found = [entry[name] for entry in trainer.state.log_history if name in entry]
    assert trainer.state.best_metric == (min(found) if metric == "loss" else max(found))


def test_unread_languages_are_refused_before_the_training(make_mla_trainer):  # noqa: F811
    trainer = make_mla_trainer(model={"languages": ["de"]}, languages=["de"])
    trainer.args.eval_strategy = "steps"
    trainer.eval_dataset = shapes_corpus()
    with pytest.raises(InputError, match=r"fr.*eval_languages"):
        trainer.train()
    trainer.args.eval_languages = ["de", "en"]
    assert "eval_mean_recall_en" in trainer.evaluate()


# ---- A new model for each training ----


class TwoRates:
    """A search that tries two learning rates, as the backends of transformers do."""

    default_hp_space = staticmethod(default_hp_space_optuna)
    trained: list

    def ensure_available(self):
        return

    def run(self, trainer, n_trials, direction, **kwargs):
        objectives = []
        for number in range(n_trials):
            trainer.objective = None
            trainer.train(trial=SimpleNamespace(number=number, params={}))
            objectives.append(trainer.compute_objective(trainer.evaluate()))
            self.trained.append(weights(trainer.model))
        best = int(np.argmax(objectives))
        return BestRun(str(best), objectives[best], {})


def test_a_search_trains_each_trial_as_a_run_of_its_own(tmp_path, monkeypatch):
    """Frozen features and the views of the data are made anew for each model."""
    rates, half = [1e-3, 1e-2], {"image": {"train": "none"}, "text": {"train": "upper", "layers": 1}}
    plain = shapes_trainer(tmp_path, max_steps=2, towers=half)
    start = {name: value.clone() for name, value in plain.model.state_dict().items()}

    def fresh():
        model = shapes_trainer(tmp_path).model
        model.load_state_dict(start)
        return model

    parts = {"processing_class": plain.processing_class, "eval_dataset": shapes_corpus()}
    parts |= {"train_dataset": shapes_corpus(), "cache_dir": str(tmp_path / "cache")}
    expected = []
    for rate in rates:
        args = copy.copy(plain.args)
        args.learning_rate = rate
        alone = MuralTrainer(fresh(), args, **parts)
        alone.train()
        expected.append(weights(alone.model))
    TwoRates.trained = []
    # It knows the trials of its own backends alone.
    monkeypatch.setattr(integrations, "hp_params", lambda trial: trial.params)
    monkeypatch.setitem(transformers_trainer.ALL_HYPERPARAMETER_SEARCH_BACKENDS, HPSearchBackend.OPTUNA, TwoRates)
    search = MuralTrainer(args=plain.args, model_init=fresh, **parts)
    best = search.hyperparameter_search(
        lambda trial: {"learning_rate": rates[trial.number]}, n_trials=2, direction="maximize", backend="optuna"
    )
    assert isinstance(best, BestRun) and isinstance(plain.args, ContrastiveTrainingArguments)
    for found, wanted in zip(TwoRates.trained, expected, strict=True):
        assert_same(found, wanted)
