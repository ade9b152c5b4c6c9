"""Features of ten crops: equal to crops cut by hand, written whole, and trained on."""

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from transformers import AutoModel, ConvNextImageProcessorPil, ResNetConfig, ResNetModel
from typer.testing import CliRunner

from babelens.cli.main import app
from babelens.data.batching.views import images_of
from babelens.data.corpus.loading import load_captions
from babelens.inference.backbones import TenCropFeatures, write_features
from babelens.inference.embedder import Embedder
from babelens.processing.images import open_image
from babelens.utils.errors import InputError
from tests.support.tiny_training import shapes_corpus, write_shapes

RESIZE, CROP, WIDTH = 36, 32, 12
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


@pytest.fixture(scope="module")
def resnet(tmp_path_factory):
    folder = tmp_path_factory.mktemp("resnet")
    torch.manual_seed(0)
    model = ResNetModel(ResNetConfig(embedding_size=8, hidden_sizes=[8, WIDTH], depths=[1, 1], layer_type="basic"))
    for norm in (module for module in model.modules() if isinstance(module, torch.nn.BatchNorm2d)):
        torch.nn.init.uniform_(norm.weight)
        torch.nn.init.uniform_(norm.bias)
    model.save_pretrained(folder)
    statistics = {"image_mean": MEAN, "image_std": STD}
    ConvNextImageProcessorPil(size={"shortest_edge": 64}, **statistics).save_pretrained(folder)
    return folder


@pytest.fixture
def extract(resnet):
    return TenCropFeatures.from_pretrained(resnet, resize=RESIZE, crop=CROP)


def random_image(width, height):
    pixels = np.random.default_rng(width).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def test_features_are_the_mean_over_ten_crops_cut_by_hand(extract, resnet):
    wide, high = random_image(60, 40), random_image(30, 45)
    model = AutoModel.from_pretrained(resnet).eval()
    for image, size, (across, down) in ((wide, (54, 36), (22, 4)), (high, (36, 54), (4, 22))):
        pixels = np.asarray(image.resize(size, Image.Resampling.BICUBIC)) / 255
        places = [(0, 0), (across, 0), (0, down), (across, down), (across // 2, down // 2)]
        crops = [pixels[top : top + CROP, left : left + CROP] for left, top in places]
        crops += [crop[:, ::-1] for crop in crops]
        one_by_one = []
        for crop in crops:
            inputs = torch.from_numpy(((crop - MEAN) / STD).transpose(2, 0, 1).copy()).float()[None]
            with torch.no_grad():
                one_by_one.append(model(pixel_values=inputs).pooler_output.flatten())
        assert len({tuple(features.tolist()) for features in one_by_one}) == 10
        expected = torch.stack(one_by_one).mean(0).numpy()
        np.testing.assert_allclose(extract([image])[0], expected, rtol=1e-4, atol=1e-6)
    together = extract([wide, high])
    np.testing.assert_allclose(together, np.concatenate([extract([wide]), extract([high])]), rtol=1e-4, atol=1e-6)


# ---- A corpus of features ----


def test_the_corpus_has_features_in_the_place_of_images(extract, tmp_path, monkeypatch):
    corpus = shapes_corpus()
    monkeypatch.setattr("babelens.inference.backbones._ROWS_PER_FILE", 6)
    write_features(corpus, extract, tmp_path / "features")
    assert len(list((tmp_path / "features").iterdir())) == 3
    found = load_captions(str(tmp_path / "features"))
    assert found.column_names == ["image_id", "captions", "features"]
    assert found["image_id"][:] == corpus["image_id"][:] and found["captions"][:] == corpus["captions"][:]
    expected = np.concatenate([extract([open_image(image)]) for image in corpus["image"]])
    np.testing.assert_allclose(np.array(found["features"][:]), expected, rtol=1e-4, atol=1e-6)
    with pytest.raises(InputError, match="exists"):
        write_features(corpus, extract, tmp_path / "features")


def test_the_command_writes_what_smalr_trains_on_and_is_evaluated_with(resnet, tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    write_shapes(images)
    output = tmp_path / "features"
    run("features", resnet, "--data", images, "--output", output, "--crop", CROP)
    source = {"source": str(output), "license": "CC0-1.0"}
    sizes = {"hidden_size": 16, "image_hidden_size": 16, "specific_words": 3, "latent_tokens": 8}
    training = {"per_device_train_batch_size": 8, "max_steps": 3, "save_steps": 3, "use_cpu": True}
    recipe = {
        "method": "smalr",
        "model": {"preset": "smalr-tiny", "overrides": sizes},
        "train": {"text_text": source, "image_text": source},
        "validation": source,
        "training": training | {"report_to": "none"},
        "stages": [
            {"name": "latent", "tasks": ["text_text"]},
            {"name": "smalr", "tasks": ["image_text"], "training": {"eval_strategy": "steps", "eval_steps": 3}},
        ],
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    run("train", tmp_path / "recipe.yaml", "--output", tmp_path / "run")
    model = AutoModel.from_pretrained(tmp_path / "run")
    assert model.config.image_feature_size == WIDTH and model.vision_model is None
    corpus, embedder = load_captions(str(output)), Embedder.from_pretrained(tmp_path / "run")
    with torch.no_grad():
        expected = model(image_features=torch.tensor(corpus["features"][:])).image_embeds
    np.testing.assert_allclose(embedder.encode_image(images_of(corpus)), expected, atol=1e-6)
    assert " 16 " in run("evaluate", "captions", tmp_path / "run", "--data", output).output  # images


def run(*arguments):
    done = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done
