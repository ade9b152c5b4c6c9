"""Runs of MLA, SMALR and RC3 that are small enough to compare one process with several."""

from pathlib import Path
from typing import Any

import numpy as np
from transformers import set_seed

from babelens import MlaTrainer, SmalrConfig, SmalrModel, SmalrProcessor, SmalrTrainer, SmalrTrainingArguments
from babelens.processing.processing_smalr import frequent_words
from babelens.processing.tokenizer_training import train_wordpiece
from tests.support.mla_training import SETTINGS, mla_trainer
from tests.support.tiny_native import tiny_clip, tiny_mla
from tests.support.tiny_rc3 import rc3_trainer
from tests.support.tiny_training import shapes_captions, shapes_corpus, shapes_processor, shapes_texts, weights

# Steps that follow the gradient, which AdamW would divide by its own size, rounding errors included.
DESCENT = {"optim": "sgd", "max_steps": 6, "weight_decay": 0.0, "lr_scheduler_type": "constant", "warmup_steps": 0}


def parallel_mla_trainer(output: Path, **changes: Any) -> MlaTrainer:
    parts = tiny_mla(tiny_clip(), train_wordpiece(shapes_texts(), 200, min_frequency=1))
    parts[0].double()
    settings = DESCENT | {"learning_rate": 0.1, "cache": output / "cache"}
    return mla_trainer(parts, output, ["text_text", "image_text"], **settings | changes)


def smalr_trainer(output: Path, *, mask: bool = False, **changes: Any) -> SmalrTrainer:
    """With all losses but masked words, whose masks are random, unless `mask`."""
    set_seed(1)
    vocabularies = {language: frequent_words(texts, language) for language, texts in sorted(shapes_captions().items())}
    config = SmalrConfig(
        languages=list(vocabularies),
        vocabulary_sizes=[len(own) for own in vocabularies.values()],
        word_size=8,
        hidden_size=16,
        image_hidden_size=16,
        specific_words=3,
        latent_tokens=4,
        image_dropout=0.0,
        exploration_probability=0.0,
        mask_weight=1e-3 if mask else 0,
        initializer_range=0.3,
        vision_config={
            "model_type": "resnet",
            "embedding_size": 8,
            "hidden_sizes": [8, 12],
            "depths": [1, 1],
            "layer_type": "basic",
        },
        image_feature_size=12,
    )
    settings = SETTINGS | DESCENT | {"learning_rate": 0.05, "max_grad_norm": 1.0}
    model = SmalrModel(config).double()
    model.vision_model.float()
    # In training mode it would divide by the statistics of its own process's images.
    norm = model.image_branch.norm.eval()
    norm.train = lambda mode=True: norm
    return SmalrTrainer(
        model,
        SmalrTrainingArguments(output_dir=str(output), **settings | changes),
        processing_class=SmalrProcessor(shapes_processor().image_processor, vocabularies),
        train_dataset={"image_text": shapes_corpus()},
        cache_dir=str(output / "cache"),
    )


TRAINERS = {"mla": parallel_mla_trainer, "smalr": smalr_trainer, "rc3": rc3_trainer}


def train(method: str, output: Path, **changes: Any) -> tuple[list[float], dict[str, np.ndarray]]:
    trainer = TRAINERS[method](output, **changes)
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry], weights(trainer.model)


def evaluate(method: str, output: Path, data: Any) -> dict[str, float]:
    metrics = TRAINERS[method](output).evaluate(data)
    return {name: value for name, value in metrics.items() if not name.endswith(("runtime", "_per_second"))}
