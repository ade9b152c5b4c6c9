"""An untrained cross-encoder of RC3 with its processor; folders of heads, and the outputs of transformers' pipelines.
The source of `in_rc3_pipelines` is also run where babelens is missing."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from transformers import pipeline

import babelens
from babelens.processing.processing_rc3 import square_image_processor
from babelens.processing.tokenizer_training import train_bpe
from tests.contracts import CAPTIONS
from tests.support.tiny_layers import encoder_decoder


def tiny_cross_encoder(
    texts: Iterable[str], languages: list[str], *, visual: str = "patches", region_size: int = 6
) -> tuple[babelens.Rc3ForImageTextRetrieval, babelens.Rc3Processor]:
    """The same at every call; its initial weights are wide, so scores depend on the inputs."""
    tokenizer, regions = train_bpe(texts, 400, min_frequency=1), {"region_size": region_size, "max_regions": 5}
    processor = babelens.Rc3Processor.new(tokenizer, languages, square_image_processor(16), **regions)
    sizes = encoder_decoder(patch_width=16, image_size=16, patch_size=8, max_position_embeddings=128)
    torch.manual_seed(0)
    config = babelens.Rc3Config(**sizes, init_std=0.5, visual=visual, **processor.config_fields())
    return babelens.Rc3ForImageTextRetrieval(config).eval(), processor


HEADS = {
    "answers": babelens.Rc3ForVisualQuestionAnswering,
    "translation": babelens.Rc3ForConditionalGeneration,
    "retrieval": babelens.Rc3ForImageTextRetrieval,
}
ANSWERS = ["red", "blue", "two", "yes", "no"]


def save_heads(root: Path) -> None:
    encoder, processor = tiny_cross_encoder(CAPTIONS.values(), list(CAPTIONS), visual="both")
    for name, head in HEADS.items():
        torch.manual_seed(0)
        config = type(encoder.config).from_dict(encoder.config.to_dict())
        if name == "answers":
            config.id2label = dict(enumerate(ANSWERS))
        head(config).eval().save_pretrained(root / name)
        processor.save_pretrained(root / name)


def in_rc3_pipelines(root: str, images: list[Image.Image], texts: list[str], **loading: Any) -> dict[str, Any]:
    answer = pipeline("visual-question-answering", model=f"{root}/answers", **loading)
    translate = pipeline("image-text-to-text", model=f"{root}/translation", **loading)
    retrieve = pipeline("image-text-retrieval", model=f"{root}/retrieval", **loading)
    translating = {"language": "de", "target_language": "fr", "max_new_tokens": 6}
    return {
        "answers": answer(images, texts, language="de", top_k=5, batch_size=2),
        "translations": translate(images, texts, **translating, batch_size=2),
        "ranks": retrieve(texts[0], images=images, language="de"),
    }
