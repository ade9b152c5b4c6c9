import json

import pytest
from transformers import AutoModel, AutoProcessor

from babelens import Embedder, SmalrModel, SmalrProcessor
from babelens.utils.errors import InputError, ModelFolderError
from tests.support.tiny_backbones import saved_backbone
from tests.support.tiny_native import saved, tiny_clip
from tests.support.tiny_recipes import SAVING, smalr, train
from tests.support.tiny_training import write_shapes


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    folder = write_shapes(tmp_path_factory.mktemp("shapes"))
    saved(tiny_clip(), folder / "clip")
    content = smalr(folder)
    overrides = {"hidden_size": 16, "image_hidden_size": 16, "specific_words": 3, "latent_tokens": 8}
    return content | {
        "model": {"preset": "smalr-tiny", "overrides": overrides},
        "backbone": str(folder / "clip"),
        "train": content["train"] | {"text_text": content["train"]["image_text"]},
        "training": content["training"] | SAVING | {"max_steps": 3},
        "stages": [{"name": "latent", "tasks": ["text_text"]}, {"name": "smalr", "tasks": ["image_text"]}],
    }


def test_both_stages(run, content, tmp_path):
    output = train(content, tmp_path)
    model, processor = AutoModel.from_pretrained(output), AutoProcessor.from_pretrained(output)
    assert type(model) is SmalrModel and type(processor) is SmalrProcessor
    assert processor.languages == ["de", "en", "fr"]
    backbone = AutoModel.from_pretrained(content["backbone"]).vision_model
    assert all((model.vision_model.state_dict()[name] == value).all() for name, value in backbone.state_dict().items())
    embeds = Embedder(model, processor).encode_text(["a red dot", "rouge"], language=["en", "fr"])
    assert embeds.shape == (2, 16)
    state = json.loads((output / "checkpoints" / "smalr" / "checkpoint-3" / "trainer_state.json").read_text())
    assert any("loss_image_text" in entry for entry in state["log_history"])
    card = (output / "README.md").read_text()
    assert "latent vocabulary" in card and "license: other" in card  # nobody stated the backbone's
    assert "its license is not known" in card
    assert 'pipeline("feature-extraction"' in card and "pipeline_tag: feature-extraction" in card
    assert not (output / "handler.py").exists()  # whose requests need no language
    run("push", output, "somebody/smalr", "--dry-run")


MULE = {"specific_words": None, "latent_tokens": 0, "mask_weight": 0}


def test_word_vectors_are_those_of_files_or_trained_on_captions(content, tmp_path):
    one, other = "1 2 " * 30, "2 1 " * 30
    (tmp_path / "de.vec").write_text(f"3 60\nin {one}\nrot {other}\nQuadrat {one}\n")
    model = content["model"] | {"overrides": content["model"]["overrides"] | MULE}
    output = train(content, tmp_path, words={"vectors": {"de": str(tmp_path / "de.vec")}}, model=model)
    warm = AutoModel.from_pretrained(output / "checkpoints/latent/finished")  # the warm-up leaves vectors as they are
    german, english, _ = warm.word_embedding.specific.split(warm.config.specific_sizes)
    words = AutoProcessor.from_pretrained(output).vocabularies["de"]
    assert (german[words.index("in")] == german[words.index("quadrat")]).all()
    assert (german[words.index("in")] - german[words.index("rot")]).abs().max() > 1
    assert english.any(dim=1).all()


def test_rare_words_have_the_embedding_of_their_translation(content, tmp_path):
    (tmp_path / "de-en.txt").write_text("rot red\nRot scarlet\nquadrat\tsquare\ngelb amber\nball ball\n")
    words = {"dictionary": {"files": {"de": str(tmp_path / "de-en.txt")}, "threshold": 5}}
    model = content["model"] | {"overrides": content["model"]["overrides"] | MULE}
    output = train(content, tmp_path, model=model, stages=content["stages"][1:], words=words)
    model, processor = AutoModel.from_pretrained(output), AutoProcessor.from_pretrained(output)
    # "in" is in all captions; colours and shapes are in four each, and the dictionary knows two of them
    assert processor.vocabularies["de"] == ["in", "quadrat", "rot"]
    assert model.config.dictionary_words == [2, 0, 0] and model.config.specific_sizes[0] == 1
    assert len(model.word_embedding.specific) == sum(model.config.specific_sizes)
    embedder = Embedder(model, processor)
    german, english, other = (
        embedder.encode_text(text, language=tag)
        for text, tag in (("rot Quadrat", "de"), ("red square", "en"), ("red dot", "en"))
    )
    assert (german == english).all() and (german != other).any()
    compressed = Embedder(model.compress(), processor).encode_text("rot Quadrat", language="de")
    assert (compressed == Embedder(model.compress(), processor).encode_text("red square", language="en")).all()


def test_a_backbone_that_cannot_serve_is_refused(content, tmp_path):
    saved_backbone("vit", tmp_path / "vit")
    given = {"backbone": str(tmp_path / "vit"), "image": {"resize": 48, "crop": 48}}
    with pytest.raises(InputError, match=r"vit does not take the images of 48 x 48 pixels .*; change the sizes"):
        train(content, tmp_path, **given)
    (tmp_path / "vit" / "preprocessor_config.json").unlink()
    with pytest.raises(ModelFolderError, match="image processor"):
        train(content, tmp_path, **given | {"image": None})
