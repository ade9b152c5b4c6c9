import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoImageProcessor, AutoModel, AutoProcessor, AutoTokenizer, pipeline

from babelens import Embedder
from babelens.publishing import folder_problems
from babelens.stock_folders import export_stock
from babelens.utils.errors import InputError, ModelKindError
from tests.contracts import TEXTS, drawn_images
from tests.support.tiny_native import saved


def check(source, folder, class_name):
    made = export_stock(source, folder)
    assert made.class_name == class_name
    assert max(made.difference.values()) < 1e-5
    assert not list(folder.glob("*.py")) and "auto_map" not in (folder / "config.json").read_text()
    embedder, images = Embedder.from_pretrained(source, device="cpu"), drawn_images(3)
    languages = (getattr(embedder.model.config, "languages", None) or ["de"])[0]
    expected = embedder.encode_text(TEXTS, language=languages), embedder.encode_image(images)
    sentences = SentenceTransformer(str(folder), device="cpu")
    # It cuts embeddings of unit length, which are then shorter; cosines are the same.
    unit = {"normalize_embeddings": True} if embedder.truncate_dim else {}
    np.testing.assert_allclose(sentences.encode(TEXTS, **unit), expected[0], atol=1e-5)
    np.testing.assert_allclose(sentences.encode(TEXTS, prompt_name=languages, **unit), expected[0], atol=1e-5)
    np.testing.assert_allclose(sentences.encode(images, **unit), expected[1], atol=1e-5)
    assert sentences.get_embedding_dimension() == expected[0].shape[1]
    again = Embedder.from_pretrained(folder, device="cpu")
    np.testing.assert_allclose(again.encode_text(TEXTS), expected[0], atol=1e-5)
    assert not hasattr(AutoTokenizer.from_pretrained(folder), "auto_map")
    assert "babelens" not in type(AutoImageProcessor.from_pretrained(folder)).__module__
    return made


def test_mural_is_align(make_mural, tmp_path):
    source = saved(make_mural(), tmp_path / "mural")
    made = check(source, tmp_path / "stock", "AlignModel")
    assert any("text_text" in each for each in made.lost)
    model, processor = (auto.from_pretrained(tmp_path / "stock") for auto in (AutoModel, AutoProcessor))
    inputs = processor(text=TEXTS, images=drawn_images(2), padding=True, truncation=True, return_tensors="pt")
    own, own_processor = (auto.from_pretrained(source) for auto in (AutoModel, AutoProcessor))
    with torch.no_grad():
        logits = model(**inputs).logits_per_image
        expected = own(**own_processor(text=TEXTS, images=drawn_images(2), return_tensors="pt")).logits_per_image
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)
    classifier = pipeline("zero-shot-image-classification", model=str(tmp_path / "stock"))
    assert len(classifier(drawn_images(1)[0], candidate_labels=TEXTS)) == len(TEXTS)


def test_etcl_is_align(make_etcl, tmp_path):
    made = check(saved(make_etcl(truncate_dim=4), tmp_path / "etcl"), tmp_path / "stock", "AlignModel")
    assert not any("text_text" in each for each in made.lost)


def test_what_has_no_stock_class_is_refused_with_the_reasons(make_smalr, make_mural, tmp_path):
    source = saved(make_mural(text_pooling="mean"), tmp_path / "mean")
    with pytest.raises(ModelKindError, match=r"AlignModel pools texts at \[CLS\], and not by 'mean'"):
        export_stock(source, tmp_path / "stock")
    with pytest.raises(ModelKindError, match="computes what a SmalrModel does"):
        export_stock(saved(make_smalr(), tmp_path / "smalr"), tmp_path / "stock")
    with pytest.raises(ModelKindError, match="prompt before texts, and this model reads texts after 'query: '"):
        model, processor = make_mural(text_prompt="query: ")
        processor.text_prompt = "query: "
        export_stock(saved((model, processor), tmp_path / "prompted"), tmp_path / "stock")
    with pytest.raises(InputError, match="name a new folder"):
        export_stock(source, source)
    assert not (tmp_path / "stock").exists()


def test_the_card_of_a_stock_folder(finished, tmp_path):
    made = export_stock(finished, tmp_path / "mural-tiny")
    text = (made.folder / "README.md").read_text()
    assert "stock `AlignModel` of transformers: it loads without babelens" in text
    assert "trust_remote_code=True" not in text and 'AutoModel.from_pretrained("your-name/mural-tiny")' in text
    assert (made.folder / "examples/auto.png").is_file() and not folder_problems(made.folder)
