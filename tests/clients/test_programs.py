import asyncio
from typing import Any

import mteb
import numpy as np
import onnxruntime
import pytest
from datasets import Dataset
from mteb.abstasks import AbsTaskSTS
from mteb.abstasks.task_metadata import TaskMetadata
from PIL import Image
from transformers import AutoImageProcessor, AutoTokenizer

from tests.support.client_texts import TEXTS

QUERY = 1


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), expected, atol=1e-5)


@pytest.mark.parametrize("name", ["stock", "mla"])
def test_an_image_processor_loads_without_a_question_where_its_class_is_stock(name, request, image_files):
    processor = AutoImageProcessor.from_pretrained(request.getfixturevalue(name).path)
    assert type(processor).__module__.startswith("transformers.")
    assert processor(Image.open(image_files[0]), return_tensors="np")["pixel_values"].ndim == 4


def test_graphs_need_no_code(graphs, image_files):
    assert not list(graphs.folder.rglob("*.py")) and "auto_map" not in (graphs.folder / "config.json").read_text()
    run = onnxruntime.InferenceSession(str(graphs.folder / "onnx/text_model.onnx")).run
    texts = AutoTokenizer.from_pretrained(graphs.path)(TEXTS, padding=True, return_tensors="np")
    (found,) = run(None, {name: texts[name] for name in ("input_ids", "attention_mask")})
    close(found / np.linalg.norm(found, axis=1, keepdims=True), graphs.texts)


def test_langchain(stock, mla):
    from langchain_core.vectorstores import InMemoryVectorStore
    from langchain_huggingface import HuggingFaceEmbeddings

    embeddings = HuggingFaceEmbeddings(model_name=stock.path)
    close(embeddings.embed_documents(TEXTS), stock.texts)
    close(embeddings.embed_query(TEXTS[QUERY]), stock.texts[QUERY])
    store = InMemoryVectorStore(embeddings)
    store.add_texts(TEXTS)
    assert store.similarity_search(TEXTS[QUERY], k=1)[0].page_content == TEXTS[QUERY]
    options = {"model_kwargs": {"trust_remote_code": True}, "encode_kwargs": {"prompt_name": "de"}}
    close(HuggingFaceEmbeddings(model_name=mla.path, **options).embed_documents(TEXTS), mla.texts)


def test_llama_index(stock, mla):
    from llama_index.embeddings.huggingface import HuggingFaceEmbedding

    embedding = HuggingFaceEmbedding(model_name=stock.path, device="cpu")
    close(embedding.get_text_embedding_batch(TEXTS), stock.texts)
    close(embedding.get_query_embedding(TEXTS[QUERY]), stock.texts[QUERY])
    close(asyncio.run(embedding.aget_query_embedding(TEXTS[QUERY])), stock.texts[QUERY])
    german = {"query_instruction": "de", "text_instruction": "de", "trust_remote_code": True}
    close(HuggingFaceEmbedding(model_name=mla.path, device="cpu", **german).get_text_embedding_batch(TEXTS), mla.texts)


def test_chroma(stock, tmp_path):
    import chromadb
    from chromadb.config import Settings
    from chromadb.utils.embedding_functions import SentenceTransformerEmbeddingFunction

    embed = SentenceTransformerEmbeddingFunction(model_name=stock.path)
    close(embed(TEXTS), stock.texts)
    client = chromadb.PersistentClient(str(tmp_path), Settings(anonymized_telemetry=False))
    collection = client.create_collection("captions", embedding_function=embed)
    collection.add(ids=list("abcd"), documents=TEXTS)
    assert collection.query(query_texts=[TEXTS[QUERY]], n_results=1)["ids"] == [["b"]]


def test_lancedb(stock, tmp_path):
    import lancedb
    from lancedb.embeddings import get_registry
    from lancedb.pydantic import LanceModel, Vector

    embed = get_registry().get("sentence-transformers").create(name=stock.path, trust_remote_code=False)

    class Caption(LanceModel):
        text: str = embed.SourceField()
        vector: Vector(embed.ndims()) = embed.VectorField()  # type: ignore[valid-type]

    table = lancedb.connect(tmp_path).create_table("captions", schema=Caption)
    table.add([{"text": text} for text in TEXTS])
    assert table.search(TEXTS[QUERY]).limit(1).to_list()[0]["text"] == TEXTS[QUERY]
    close(table.to_arrow()["vector"].to_pylist(), stock.texts)


def test_txtai(stock):
    from txtai import Embeddings

    embeddings = Embeddings(path=stock.path, method="sentence-transformers", gpu=False)
    close(embeddings.batchtransform(TEXTS), stock.texts)
    embeddings.index(TEXTS)
    assert embeddings.search(TEXTS[QUERY], 1)[0][0] == QUERY


class Similarity(AbsTaskSTS):
    metadata = TaskMetadata(
        name="Similarity",
        description="Three pairs of texts.",
        dataset={"path": "tests/similarity", "revision": "a1b2c3"},
        type="STS",
        eval_splits=["test"],
        eval_langs=["deu-Latn"],
        main_score="cosine_spearman",
    )
    min_score, max_score = 0, 1

    def load_data(self, num_proc: int | None = None, **unused: Any) -> None:
        pairs = {"sentence1": TEXTS[:3], "sentence2": TEXTS[1:], "score": [0.1, 0.5, 0.9]}
        self.dataset, self.data_loaded = {"test": Dataset.from_dict(pairs)}, True


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # of mteb's own calls
def test_mteb(stock):
    from sentence_transformers import SentenceTransformer

    (result,) = mteb.evaluate(SentenceTransformer(stock.path, device="cpu"), Similarity(), cache=None).task_results
    expected = np.corrcoef((stock.texts[:3] * stock.texts[1:]).sum(1), [0.1, 0.5, 0.9])[0, 1]
    assert result.scores["test"][0]["cosine_pearson"] == pytest.approx(expected, abs=1e-4)
