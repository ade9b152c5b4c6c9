"""The evaluation of dual encoders during their training: retrieval recall, a loss, and metrics of the user's own."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor
from transformers import EvalPrediction

from ..data.corpus.corpus import languages_of
from ..modeling.losses.contrastive import sigmoid_loss, symmetric_contrastive_loss
from ..modeling.modeling_dual_encoder import MIN_TEMPERATURE
from ..utils.errors import TrainingSetupError, UnknownLanguageError
from ..utils.languages import learned_language, normalize_languages
from .base import over_languages


class RetrievalEvaluator:
    """Measures retrieval between the images of a caption corpus and their captions in each language.

    A trainer of dual encoders evaluates with it by default; with functions of your own, give
    `evaluator=[RetrievalEvaluator(), mine]`.

    Args:
        languages: BCP-47 tags of the captions; default: all languages of the corpus.
        batch_size: texts or images that are encoded at a time, and pairs in a batch of the loss.
        compute_metrics: called for each language with an `EvalPrediction`, whose `predictions` are the embeddings of
            the captions [T, d] and of all images [N, d], and whose `label_ids` [T] are the index of the image of each
            caption. Returns metrics by name.
    """

    def __init__(
        self,
        *,
        languages: Sequence[str] | None = None,
        batch_size: int = 64,
        compute_metrics: Callable[[EvalPrediction], Mapping[str, float]] | None = None,
    ) -> None:
        self.languages, self.batch_size, self.compute_metrics = languages, batch_size, compute_metrics

    def __call__(self, model: Any, processor: Any, data: Dataset) -> dict[str, float]:
        """Evaluates a model on a caption corpus.

        Returns:
            `mean_recall` in percent, and what `compute_metrics` returns: each the mean over the languages, followed by
            the value of each language, such as `mean_recall_de`; `mean_recall_dim_64` for each width of the model's
            `matryoshka_dims`; and `loss`, the mean over languages and batches of the contrastive loss between captions
            and their images (MURAL, section 3.1: the sum of both directions), or of SigLIP's sigmoid for a model that
            is trained with it. A model that learns no temperature is compared with CLIP's, 1/100.

        Raises:
            TrainingSetupError: for a language that the model does not read.
        """
        return self.metrics(model, *self.embed(model, processor, data))

    def metrics(
        self, model: Any, recalls: Mapping[str, Mapping[str, float]], predictions: Mapping[str, EvalPrediction]
    ) -> dict[str, float]:
        learned = getattr(model, "temperature", None)
        temperature = MIN_TEMPERATURE if learned is None else max(learned.item(), MIN_TEMPERATURE)
        by_metric: dict[str, dict[str, float]] = {}
        for language, prediction in predictions.items():
            values = {name: value for name, value in recalls[language].items() if name.startswith("mean_recall")}
            if self.compute_metrics is not None:
                values |= self.compute_metrics(prediction)
            for name, value in values.items():
                by_metric.setdefault(name, {})[language] = value
        compare: Callable[..., Tensor] = symmetric_contrastive_loss
        if getattr(model.config, "image_text_loss", "") == "sigmoid":
            compare = partial(sigmoid_loss, bias=float(model.logit_bias))
        losses = [
            self._loss(prediction, partial(compare, temperature=temperature)) for prediction in predictions.values()
        ]
        metrics = {"loss": fmean(losses)}
        for name, of in by_metric.items():
            metrics |= over_languages(name, of)
        return metrics

    def embed(
        self, model: Any, processor: Any, data: Dataset
    ) -> tuple[dict[str, dict[str, float]], dict[str, EvalPrediction]]:
        """The recalls of `evaluate_retrieval`, and the embeddings as `compute_metrics` takes them, by language."""
        # Imported here, so that a trainer can be read and imported without what evaluates its model.
        from ..evaluation.ranking import embedding_ranks
        from ..evaluation.retrieval import evaluate_retrieval
        from ..inference.embedder import Embedder
        from ..inference.similarity import first_dimensions

        languages = evaluated_languages(processor, data, self.languages)
        embeddings: dict[str, tuple[np.ndarray, np.ndarray, list[list[int]]]] = {}
        embedder = Embedder(model, processor, batch_size=self.batch_size)
        recalls = evaluate_retrieval(embedder, data, languages, embeddings=embeddings)
        for language, (texts, images, rows) in embeddings.items():
            for width in getattr(model.config, "matryoshka_dims", None) or ():
                cut = embedding_ranks(first_dimensions(images, width), first_dimensions(texts, width), rows)
                recalls[language][f"mean_recall_dim_{width}"] = cut.recalls()["mean_recall"]
        return recalls, {
            language: EvalPrediction(predictions=(texts, images), label_ids=np.array([first for first, *_ in rows]))
            for language, (texts, images, rows) in embeddings.items()
        }

    @torch.no_grad()
    def _loss(self, prediction: EvalPrediction, compare: Callable[..., Tensor]) -> float:
        texts, images = (torch.from_numpy(side) for side in prediction.predictions)
        labels = torch.from_numpy(prediction.label_ids)
        batches = math.ceil(len(texts) / self.batch_size)
        losses = []
        for start in range(batches):
            own = labels[start::batches]  # captions of one image follow each other: each goes to another batch
            losses.append(compare(images[own], texts[start::batches], positives=own))
        return torch.stack(losses).mean().item()


def evaluated_languages(processor: Any, data: Any, languages: Sequence[str] | None = None) -> list[str]:
    """The languages in which a model is evaluated: those of `languages`, or else of the caption corpus `data`.

    Raises:
        TrainingSetupError: for a language that the processor does not read.
    """
    wanted = normalize_languages(list(languages or languages_of(data)))
    learned = getattr(processor, "languages", None)
    if learned is None:  # it reads any language
        return wanted
    native = getattr(processor, "native_language", None)
    known = [*([native] if native else []), *learned]
    for tag in wanted:
        try:
            learned_language(tag, known)
        except UnknownLanguageError as error:
            raise TrainingSetupError(
                f"eval_dataset: {error}; name the languages to evaluate in eval_languages"
            ) from error
    return wanted
