"""Tasks of mteb of every kind that dual encoders have, on a few rows in memory, so that mteb itself runs on them."""

from collections.abc import Sequence
from typing import Any

from datasets import Dataset, DatasetDict, Image
from mteb.abstasks import AbsTaskBitextMining, AbsTaskRetrieval, AbsTaskZeroShotClassification
from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData
from mteb.abstasks.task_metadata import TaskMetadata

from babelens.data.batching.views import RetrievalSet

_MTEB = {"en": "eng-Latn", "de": "deu-Latn", "zh": "cmn-Hans"}


def _made(base: type, name: str, data: Any, labels: Sequence[str] = (), **facts: Any) -> Any:
    described = TaskMetadata(
        name=name,
        description=name,
        dataset={"path": f"tests/{name}", "revision": "a1b2c3"},
        eval_splits=["test"],
        **facts,
    )

    def load_data(self: Any, num_proc: int | None = None, **unused: Any) -> None:
        self.dataset = data
        self.data_loaded = True

    return type(
        name, (base,), {"metadata": described, "load_data": load_data, "get_candidate_labels": lambda self: [*labels]}
    )()


def retrieval(sets: Sequence[RetrievalSet], *, backwards: bool = False) -> Any:
    """Texts ask for images, or `backwards` images for texts."""
    data = {}
    for queries in sets:
        right: dict[str, dict[str, int]] = {}
        for text, of in enumerate(queries.text_to_images):
            for image in of:
                asked, found = (f"i{image}", f"t{text}") if backwards else (f"t{text}", f"i{image}")
                right.setdefault(asked, {})[found] = 1
        ids = [f"i{index}" for index in range(len(queries.images))]
        images = Dataset.from_dict({"id": ids, "image": list(queries.images)}).cast_column("image", Image())
        texts = Dataset.from_dict({"id": [f"t{i}" for i in range(len(queries.texts))], "text": queries.texts})
        kept = images.select([index for index, name in enumerate(ids) if name in right])
        sides = {"queries": kept, "corpus": texts} if backwards else {"queries": texts, "corpus": images}
        data[queries.language] = {"test": RetrievalSplitData(relevant_docs=right, top_ranked=None, **sides)}
    category = "i2t" if backwards else "t2i"
    return _made(
        AbsTaskRetrieval,
        f"Tiny{category.upper()}Retrieval",
        data,
        type="Any2AnyMultilingualRetrieval",
        eval_langs={language: [_MTEB[language]] for language in data},
        main_score="ndcg_at_10",
        modalities=["text", "image"],
        category=category,
    )


def bitext(pairs: Sequence[tuple[str, str]], subset: str = "de-en", *, backwards: bool = False) -> Any:
    """Sentence pairs; with `backwards` the column of the translations comes first, and so mteb asks for it first."""
    data = Dataset.from_dict(
        {f"sentence{side}": list(texts) for side, texts in enumerate(zip(*pairs, strict=True), 1)}
    )
    if backwards:
        data = data.select_columns(["sentence2", "sentence1"])
    facts = {"type": "BitextMining", "main_score": "f1", "category": "t2t"}
    languages = {subset: [_MTEB[tag] for tag in subset.split("-")]}
    data = DatasetDict({subset: DatasetDict(test=data)})
    return _made(AbsTaskBitextMining, "TinyBitext", data, eval_langs=languages, **facts)


def zero_shot(images: Sequence[Any], labels: Sequence[int], names: Sequence[str]) -> Any:
    data = Dataset.from_dict({"image": list(images), "label": list(labels)}).cast_column("image", Image())
    facts = {"type": "ZeroShotClassification", "eval_langs": ["deu-Latn"], "main_score": "accuracy"}
    facts |= {"modalities": ["text", "image"], "category": "i2t"}
    return _made(AbsTaskZeroShotClassification, "TinyZeroShot", DatasetDict(test=data), names, **facts)
