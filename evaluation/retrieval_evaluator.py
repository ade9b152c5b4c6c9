"""The evaluation of dual encoders during training: retrieval recall and a loss."""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
import torch
from datasets import Dataset

from ..data.corpus.corpus import languages_of
from ..modeling.losses.contrastive import symmetric_contrastive_loss
from ..modeling.modeling_dual_encoder import MIN_TEMPERATURE
from ..utils.errors import InputError, LanguageTagError
from ..utils.language_matching import learned_language
from ..utils.languages import normalize_languages


class RetrievalEvaluator:
    """Measures retrieval between the images of a caption corpus and their captions in each of `languages` (BCP-47
    tags, by default all). Trainers of dual encoders use it by default; to add functions, pass
    `evaluator=[RetrievalEvaluator(), mine]`. `batch_size` is the number of texts or images to encode at a time, and of
    pairs in a batch for the loss."""

    def __init__(self, *, languages: Sequence[str] | None = None, batch_size: int = 64) -> None:
        self.languages, self.batch_size = languages, batch_size

    def __call__(self, model: Any, processor: Any, data: Dataset) -> dict[str, float]:
        """Returns `mean_recall` in percent, on average and for each language (`mean_recall_de`); `mean_recall_dim_64`
        for each width of the model's `matryoshka_dims`; and `loss`, the mean over languages and batches of the
        contrastive loss between captions and images (MURAL, section 3.1: the sum of both directions), with CLIP's
        temperature, 1/100, for a model without a learned one."""
        # Imported here, so a trainer can be imported without them.
        from ..inference.embedder import Embedder, first_dimensions
        from .ranking import embedding_ranks
        from .retrieval import evaluate_retrieval

        languages = evaluated_languages(processor, data, self.languages)
        embeddings: dict[str, tuple[np.ndarray, np.ndarray, list[list[int]]]] = {}
        embedder = Embedder(model, processor, batch_size=self.batch_size)
        recalls = evaluate_retrieval(embedder, data, languages, embeddings=embeddings)
        by_metric: dict[str, dict[str, float]] = {}
        for language, (texts, images, rows) in embeddings.items():
            for width in getattr(model.config, "matryoshka_dims", None) or ():
                cut = embedding_ranks(first_dimensions(images, width), first_dimensions(texts, width), rows)
                recalls[language][f"mean_recall_dim_{width}"] = cut.recalls()["mean_recall"]
            for name, value in recalls[language].items():
                if name.startswith("mean_recall"):
                    by_metric.setdefault(name, {})[language] = value
        learned = getattr(model, "temperature", None)
        temperature = MIN_TEMPERATURE if learned is None else max(learned.item(), MIN_TEMPERATURE)
        metrics = {"loss": fmean(self._loss(temperature, *each) for each in embeddings.values())}
        for name, of in by_metric.items():
            metrics |= over_languages(name, of)
        return metrics

    @torch.no_grad()
    def _loss(self, temperature: float, texts: np.ndarray, images: np.ndarray, rows: list[list[int]]) -> float:
        """The mean loss of captions [T, d], whose images are `rows` [T] of images [N, d]."""
        captions, pictures = torch.from_numpy(texts), torch.from_numpy(images)
        labels = torch.tensor([first for first, *_ in rows])
        batches = math.ceil(len(captions) / self.batch_size)
        losses = []
        for start in range(batches):
            own = labels[start::batches]  # successive captions of one image go to different batches
            batch = pictures[own], captions[start::batches]
            losses.append(symmetric_contrastive_loss(*batch, temperature=temperature, positives=own))
        return torch.stack(losses).mean().item()


def evaluated_languages(processor: Any, data: Any, languages: Sequence[str] | None = None) -> list[str]:
    """Returns `languages`, or else the languages of the caption corpus `data`. The processor must read them."""
    wanted = normalize_languages(list(languages or languages_of(data)))
    learned = getattr(processor, "languages", None)
    if learned is None:  # the model reads any language
        return wanted
    known = [tag for tag in (getattr(processor, "native_language", None), *learned) if tag]
    for tag in wanted:
        try:
            learned_language(tag, known)
        except LanguageTagError as error:
            raise InputError(f"eval_dataset: {error}; name the languages to evaluate in eval_languages") from error
    return wanted


def over_languages(name: str, values: Mapping[str, float]) -> dict[str, float]:
    """Returns the mean of a metric over the languages as `name`, and each language's value as `name_<language>`."""
    mean = sum(values.values()) / len(values)
    return {name: mean} | {f"{name}_{language}": value for language, value in values.items()}
