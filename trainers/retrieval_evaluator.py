"""The evaluation of dual encoders during training: retrieval recall, a loss, and custom metrics."""

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
from ..utils.errors import InputError, LanguageTagError
from ..utils.languages import learned_language, normalize_languages
from .base import over_languages


class RetrievalEvaluator:
    """Measures retrieval between the images of a caption corpus and their captions in each language.

    The trainers of dual encoders use it by default. To add your own functions, pass `evaluator=[RetrievalEvaluator(),
    mine]`.

    Args:
        languages: BCP-47 tags of the captions; default: all languages of the corpus.
        batch_size: the number of texts or images to encode at a time, and of pairs in a batch for the loss.
        compute_metrics: called for each language with an `EvalPrediction`, whose `predictions` are the embeddings of
            the captions [T, d] and of all images [N, d], and whose `label_ids` [T] are the indices of the captions'
            images. Returns metrics by name.
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
            `mean_recall` in percent, and the metrics of `compute_metrics`: the mean over the languages and the value
            for each language, such as `mean_recall_de`; `mean_recall_dim_64` for each width of the model's
            `matryoshka_dims`; and `loss`, the mean over languages and batches of the contrastive loss between captions
            and their images (MURAL, section 3.1: the sum of both directions), or of SigLIP's sigmoid loss for a model
            that is trained with it. For a model without a learned temperature, the loss uses CLIP's temperature,
            1/100.

        Raises:
            InputError: if the model does not read a language.
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
        """Returns the recalls of `evaluate_retrieval`, and the inputs of `compute_metrics`, by language."""
        # Imported here, so a trainer can be imported without the evaluation.
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
            own = labels[start::batches]  # successive captions of one image go to different batches
            losses.append(compare(images[own], texts[start::batches], positives=own))
        return torch.stack(losses).mean().item()


def evaluated_languages(processor: Any, data: Any, languages: Sequence[str] | None = None) -> list[str]:
    """Returns the languages in which a model is evaluated: `languages`, or else the languages of the caption corpus
    `data`.

    Raises:
        InputError: if the processor does not read a language.
    """
    wanted = normalize_languages(list(languages or languages_of(data)))
    learned = getattr(processor, "languages", None)
    if learned is None:  # the model reads any language
        return wanted
    native = getattr(processor, "native_language", None)
    known = [*([native] if native else []), *learned]
    for tag in wanted:
        try:
            learned_language(tag, known)
        except LanguageTagError as error:
            raise InputError(f"eval_dataset: {error}; name the languages to evaluate in eval_languages") from error
    return wanted
