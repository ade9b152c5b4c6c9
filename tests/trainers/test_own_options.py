"""Every training argument that babelens adds is either read by a method's trainer or refused."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from babelens import EtclTrainer, LiweTrainer, MlaTrainer, MuralTrainer, Rc3Trainer, SmalrTrainer
from babelens.trainers.arguments import (
    ContrastiveTrainingArguments,
    LiweTrainingArguments,
    MlaTrainingArguments,
    SmalrTrainingArguments,
)
from babelens.trainers.precision import PrecisionTrainingArguments, methods_that_read, own_options
from babelens.trainers.rc3_arguments import (
    Rc3TaskTrainingArguments,
    Rc3TrainingArguments,
)
from babelens.trainers.rc3_tasks import Rc3TaskTrainer
from babelens.utils.errors import TrainingSetupError

CLASSES = (
    ContrastiveTrainingArguments,
    MlaTrainingArguments,
    SmalrTrainingArguments,
    LiweTrainingArguments,
    Rc3TrainingArguments,
    Rc3TaskTrainingArguments,
)
TRAINERS = (MuralTrainer, EtclTrainer, MlaTrainer, SmalrTrainer, LiweTrainer, Rc3Trainer, Rc3TaskTrainer)
# Each option with a value that is not its default.
VALUES: dict[str, Any] = {
    "precision": "float32",
    "embed_chunk_size": 2,
    "embed_chunks_kept": 2,
    "gather_negatives": False,
    "loss_tile_size": 2,
    "equal_texts_are_positives": False,
    "shuffle_buffer_size": 2,
    "task_weights": {"image_text": 0.5},
    "task_batch_sizes": {"image_text": 2},
    "task_learning_rates": {"image_text": 0.5},
    "learning_rate_mapping": {"weight": 0.5},
    "towers": {"image": {"train": "none"}},
    "languages": ["en"],
    "eval_languages": ["en"],
    "image_augmentation": {"rotation": 10},
    "text_augmentation": {"subword_dropout": 0.5},
    "trainable": "all",
    "text_text_objective": "mse",
    "image_text_objective": "mse",
    "mix_languages": True,
    "train_temperature": True,
    "cache_frozen_features": False,
    "sentences_per_image": 1,
    "languages_per_batch": 2,
    "data_set_batch_sizes": {"weak": 2},
    "parallel_captions": True,
    "strict_visual": "patches",
    "weak_visual": "patches",
    "augmented_regions": 1,
    "eval_batches": 2,
    "max_text_length": 8,
    "generation": {"num_beams": 2},
}
REFUSED = {
    "embed_chunk_size": {"SMALR", "LIWE"},
    "embed_chunks_kept": {"SMALR", "LIWE"},
    "loss_tile_size": {"SMALR", "LIWE"},
    "equal_texts_are_positives": {"SMALR", "LIWE"},
    "shuffle_buffer_size": {"MLA", "SMALR", "LIWE"},
    "text_augmentation": {"MLA", "SMALR", "LIWE"},
    "towers": {"SMALR", "LIWE"},
}


def make(kind: type, tmp_path: Any, option: str) -> Any:
    needed = {"augmented_regions": {"image_augmentation": {}}, "train_temperature": {"trainable": "all"}}
    if "SMALR" not in kind.methods and "LIWE" not in kind.methods:
        needed["embed_chunks_kept"] = {"embed_chunk_size": 2}
    with_it = needed.get(option, {}) if option in own_options(kind) else {}
    return kind(output_dir=str(tmp_path), **{"precision": "float32"} | with_it | {option: VALUES[option]})


def test_every_own_option_is_known_here() -> None:
    assert set().union(*map(own_options, CLASSES)) == VALUES.keys()


@pytest.mark.parametrize("option", VALUES)
@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.methods[0])
def test_an_option_is_read_or_refused(kind: type, option: str, tmp_path: Any) -> None:
    if option not in own_options(kind):
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{option}'"):
            make(kind, tmp_path, option)
    elif not REFUSED.get(option, set()) & set(kind.methods):
        assert getattr(make(kind, tmp_path, option), option) == VALUES[option]
    else:
        readers = ", ".join(methods_that_read(option, PrecisionTrainingArguments))
        expected = f"{option} is not an option of {' or '.join(kind.methods)}: .*It is read by {re.escape(readers)}$"
        with pytest.raises(TrainingSetupError, match=expected):
            make(kind, tmp_path, option)


def test_the_methods_that_read_an_option_are_named(tmp_path: Any) -> None:
    with pytest.raises(TrainingSetupError) as caught:
        LiweTrainingArguments(output_dir=str(tmp_path), loss_tile_size=64)
    assert str(caught.value) == (
        "loss_tile_size is not an option of LIWE: its loss is not tiled. It is read by MURAL, ETCL, MLA"
    )


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.methods[0])
def test_the_default_of_an_unread_option_is_accepted(kind: type, tmp_path: Any) -> None:
    defaults = {option: own_options(kind)[option] for option in kind.unread}
    kind(output_dir=str(tmp_path), precision="float32", **defaults)


@pytest.mark.parametrize("trainer", TRAINERS, ids=lambda trainer: trainer.__name__)
def test_the_code_of_a_trainer_reads_what_its_arguments_declare(trainer: type) -> None:
    kind = trainer.arguments_class
    modules = {base.__module__ for base in (*trainer.__mro__, *kind.__mro__)}
    source = "".join(
        Path(sys.modules[name].__file__).read_text("utf-8") for name in modules if name.startswith("babelens")
    )
    for option in own_options(kind).keys() - kind.unread.keys():
        assert re.search(rf'\b(args|self)\.{option}\b|"{option}"', source), option
