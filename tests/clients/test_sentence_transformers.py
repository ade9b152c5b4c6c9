from typing import Any

import numpy as np
import pytest
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.evaluation import (
    EmbeddingSimilarityEvaluator,
    InformationRetrievalEvaluator,
    TranslationEvaluator,
)
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from tests.support.client_texts import TEXTS

IN_GERMAN = {"trust_remote_code": True, "default_prompt_name": "de"}


@pytest.fixture
def model(stock) -> SentenceTransformer:
    return SentenceTransformer(stock.path, device="cpu")


def test_evaluators(stock, model, image_files):
    cosines = stock.texts @ stock.images.T
    best = {str(row): {str(each)} for row, each in enumerate(cosines.argmax(1))}
    texts, images = ({str(i): each for i, each in enumerate(several)} for several in (TEXTS, image_files))
    assert InformationRetrievalEvaluator(texts, images, best)(model)["cosine_accuracy@1"] == 1
    assert TranslationEvaluator(TEXTS[:2], TEXTS[:2], name="same")(model)["same_mean_accuracy"] == 1
    scores = (stock.texts[:2] * stock.texts[2:]).sum(1).tolist()
    assert EmbeddingSimilarityEvaluator(TEXTS[:2], TEXTS[2:], scores)(model)["pearson_cosine"] == pytest.approx(1)


def trained(model: SentenceTransformer, columns: dict[str, list[Any]], folder: Any, **options: Any) -> None:
    before = model.encode(TEXTS)
    arguments = SentenceTransformerTrainingArguments(
        str(folder / "run"), max_steps=2, per_device_train_batch_size=2, learning_rate=0.01, report_to="none",
        save_strategy="no", use_cpu=True, disable_tqdm=True, **options,
    )  # fmt: skip
    loss = MultipleNegativesRankingLoss(model)
    SentenceTransformerTrainer(model, arguments, train_dataset=Dataset.from_dict(columns), loss=loss).train()
    assert np.abs(model.encode(TEXTS) - before).max() > 1e-4
    model.save_pretrained(str(folder / "saved"))


def test_training_with_plain_columns(model, tmp_path):
    trained(model, {"anchor": TEXTS, "positive": TEXTS[::-1]}, tmp_path)
    again = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    np.testing.assert_array_equal(again.encode(TEXTS), model.encode(TEXTS))


def test_training_with_a_prompt_that_names_the_language(mla, tmp_path):
    model = SentenceTransformer(mla.path, device="cpu", **IN_GERMAN)
    trained(model, {"a": TEXTS, "b": TEXTS[::-1]}, tmp_path, prompts="de")


def test_training_with_columns_of_texts_with_their_languages(mla, tmp_path):
    tagged = [{"text": text, "language": "de"} for text in TEXTS]
    trained(SentenceTransformer(mla.path, device="cpu", **IN_GERMAN), {"a": tagged, "b": tagged[::-1]}, tmp_path)
