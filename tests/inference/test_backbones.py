import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoImageProcessor, YolosConfig, YolosForObjectDetection

from babelens import LiweModel, SmalrModel
from babelens.cli.features import write_features
from babelens.data.corpus.loading import load_captions
from babelens.inference import backbones
from babelens.processing.augmentation import ImageAugmentation
from babelens.processing.images import open_image
from babelens.processing.processing_rc3 import square_image_processor
from babelens.utils.errors import InputError
from babelens.utils.pretrained import load_processor
from tests.contracts import drawn_images
from tests.support.tiny_backbones import BACKBONES, saved_backbone
from tests.support.tiny_training import shapes_corpus

WORDS = {"languages": ["en"], "vocabulary_sizes": [9], "specific_words": 4, "latent_tokens": 4, "hidden_size": 16}
MODELS = {SmalrModel: WORDS | {"image_hidden_size": 16}, LiweModel: {"vocab_size": 9, "hidden_size": 16}}


@pytest.mark.parametrize("name", BACKBONES)
@torch.no_grad()
def test_features_are_the_backbones_of_images_as_it_takes_them(name, tmp_path):
    plain, own = saved_backbone(name, tmp_path)
    backbone, image_processor = backbones.load_backbone(tmp_path), load_processor(AutoImageProcessor, tmp_path)
    assert image_processor.to_dict() == own.to_dict()
    backbones.check_backbone(backbone, image_processor, name)
    pixels = own(drawn_images(3), return_tensors="pt")["pixel_values"]
    assert torch.equal(image_processor(drawn_images(3), return_tensors="pt")["pixel_values"], pixels)
    expected = plain(pixel_values=pixels).pooler_output.flatten(1)
    assert expected.std(0).max() > 1e-4  # it tells images apart
    for kind, options in MODELS.items():
        model = kind(kind.config_class(vision_config=backbone.config, **options)).eval()
        model.vision_model.load_state_dict(backbone.state_dict())
        states = model.get_image_features(pixel_values=pixels, output_hidden_states=True).hidden_states
        assert torch.equal(states[0], expected)
        assert all(
            torch.equal(value, plain.state_dict()[key]) for key, value in model.vision_model.state_dict().items()
        )


@pytest.mark.parametrize("name", BACKBONES)
@torch.no_grad()
def test_regions_are_the_means_of_cells(name, tmp_path):
    plain, own = saved_backbone(name, tmp_path)
    states = plain(**own(drawn_images(3), return_tensors="pt")).last_hidden_state
    if states.ndim == 3:
        cells = states[:, 1:] if name in ("vit", "dinov2", "clip") else states
        states = cells.transpose(1, 2).unflatten(2, (round(cells.shape[1] ** 0.5), -1))
    for grid in (1, 2):
        extractor = backbones.RegionExtractor.from_pretrained(tmp_path, grid=grid)
        found = extractor(drawn_images(3))
        assert found.shape == (3, *extractor.shape()) and extractor.shape() == (grid**2, states.shape[1])
        if grid == 1 or states.shape[2] % 2 == 0:
            side = states.shape[2] // grid
            parts = states.unfold(2, side, side).unfold(3, side, side).mean((4, 5))  # of each cell, row by row
            np.testing.assert_allclose(found, parts.flatten(2).transpose(1, 2).numpy(), rtol=1e-4, atol=1e-5)


def test_a_dual_encoder_lends_its_tower_and_its_image_processor(clip_folder):
    backbone = backbones.load_backbone(clip_folder)
    backbones.check_backbone(backbone, load_processor(AutoImageProcessor, clip_folder), "clip")
    config = LiweModel.config_class(vision_config=backbone.config, **MODELS[LiweModel])
    assert type(LiweModel(config).vision_model) is type(backbone)


IMAGE_PROCESSOR = square_image_processor(64)


@torch.no_grad()
def test_regions_are_the_surest_queries_states():
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    boxes = {"image_size": [64, 64], "patch_size": 16, "num_detection_tokens": 12, "num_labels": 5}
    model = YolosForObjectDetection(YolosConfig(**sizes, **boxes, initializer_range=0.5)).eval()
    torch.nn.init.normal_(model.vit.embeddings.detection_tokens)  # which are zeros at first: all queries the same
    found = backbones.RegionExtractor(model, IMAGE_PROCESSOR, max_regions=4, batch_size=5)(drawn_images(5))
    output = model(**IMAGE_PROCESSOR(drawn_images(5), return_tensors="pt"))
    assert found.shape == (5, 4, 16) and found.dtype == np.float32

    def surest(weights):
        """The states of the four queries of each image with the largest weight of a label."""
        order = weights.amax(-1).argsort(-1, descending=True)[:, :4]
        rows = zip(output.last_hidden_state[:, -12:], order, strict=True)
        return torch.stack([states[queries] for states, queries in rows]).numpy()

    powers = output.logits.double().exp()
    np.testing.assert_array_equal(found, surest(powers[..., :5] / powers.sum(-1, keepdim=True)))  # the last: no object
    # A detector without that logit decides about each label by itself.
    output.logits = 3 * torch.randn(5, 12, 6)
    by_itself, normalised = (backbones.query_regions(output, count, max_regions=4).numpy() for count in (6, 5))
    np.testing.assert_array_equal(by_itself, surest(1 / (1 + (-output.logits.double()).exp())))
    assert not np.array_equal(by_itself, normalised)


def test_versions_are_the_image_and_changed_ones_always_the_same(tmp_path):
    extractor = backbones.RegionExtractor(saved_backbone("resnet", tmp_path)[0], IMAGE_PROCESSOR, grid=2, batch_size=2)
    augmentation = ImageAugmentation(color_jitter=0.4, rotation=15)
    found = extractor.versions(drawn_images(3), augmentation, augmented=2)
    assert found.shape == (3, 3, 4, 16)
    np.testing.assert_array_equal(found[:, 0], extractor(drawn_images(3)))
    np.testing.assert_array_equal(extractor.versions(drawn_images(3), augmentation, augmented=2), found)
    for row in found:
        assert not any(np.allclose(row[one], row[other]) for one, other in ((0, 1), (0, 2), (1, 2)))
    alone = extractor(drawn_images(3)[2:], [5], augmentation)  # an image is changed by its own seed
    np.testing.assert_allclose(alone[0], found[2, 2], atol=1e-6)


CROP = 32


@pytest.fixture(scope="module")
def resnet(tmp_path_factory):
    folder = tmp_path_factory.mktemp("resnet")
    return folder, *saved_backbone("resnet", folder)


@pytest.fixture
def extract(resnet):
    return backbones.TenCropFeatures.from_pretrained(resnet[0], crop=CROP)


def random_image(width, height):
    pixels = np.random.default_rng(width).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def test_features_are_the_mean_over_ten_crops_cut_by_hand(extract, resnet):
    wide, high = random_image(60, 40), random_image(30, 45)
    _, model, own = resnet
    for image, size, (across, down) in ((wide, (54, 36), (22, 4)), (high, (36, 54), (4, 22))):
        pixels = np.asarray(image.resize(size, Image.Resampling.BICUBIC)) / 255
        places = [(0, 0), (across, 0), (0, down), (across, down), (across // 2, down // 2)]
        crops = [pixels[top : top + CROP, left : left + CROP] for left, top in places]
        crops += [crop[:, ::-1] for crop in crops]
        one_by_one = []
        for crop in crops:
            inputs = torch.from_numpy(((crop - own.image_mean) / own.image_std).transpose(2, 0, 1).copy()).float()[
                None
            ]
            with torch.no_grad():
                one_by_one.append(model(pixel_values=inputs).pooler_output.flatten())
        assert len({tuple(features.tolist()) for features in one_by_one}) == 10
        expected = torch.stack(one_by_one).mean(0).numpy()
        np.testing.assert_allclose(extract([image])[0], expected, rtol=1e-4, atol=1e-6)
    together = extract([wide, high])
    np.testing.assert_allclose(together, np.concatenate([extract([wide]), extract([high])]), rtol=1e-4, atol=1e-6)


def test_the_corpus_has_features_in_the_place_of_images(extract, tmp_path, monkeypatch):
    corpus = shapes_corpus()
    monkeypatch.setattr("babelens.cli.features._ROWS_PER_FILE", 6)
    write_features({"features": corpus}, extract, tmp_path / "features")
    assert len(list((tmp_path / "features").iterdir())) == 3
    found = load_captions(str(tmp_path / "features"))
    assert found.column_names == ["image_id", "captions", "features"]
    assert found["image_id"][:] == corpus["image_id"][:] and found["captions"][:] == corpus["captions"][:]
    expected = np.concatenate([extract([open_image(image)]) for image in corpus["image"]])
    np.testing.assert_allclose(np.array(found["features"][:]), expected, rtol=1e-4, atol=1e-6)
    with pytest.raises(InputError, match="exists"):
        write_features({"features": corpus}, extract, tmp_path / "features")
