"""A small pre-training of RC3, as a module and as a program that a test can start, kill and start again."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from transformers import set_seed

from babelens import Rc3Config, Rc3ForPreTraining, Rc3Processor, Rc3Trainer, Rc3TrainingArguments
from babelens.data.corpus.loading import load_captions
from babelens.processing.processing_rc3 import square_image_processor
from babelens.processing.tokenizer_training import train_bpe
from tests.support.tiny_layers import encoder_decoder
from tests.support.tiny_training import COLORS, QUIET, DieAt, prepared, shapes_corpus, weights

LANGUAGES = ["de", "en", "fr"]
REGION_SIZE = 5
SIZES = encoder_decoder(max_position_embeddings=64, image_size=36, patch_size=12, patch_width=8, history=5)


def weak_corpus() -> Dataset:
    """The shapes with different captions in English and in German: a shape, and a colour."""
    rows = []
    for row in shapes_corpus():
        color, shape = row["image_id"].split("-")
        captions = [{"language": "en", "text": f"some {shape}"}, {"language": "de", "text": COLORS[color][0]}]
        rows.append({"image": row["image"], "image_id": row["image_id"], "captions": captions})
    return load_captions(Dataset.from_list(rows), check_images=False)


def shapes_regions() -> dict[str, np.ndarray]:
    ids = shapes_corpus()["image_id"]
    rng = np.random.default_rng(0)
    return {image_id: rng.standard_normal((2, REGION_SIZE), dtype=np.float32) for image_id in ids}


def rc3_processor() -> Rc3Processor:
    texts = [
        caption["text"] for corpus in (shapes_corpus(), weak_corpus()) for row in corpus["captions"] for caption in row
    ]
    tokenizer = train_bpe(texts, 420, min_frequency=1)
    return Rc3Processor.new(tokenizer, LANGUAGES, square_image_processor(36), region_size=REGION_SIZE, max_regions=4)


def rc3_data() -> dict[str, Dataset]:
    return {"strict": shapes_corpus(), "weak": weak_corpus(), "parallel": shapes_corpus().remove_columns("image")}


def rc3_trainer(
    output: str | Path,
    *,
    model: dict[str, Any] | None = None,
    data: dict[str, Any] | None = None,
    regions: Any = None,
    cache_dir: str | None = None,
    **changes: Any,
) -> Rc3Trainer:
    batches = {"per_device_train_batch_size": 8, "per_device_eval_batch_size": 8}
    settings = QUIET | batches | {"max_steps": 12, "learning_rate": 3e-3}
    arguments = Rc3TrainingArguments(output_dir=str(output), **settings | changes)
    set_seed(arguments.seed)
    processor = rc3_processor()
    return prepared(
        Rc3Trainer(
            model=Rc3ForPreTraining(Rc3Config(**SIZES | processor.config_fields() | (model or {}))),
            args=arguments,
            processing_class=processor,
            train_dataset=data or rc3_data(),
            eval_dataset=shapes_corpus(),
            regions=regions or shapes_regions(),
            cache_dir=cache_dir,
        )
    )


def train(output: Path, *, die_at: int | None = None, resume: bool = False, **changes: Any) -> dict[str, np.ndarray]:
    torch.use_deterministic_algorithms(True)
    trainer = rc3_trainer(output, **changes)
    if die_at:
        trainer.add_callback(DieAt(die_at))
    trainer.train(resume_from_checkpoint=resume or None)
    return weights(trainer.model)
