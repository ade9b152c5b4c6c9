"""transformers' pipelines on a dual encoder's folder. The source also runs where babelens is missing."""

from typing import Any

import torch
from PIL import Image
from torch import Tensor
from transformers import pipeline


def in_pipelines(
    folder: str, images: list[Image.Image], texts: list[str], languages: list[str], **loading: Any
) -> dict[str, Tensor]:
    """Scores of the texts as labels of the first image, and embeddings in two sizes of batches, by each head."""
    classify = pipeline("zero-shot-image-classification", model=folder, **loading)
    ranking = classify(images[0], candidate_labels=texts, language=languages)
    scores = {entry["label"]: entry["score"] for entry in ranking}
    embed = pipeline("feature-extraction", model=folder, **loading)
    embed_images = pipeline("image-feature-extraction", model=folder, **loading)
    return {
        "classified": torch.tensor([scores[text] for text in texts]),
        "embedded": torch.tensor(embed(texts, language=languages, batch_size=4))[:, 0],
        "embedded_images": torch.tensor(embed_images(images, batch_size=4))[:, 0],
    } | {
        f"embedded_{task}": torch.tensor(embed(texts, language=languages, task=task, batch_size=4))[:, 0]
        for task in getattr(embed.model.config, "tasks", [])
    }
