"""RC3's heads with new weights, as folders for transformers' pipelines, and the pipelines' outputs for images with
texts. The source of `in_rc3_pipelines` is also run where babelens is missing."""

from pathlib import Path
from typing import Any

import torch
from PIL import Image
from transformers import pipeline

from babelens import Rc3ForConditionalGeneration, Rc3ForImageTextRetrieval, Rc3ForVisualQuestionAnswering
from tests.contracts import CAPTIONS
from tests.support.tiny_cross_encoder import tiny_cross_encoder

HEADS = {
    "answers": Rc3ForVisualQuestionAnswering,
    "translation": Rc3ForConditionalGeneration,
    "retrieval": Rc3ForImageTextRetrieval,
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
