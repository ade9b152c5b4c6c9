"""What a model says on the data of a task, language by language (Zhou et al. 2023, RC3, section 3.3 and appendix B):

label_accuracy          entailment, reasoning and questions: how often the best label is the right one
matching_recall         retrieval: recall at 1, 5 and 10 among all captions and all images, both ways
translation_quality     translation: BLEU and chrF by sacrebleu
"""

from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel, ProcessorMixin

from ..configuration.errors import MissingExtraError
from ..data.batching.task_inputs import LabelledExamples, Regions, TaskInputs, check_answer, regions_of, sources
from ..data.batching.views import CorpusView, Images, retrieval_set
from ..inference.cross_encoder import CrossEncoder
from ..inference.embedder import evaluation_mode, progress_bar
from .ranking import score_ranks

# By language, or by source and target: numbers, in percent, and how many rows they are of.
Results = dict[str, dict[str, float]]


def label_accuracy(
    model: PreTrainedModel,
    processor: ProcessorMixin,
    examples: LabelledExamples,
    *,
    regions: Regions | None = None,
    batch_size: int = 64,
) -> Results:
    """`accuracy` in percent, and `n`. A row without a label, whose answer the model cannot give, counts as wrong.

    Args:
        model: with a label for each of its logits.
        processor: its processor.
        examples: whose labels are among the model's, by name.
        regions: of their images.
        batch_size: rows at a time.

    Raises:
        CorpusError: for a label that is none of the model's.
        UnknownLanguageError: for a language that the model has not learned.
    """
    known = {model.config.id2label[number]: number for number in range(model.config.num_labels)}
    for place, label in enumerate(examples.labels):
        if label is not None:
            check_answer(label, known, f"row {place}")
    inputs = TaskInputs(processor, model.config, regions)
    right = np.zeros(len(examples), dtype=bool)
    with evaluation_mode(model), progress_bar(len(examples), "Rows", None) as bar:
        for start in range(0, len(examples), batch_size):
            rows = list(range(start, min(start + batch_size, len(examples))))
            logits = model(**_on_device(inputs(examples.__getitems__(rows)), model)).logits  # [N, labels]
            right[rows] = [
                known.get(examples.labels[row] or "", -1) == best
                for row, best in zip(rows, logits.argmax(-1).tolist(), strict=True)
            ]
            bar.update(len(rows))
    languages = np.array(examples.languages)
    return {
        str(language): {
            "accuracy": 100 * float(right[languages == language].mean()),
            "n": int((languages == language).sum()),
        }
        for language in dict.fromkeys(examples.languages)
    }


def matching_recall(
    model: PreTrainedModel,
    processor: ProcessorMixin,
    corpus: Any,
    languages: list[str],
    *,
    regions: Regions | None = None,
    batch_size: int = 64,
) -> Results:
    """What `evaluate_retrieval` measures, by the scores of every caption with every image: texts x images passes.

    IGLUE's number is recall at 1, `t2i_r1` and `i2t_r1`; `r1` is their mean, which the paper reports.

    Args:
        model: a cross-encoder.
        processor: its processor.
        corpus: a caption corpus, all of whose images every language searches.
        languages: of the captions.
        regions: of the images.
        batch_size: pairs at a time.

    Raises:
        CorpusError: when the corpus has no caption in one of the languages.
        UnknownLanguageError: for a language that the model has not learned.
    """
    judge = CrossEncoder(model, processor, batch_size=batch_size)
    images = Images(corpus) if "image" in corpus.column_names else None
    features = None
    if model.config.has_regions and regions is not None:
        features = regions_of(regions, list(corpus["image_id"]), [] if images is None else images)
    shown = images if model.config.has_patches else None
    results = {}
    for language in languages:
        queries = retrieval_set(corpus, language)
        scores = judge.score_all(queries.texts, shown, language=queries.language, regions=features)
        recalls = score_ranks(scores, queries.text_to_images).recalls()
        results[queries.language] = {"r1": (recalls["t2i_r1"] + recalls["i2t_r1"]) / 2} | recalls
    return results


def translation_quality(
    model: PreTrainedModel,
    processor: ProcessorMixin,
    view: CorpusView,
    *,
    regions: Regions | None = None,
    batch_size: int = 64,
) -> Results:
    """`bleu` and `chrf` of sacrebleu, with its own tokenisation of the target language, and `n`; by `en-de`.

    How the model generates (beams, length) is said by its own `generation_config`.

    Args:
        model: writes texts.
        processor: its processor.
        view: of `triplets`; `text_a` is translated, and `text_b` is what it should be.
        regions: of the images.
        batch_size: texts at a time.

    Raises:
        UnknownLanguageError: for a language that the model has not learned.
        MissingExtraError: without sacrebleu.
    """
    metrics = sacrebleu_metrics()
    inputs = TaskInputs(processor, model.config, regions)
    said: dict[tuple[str, str], list[tuple[str, str]]] = {}
    limit = {} if model.generation_config.max_new_tokens else {"max_new_tokens": processor.max_text_length}
    with evaluation_mode(model), progress_bar(len(view), "Translations", None) as bar:
        for start in range(0, len(view), batch_size):
            examples = view[start : start + batch_size]
            targets = [example["language_b"] for example in examples]
            generated = model.generate(**_on_device(inputs(sources(examples)), model), language=targets, **limit)
            for example, text in zip(examples, processor.batch_decode(generated), strict=True):
                pair = example["language_a"], example["language_b"]
                said.setdefault(pair, []).append((text, example["text_b"]))
            bar.update(len(examples))
    results = {}
    for (source, target), texts in said.items():
        found, right = (list(side) for side in zip(*texts, strict=True))
        bleu = metrics.BLEU(trg_lang=target.partition("-")[0])
        results[f"{source}-{target}"] = {
            "bleu": bleu.corpus_score(found, [right]).score,
            "chrf": metrics.CHRF().corpus_score(found, [right]).score,
            "n": len(texts),
        }
    return results


def _on_device(inputs: dict[str, torch.Tensor], model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """In the model's precision too, where they are no numbers of tokens and no masks."""
    return {
        name: value.to(model.device, model.dtype if value.is_floating_point() else None)
        for name, value in inputs.items()
    }


def sacrebleu_metrics() -> Any:
    """The module; raises a MissingExtraError without it."""
    try:
        from sacrebleu import metrics
    except ImportError as error:
        raise MissingExtraError("translations are measured by sacrebleu: pip install babelens[translation]") from error
    return metrics
