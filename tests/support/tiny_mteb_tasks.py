"""Tasks of mteb of every kind that dual encoders have, on a few rows in memory, so that mteb itself runs on them."""

from collections.abc import Mapping, Sequence
from typing import Any

from datasets import Dataset, DatasetDict, Image
from mteb.abstasks import AbsTaskBitextMining, AbsTaskRetrieval, AbsTaskSTS, AbsTaskZeroShotClassification
from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData
from mteb.abstasks.task_metadata import TaskMetadata

from babelens.data.batching.views import RetrievalSet

_MTEB = {"en": "eng-Latn", "de": "deu-Latn", "fr": "fra-Latn", "zh": "cmn-Hans", "ja": "jpn-Jpan"}
Languages = Sequence[str] | Mapping[str, list[str]]


def metadata(name: str, kind: str, languages: Languages, main_score: str, **more: Any) -> TaskMetadata:
    facts = {"description": name, "dataset": {"path": f"tests/{name}", "revision": "a1b2c3"}, "eval_splits": ["test"]}
    return TaskMetadata(name=name, type=kind, eval_langs=languages, main_score=main_score, **facts | more)


def _made(base: type, name: str, data: Any, described: TaskMetadata, **members: Any) -> Any:
    def load_data(self: Any, num_proc: int | None = None, **unused: Any) -> None:
        self.dataset = data
        self.data_loaded = True

    return type(name, (base,), {"metadata": described, "load_data": load_data, **members})()


def _retrieval(name: str, category: str, sets: Mapping[str, RetrievalSplitData]) -> Any:
    described = metadata(
        name,
        "Any2AnyMultilingualRetrieval",
        {language: [_MTEB[language]] for language in sets},
        "ndcg_at_10",
        modalities=["text", "image"],
        category=category,
    )
    return _made(AbsTaskRetrieval, name, {language: {"test": data} for language, data in sets.items()}, described)


def _images(queries: RetrievalSet) -> Dataset:
    ids = [f"i{index}" for index in range(len(queries.images))]
    return Dataset.from_dict({"id": ids, "image": list(queries.images)}).cast_column("image", Image())


def _texts(queries: RetrievalSet) -> Dataset:
    return Dataset.from_dict({"id": [f"t{index}" for index in range(len(queries.texts))], "text": queries.texts})


def text_to_image(sets: Sequence[RetrievalSet]) -> Any:
    data = {}
    for queries in sets:
        right = {f"t{text}": {f"i{image}": 1 for image in of} for text, of in enumerate(queries.text_to_images)}
        data[queries.language] = RetrievalSplitData(
            queries=_texts(queries), corpus=_images(queries), relevant_docs=right, top_ranked=None
        )
    return _retrieval("TinyT2IRetrieval", "t2i", data)


def image_to_text(sets: Sequence[RetrievalSet]) -> Any:
    data = {}
    for queries in sets:
        right: dict[str, dict[str, int]] = {}
        for text, of in enumerate(queries.text_to_images):
            for image in of:
                right.setdefault(f"i{image}", {})[f"t{text}"] = 1
        images = _images(queries)
        kept = images.select([index for index, name in enumerate(images["id"]) if name in right])
        data[queries.language] = RetrievalSplitData(
            queries=kept, corpus=_texts(queries), relevant_docs=right, top_ranked=None
        )
    return _retrieval("TinyI2TRetrieval", "i2t", data)


def images_with_texts(images: Sequence[Any], texts: Sequence[str]) -> Any:
    ids = [f"d{index}" for index in range(len(images))]
    corpus = Dataset.from_dict({"id": ids, "image": list(images), "text": list(texts)}).cast_column("image", Image())
    queries = Dataset.from_dict({"id": [f"q{index}" for index in range(len(texts))], "text": list(texts)})
    right = {f"q{index}": {f"d{index}": 1} for index in range(len(texts))}
    data = RetrievalSplitData(queries=queries, corpus=corpus, relevant_docs=right, top_ranked=None)
    return _retrieval("TinyT2ITRetrieval", "t2it", {"en": data})


def _columns(rows: Sequence[Sequence[Any]], *names: str) -> Dataset:
    return Dataset.from_dict(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))


def bitext(pairs: Sequence[tuple[str, str]], subset: str = "de-en", *, backwards: bool = False) -> Any:
    """Sentence pairs; with `backwards` the column of the translations comes first, and so mteb asks for it first."""
    data = _columns(pairs, "sentence1", "sentence2")
    if backwards:
        data = data.select_columns(["sentence2", "sentence1"])
    languages = {subset: [_MTEB[tag] for tag in subset.split("-")]}
    described = metadata("TinyBitext", "BitextMining", languages, "f1", category="t2t")
    return _made(AbsTaskBitextMining, "TinyBitext", DatasetDict({subset: DatasetDict(test=data)}), described)


def similarity(rows: Sequence[tuple[str, str, float]], languages: Languages = ("deu-Latn", "eng-Latn")) -> Any:
    described = metadata("TinySTS", "STS", list(languages), "cosine_spearman", category="t2t")
    data = DatasetDict(test=_columns(rows, "sentence1", "sentence2", "score"))
    return _made(AbsTaskSTS, "TinySTS", data, described, min_score=0, max_score=5)


def zero_shot(images: Sequence[Any], labels: Sequence[int], names: Sequence[str]) -> Any:
    described = metadata(
        "TinyZeroShot",
        "ZeroShotClassification",
        ["deu-Latn"],
        "accuracy",
        modalities=["text", "image"],
        category="i2t",
    )
    data = Dataset.from_dict({"image": list(images), "label": list(labels)}).cast_column("image", Image())
    return _made(
        AbsTaskZeroShotClassification,
        "TinyZeroShot",
        DatasetDict(test=data),
        described,
        get_candidate_labels=lambda self: list(names),
    )
