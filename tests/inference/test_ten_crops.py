"""Features of ten crops: equal to those of crops cut by hand, written whole or continued, and trained on."""

import json
import random
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from datasets import Dataset, DatasetDict, concatenate_datasets
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import AutoModel, BertConfig, BertModel, ConvNextImageProcessorPil, ResNetConfig, ResNetModel
from typer.testing import CliRunner

from babelens.cli.main import app
from babelens.data.batching.collators import CaptionedImages
from babelens.data.batching.views import images_of
from babelens.data.corpus.corpus import CAPTIONS
from babelens.data.corpus.loading import load_captions
from babelens.inference.backbones import TenCropFeatures, five_crops, load_backbone, write_features
from babelens.inference.embedder import Embedder
from babelens.processing.images import open_image
from babelens.utils.errors import CorpusError, ImageError, ModelKindError, SaveError
from tests.support.full_disk import full_disk
from tests.support.tiny_training import shapes_corpus, write_shapes

RESIZE, CROP, WIDTH = 36, 32, 12
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


@pytest.fixture(scope="module")
def resnet(tmp_path_factory):
    """A folder, as transformers saves a ResNet with its image processor."""
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


def test_a_long_thin_image_is_refused_before_it_is_resized(extract):
    with pytest.raises(ImageError, match="more than 100 times"):
        extract([Image.new("RGB", (1, 100_000))])


def test_crops_are_the_corners_and_the_centre():
    image = random_image(7, 4)
    pixels = np.asarray(image)
    found = [np.asarray(crop) for crop in five_crops(image, 4)]
    assert len(found) == 5
    for crop, left in zip(found, (0, 3, 0, 3, 1), strict=True):
        assert np.array_equal(crop, pixels[:, left : left + 4])


def test_a_dual_encoder_lends_its_vision_tower(clip_folder):
    extract = TenCropFeatures.from_pretrained(clip_folder, resize=20, crop=16)
    image = random_image(20, 20)
    assert extract([image]).shape == (1, 16)
    assert type(load_backbone(clip_folder)) is type(AutoModel.from_pretrained(clip_folder).vision_model)


def test_what_makes_no_features_is_refused(resnet, clip_folder, tmp_path):
    with pytest.raises(ModelKindError, match=r"crops of 32 x 32: .*16"):
        TenCropFeatures.from_pretrained(clip_folder, resize=RESIZE, crop=CROP)
    with pytest.raises(ValueError, match=r"crops of 37 pixels cannot be cut from .* has 36"):
        TenCropFeatures.from_pretrained(resnet, resize=36, crop=37)
    tiny = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    BertModel(BertConfig(**tiny, vocab_size=9)).save_pretrained(tmp_path)
    with pytest.raises(ModelKindError, match="has no vision model"):
        load_backbone(tmp_path)


# ---- A corpus of features ----


def test_the_corpus_has_features_in_the_place_of_images(extract, tmp_path):
    corpus = shapes_corpus()
    write_features(corpus, extract, tmp_path / "features", rows_per_file=6, batch_size=4)
    assert len(list((tmp_path / "features").iterdir())) == 3
    found = load_captions(str(tmp_path / "features"))
    assert found.column_names == ["image_id", "captions", "features"]
    assert found["image_id"][:] == corpus["image_id"][:] and found["captions"][:] == corpus["captions"][:]
    expected = np.concatenate([extract([open_image(image)]) for image in corpus["image"]])
    np.testing.assert_allclose(np.array(found["features"][:]), expected, rtol=1e-4, atol=1e-6)
    with pytest.raises(FileExistsError, match="choose another name"):
        write_features(corpus, extract, tmp_path / "features")


@pytest.mark.parametrize(("limit", "kept"), [(1000, 0), (20_000, 2)])
def test_a_full_disk_names_the_file_and_leaves_what_is_whole(extract, tmp_path, limit, kept):
    """The last file is larger than those before it."""
    corpus = shapes_corpus()
    captions = [[{"language": "en", "text": random.Random(row).randbytes(3000).hex()}] for row in range(4)]
    large = corpus.select(range(12, 16)).remove_columns("captions").add_column("captions", captions, feature=CAPTIONS)
    corpus = concatenate_datasets([corpus.select(range(8)), large.select_columns(corpus.column_names)])
    said = r"features-0000\d-of-00003\.parquet could not be written.*too large"
    with pytest.raises(OSError, match=said), full_disk(limit):
        write_features(corpus, extract, tmp_path / "out", rows_per_file=4)
    assert [path.name for path in tmp_path.iterdir()] == (["out.unfinished"] if kept else [])
    assert len(list(tmp_path.glob("out.unfinished/*"))) == kept
    write_features(corpus, extract, tmp_path / "out", rows_per_file=4)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


class Breaking(TenCropFeatures):
    """Fails, as a machine may, after some images."""

    left = 1000
    seen = 0

    def __call__(self, images):
        if len(images) > self.left:
            raise OSError("no power")
        self.left -= len(images)
        self.seen += len(images)
        return super().__call__(images)


@pytest.mark.parametrize("name", ["notes.txt", "train-00000-of-00001.parquet"])
def test_files_of_others_are_not_deleted(extract, tmp_path, name):
    """Where a folder of the user's has the name under which unfinished features are kept."""
    mine = tmp_path / "out.unfinished" / name
    mine.parent.mkdir()
    pq.write_table(pa.table({"a": [1]}), mine)
    before = mine.read_bytes()
    with pytest.raises(SaveError, match=name):
        write_features(shapes_corpus().select(range(2)), extract, tmp_path / "out")
    assert mine.read_bytes() == before


def test_a_run_that_was_broken_off_goes_on_with_what_has_not_changed(resnet, tmp_path):
    corpus = shapes_corpus()
    sizes = {"resize": RESIZE, "crop": CROP}
    options = {"rows_per_file": 6, "batch_size": 2}
    whole, first = (Breaking.from_pretrained(resnet, **sizes) for _ in range(2))
    write_features(corpus, whole, tmp_path / "whole", **options)
    first.left = 14
    with pytest.raises(OSError, match="no power"):
        write_features(corpus, first, tmp_path / "broken", **options)
    assert not (tmp_path / "broken").exists()
    shutil.copytree(tmp_path / "broken.unfinished", tmp_path / "other.unfinished")
    (tmp_path / "broken.unfinished" / ".unfinished-killed").mkdir()  # what a killed run was writing
    (tmp_path / "broken.unfinished" / ".unfinished-killed" / "features.parquet").write_bytes(b"half")
    again = Breaking.from_pretrained(resnet, **sizes)
    write_features(corpus, again, tmp_path / "broken", **options)
    assert (whole.seen, again.seen) == (16, 4)
    assert not (tmp_path / "broken.unfinished").exists()
    assert not list((tmp_path / "broken").glob(".unfinished-*"))
    for one, other in zip(*(sorted((tmp_path / name).iterdir()) for name in ("whole", "broken")), strict=True):
        assert one.read_bytes() == other.read_bytes()
    # with other crops, or another corpus, nothing of it is used
    other = Breaking.from_pretrained(resnet, resize=40, crop=CROP)
    write_features(corpus.select(range(8)), other, tmp_path / "other", **options)
    assert other.seen == len(load_captions(str(tmp_path / "other"))) == 8


@pytest.mark.parametrize(
    ("file", "key", "value"),
    [("config.json", "hidden_act", "gelu"), ("preprocessor_config.json", "image_mean", [0.1] * 3), (None, None, None)],
)
def test_features_of_a_changed_backbone_are_others(resnet, tmp_path, file, key, value):
    """What a broken-off run left is taken for that of the same backbone alone: weights, configuration, processor."""
    folder = shutil.copytree(resnet, tmp_path / "resnet")
    before = TenCropFeatures.from_pretrained(folder).fingerprint
    if file is None:
        weights = load_file(folder / "model.safetensors")
        save_file({name: -weight for name, weight in weights.items()}, folder / "model.safetensors", {"format": "pt"})
    else:
        content = json.loads((folder / file).read_text())
        assert content[key] != value
        (folder / file).write_text(json.dumps(content | {key: value}))
    assert TenCropFeatures.from_pretrained(folder).fingerprint != before


def test_the_command_writes_what_smalr_trains_on_and_is_evaluated_with(resnet, tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    write_shapes(images)
    output = tmp_path / "features"
    run("features", resnet, "--data", images, "--output", output, "--resize", RESIZE, "--crop", CROP)
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
    assert '"n_images": 16' in run("evaluate", "captions", tmp_path / "run", "--data", output, "--json").output


def test_the_splits_of_a_data_set_become_splits_of_one_folder(resnet, tmp_path):
    """As `smalr/smalr` reads them: training and validation from one folder."""
    corpus = shapes_corpus()
    parts = {"train": range(10), "validation": range(10, 13), "test_2016": range(13, 16)}
    data = DatasetDict({split: corpus.select(rows) for split, rows in parts.items()})
    data.save_to_disk(tmp_path / "data")
    options = ("--resize", RESIZE, "--crop", CROP)
    run(
        "features",
        resnet,
        "--data",
        tmp_path / "data",
        "--split",
        ",".join(parts),
        "--output",
        tmp_path / "f",
        *options,
    )
    for split, rows in parts.items():
        found = load_captions(str(tmp_path / "f"), split=split)
        assert found["image_id"][:] == data[split]["image_id"][:] and len(found) == len(rows)
    with pytest.raises(CorpusError, match="choose a split to load"):
        load_captions(str(tmp_path / "f"))


def run(*arguments):
    done = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done


def test_the_command_says_which_option_is_wrong(resnet, clip_folder, tmp_path):
    new = tmp_path / "features"
    for model, output, crop, complaint in (
        (clip_folder, new, 32, "CLIPVisionModel"),
        (tmp_path, new, 32, str(tmp_path)),
        (resnet, new, 600, "--crop"),
        (resnet, tmp_path, 32, str(tmp_path)),
    ):
        command = ["features", str(model), "--data", "x", "--output", str(output), "--crop", str(crop)]
        done = CliRunner().invoke(app, command)
        assert done.exit_code in (1, 2) and complaint in f"{done.output} {done.exception}", done.output


# ---- Features in the place of images ----


def featured(*widths):
    rows = [
        {"image_id": str(row), "captions": [{"language": "en", "text": f"thing {row}"}], "features": [0.5] * width}
        for row, width in enumerate(widths)
    ]
    return Dataset.from_list(rows)


def test_features_of_several_lengths_are_refused():
    with pytest.raises(CorpusError, match="one length, not of 3 and 4 numbers"):
        CaptionedImages(featured(3, 4)).__getitems__([0, 1])


def test_a_model_that_takes_images_refuses_features(clip_parts):
    with pytest.raises(TypeError, match="CLIPModel reads images"):
        Embedder(*clip_parts).encode_image(images_of(featured(3)))


def test_features_of_another_width_are_refused(make_smalr):
    model, processor = make_smalr()
    with pytest.raises(ValueError, match="image_features have the width 3; this model takes 24"):
        Embedder(model, processor).encode_image(images_of(featured(3)))


def test_texts_are_read_without_features():
    assert "image_features" not in CaptionedImages(featured(3), with_images=False).__getitems__([0])[0]
