"""The metrics of RC3's tasks, language by language (Zhou et al. 2023, section 3.3 and appendix B):

label_accuracy          entailment, reasoning and questions: how often the label with the highest logit is right
matching_recall         retrieval: recall at 1, 5 and 10 among all captions and all images, in both directions
translation_quality     translation: BLEU and chrF by sacrebleu
"""

from typing import Any

import numpy as np
from transformers import BatchFeature, PreTrainedModel, ProcessorMixin

from ..data.batching.rc3 import LabelledExamples, Regions, TaskInputs, check_answer, regions_of
from ..data.batching.views import CorpusView, Images, RetrievalSets
from ..inference.cross_encoder import CrossEncoder
from ..inference.embedder import batches, evaluation_mode
from ..utils.errors import requires
from .ranking import QueryRanks, score_ranks

# By language, or by source and target: metrics in percent, and the number of rows.
Results = dict[str, dict[str, float]]
# By language.
Ranks = dict[str, QueryRanks]


def label_accuracy(
    model: PreTrainedModel,
    processor: ProcessorMixin,
    examples: LabelledExamples,
    *,
    regions: Regions | None = None,
    batch_size: int = 64,
    ranks: Ranks | None = None,
) -> Results:
    """Measures `accuracy` in percent; `n` is the number of rows. A row without a label, whose answer the model does
    not know, counts as wrong. `ranks` receives the ranks of the rows' labels, by language."""
    known = {model.config.id2label[number]: number for number in range(model.config.num_labels)}
    for place, label in enumerate(examples.labels):
        if label is not None:
            check_answer(label, known, f"row {place}")
    inputs = TaskInputs(processor, model.config, regions)
    own_ranks = np.zeros(len(examples), dtype=np.int64)
    with evaluation_mode(model):
        for rows in batches(list(range(len(examples))), batch_size, "Rows"):
            read = BatchFeature(inputs(examples.__getitems__(rows))).to(model.device, model.dtype)
            logits = model(**read).logits  # [N, labels]
            places = logits.argsort(dim=-1, descending=True, stable=True).argsort(dim=-1).cpu()  # [N, labels]
            for row, place in zip(rows, places, strict=True):
                label = examples.labels[row]
                own_ranks[row] = len(place) + 1 if label is None else 1 + int(place[known[label]])
    results = {}
    for language in dict.fromkeys(examples.languages):
        own = [row for row, tag in enumerate(examples.languages) if tag == language]
        results[language] = {"accuracy": 100 * float((own_ranks[own] == 1).mean()), "n": len(own)}
        if ranks is not None:
            texts, ids = ([each[row] for row in own] for each in (list(examples.rows["text"]), examples.image_ids))
            ranks[language] = QueryRanks.of_labels(texts, ids, own_ranks[own])
    return results


def matching_recall(
    model: PreTrainedModel,
    processor: ProcessorMixin,
    corpus: Any,
    languages: list[str],
    *,
    regions: Regions | None = None,
    batch_size: int = 64,
    ranks: Ranks | None = None,
) -> Results:
    """Measures retrieval as `evaluate_retrieval` does, by a forward pass for every caption with every image. IGLUE
    reports R@1, `t2i_r1` and `i2t_r1`; the paper reports their mean, `r1`. `ranks` receives those of queries."""
    judge = CrossEncoder(model, processor, batch_size=batch_size)
    images = Images(corpus) if "image" in corpus.column_names else None
    features = None
    if model.config.has_regions and regions is not None:
        features = regions_of(regions, list(corpus["image_id"]), [] if images is None else images)
    shown = images if model.config.has_patches else None
    results, sets = {}, RetrievalSets(corpus)
    for language in languages:
        queries = sets.of(language)
        scores = judge.score_all(queries.texts, shown, language=queries.language, regions=features)
        found = score_ranks(scores, queries.text_to_images)
        if ranks is not None:
            ranks[queries.language] = QueryRanks.of(queries, found)
        recalls = found.recalls()
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
    """Measures `bleu` and `chrf` with sacrebleu, which tokenizes the target language, for each pair of languages in a
    view of `triplets`, such as `en-de`; `n` is the number of texts. `generation_config` sets beams and length."""
    with requires("sacrebleu"):
        from sacrebleu import metrics

    inputs = TaskInputs(processor, model.config, regions)
    generated_texts: dict[tuple[str, str], list[tuple[str, str]]] = {}
    limit = {} if model.generation_config.max_new_tokens else {"max_new_tokens": processor.max_text_length}
    with evaluation_mode(model):
        for examples in batches(view, batch_size, "Translations"):
            targets = [example["language_b"] for example in examples]
            read = BatchFeature(inputs(examples)).to(model.device, model.dtype)
            generated = model.generate(**read, language=targets, **limit)
            for example, text in zip(examples, processor.batch_decode(generated), strict=True):
                pair = example["language_a"], example["language_b"]
                generated_texts.setdefault(pair, []).append((text, example["text_b"]))
    results = {}
    for (source, target), texts in generated_texts.items():
        found, right = (list(side) for side in zip(*texts, strict=True))
        bleu = metrics.BLEU(trg_lang=target.partition("-")[0])
        results[f"{source}-{target}"] = {
            "bleu": bleu.corpus_score(found, [right]).score,
            "chrf": metrics.CHRF().corpus_score(found, [right]).score,
            "n": len(texts),
        }
    return results
