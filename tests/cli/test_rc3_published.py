"""RC3's own recipes on a few rows in the layout in which the data sets are published, from the files to results: with
regions of 36 x 2048 numbers, under the names that each file of IGLUE has for its images."""

import json
import zlib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from babelens import Rc3Config
from babelens.cli.main import app
from babelens.training.loading import load_recipe
from babelens.utils.errors import RecipeError, RegionError
from tests.support.published_rc3 import (
    PATCHES,
    write_cc3m,
    write_marvl,
    write_mbart,
    write_multi30k,
    write_rc3,
    write_wikimatrix,
    write_wit,
    write_xflickrco,
    write_xgqa,
    write_xvnli,
)

# The paper's RC3-Combined, RC3-ROI and RC3-Patch: one pre-training, fine-tuned and evaluated with other images.
VARIANTS = {
    "both": {},
    "regions": {"model.overrides.visual": "regions"},
    "patches": {"model.overrides.visual": "patches", "regions": "null"},
}


def train(name: str, folder: Path, **changes) -> Path:
    """Runs a recipe of the package in a folder whose `data` are laid out as it names them."""
    settings = {
        "training.max_steps": 2,
        "training.per_device_train_batch_size": 2,
        "training.save_strategy": "no",
        "training.precision": "float32",
        "training.dataloader_num_workers": 0,
        "training.use_cpu": "true",
    }
    command = ["train", f"rc3/{name}", "--output", str(folder / "run")]
    for key, value in (settings | changes).items():
        command += ["--set", f"{key}={value}"]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return folder / "run"


def results(output: Path, task: str) -> dict[str, dict[str, dict[str, float]]]:
    return json.loads((output / "evaluation" / f"{task}.json").read_text())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with a pre-trained RC3 in `runs/rc3`."""
    monkeypatch.chdir(tmp_path)
    write_rc3()
    Path("data").mkdir()
    return tmp_path


@pytest.mark.parametrize("visual", ["both", "regions", "patches"])
def test_xvnli(folder, visual):
    """What a task reads of images is chosen when it is fine-tuned."""
    write_xvnli()
    output = train("xvnli", folder, **VARIANTS[visual])
    assert Rc3Config.from_pretrained(output).visual == visual
    assert results(output, "visual-entailment")["xvnli"].keys() == {"en", "fr"}


def test_xgqa(folder):
    write_xgqa()
    report = results(train("xgqa", folder), "visual-question-answering")
    assert report["xgqa"].keys() == {"en", "de", "id", "zh"}


def test_marvl(folder):
    write_marvl()
    report = results(train("marvl", folder, **{"training.eval_strategy": "no"}), "visual-reasoning")
    assert report["nlvr2"].keys() == {"en"} and report["marvl"].keys() == {"id", "zh"}


def test_retrieval(folder):
    """Flickr30K's regions are named without `.jpg`, those of xFlickr&CO with it."""
    write_xflickrco()
    report = results(train("itr", folder), "image-text-retrieval")
    assert report["xflickrco"].keys() == {"en", "de", "ja", "zh"}


def test_translation(folder):
    """Multi30K names its images with `.jpg`, and their regions do not."""
    pytest.importorskip("sacrebleu")
    write_multi30k()
    output = train("mmt-de", folder, **{"training.generation": "{num_beams: 1, max_new_tokens: 3}"})
    assert results(output, "translation").keys() == {"test2016", "test2017"}


# ---- Pre-training ----


PRETRAINING = {
    **{f"model.overrides.{name}": value for name, value in PATCHES.items()},
    "image.resize": 32,
    "image.crop": 32,
    "training.save_strategy": "steps",
    "training.logging_steps": 1,
    "train.strict.options.cache_dir": "cache",
    "train.weak.options.cache_dir": "cache",
}


@pytest.fixture
def pretraining(folder):
    write_cc3m(6)
    write_wit(4)
    write_wikimatrix("cs-en", "de-en", "de-fr", "en-id", "en-ja", "en-zh", "es-pt")
    write_mbart()
    return folder


CONTRASTS = {"xtcl_loss", "strict_contrast_loss", "weak_contrast_loss", "relevance_loss"}


@pytest.mark.parametrize(
    ("name", "without"),
    [
        ("base", set()),
        ("no-kl", {"relevance_loss"}),
        ("no-rxvtcl", CONTRASTS - {"xtcl_loss"}),
        ("no-contrast", CONTRASTS),
    ],
)
def test_pretraining(pretraining, name, without):
    read = load_recipe(f"rc3/{name}").train
    unread = {f"train.{task}.options.cache_dir" for task in {"strict", "weak"} - read.keys()}
    output = train(name, pretraining, **{key: value for key, value in PRETRAINING.items() if key not in unread})
    (state,) = (output / "checkpoints").glob("*/trainer_state.json")
    logged = json.loads(state.read_text())["log_history"][0]
    assert {"mclm_loss", "itm_loss"} | CONTRASTS - without <= logged.keys()
    assert not without & logged.keys()


def test_the_vocabulary_is_cut_down_to_all_texts_of_the_recipe(pretraining, monkeypatch):
    """CC3M's, WIT's and WikiMatrix', and those of the tasks, as the header of the recipe says."""
    for cache in ("conceptual_captions.CC3M_CACHE", "wit.DEFAULT_CACHE", "bitext.DEFAULT_CACHE"):
        monkeypatch.setattr(f"babelens.data.readers.{cache}", pretraining / "cache")
    Path("data/task-texts.txt").write_text("there is a dog")
    options = ["--recipe", "rc3/base", "--texts", "data/task-texts.txt", "--output", "runs/cut", "--json"]
    done = CliRunner().invoke(app, ["trim", "runs/mbart-50-trimmed", *options], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout[done.stdout.index("{") :])
    assert report["texts"] == 5 * 6 + 3 * 6 + 2 * 7 + 1 and report["coverage"] >= 0.9999


def test_an_image_without_regions_tells_what_the_files_names_look_like(pretraining):
    Path("data/cc3m/caption_train.json").write_text(json.dumps({str(zlib.crc32(b"http://images.com/5.jpg")): "a dog"}))
    changes = PRETRAINING | {"training.per_device_train_batch_size": 1}
    with pytest.raises(RegionError, match=r"training_feat_all.lmdb.*the names of its images look like '\d+', '\d+'"):
        train("base", pretraining, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image": None}, r"patches from images of 32 pixels \(image_size\), and without image they have 289"),
        ({"image.crop": 24}, r"image.crop is 24: set image: \{resize: 32, crop: 32\}"),
    ],
)
def test_patches_of_images_of_another_size_are_refused_before_the_training(pretraining, changes, message):
    settings = {key: value for key, value in PRETRAINING.items() if key != "image.crop"}
    if "image" in changes:
        settings = {key: value for key, value in settings.items() if not key.startswith("image.")} | {"image": "null"}
    else:
        settings |= changes
    with pytest.raises(RecipeError, match=message):
        train("base", pretraining, **settings)
    assert not Path("run").exists()


@pytest.mark.parametrize("name", ["base", "xvnli", "xgqa", "marvl", "itr", "mmt-de", "mmt-fr"])
def test_recipes_name_files_that_were_published(name):
    """IGLUE's list of region features, and VOLTA's of Conceptual Captions."""
    published = {
        "flickr30k_boxes36.h5",
        "vg-gqa_boxes36.h5",
        "nlvr2_boxes36.h5",
        "marvl-{language}_boxes36.h5",
        "xflickrco-test_boxes36.h5",
        "training_feat_all.lmdb",
    }
    files = load_recipe(f"rc3/{name}").regions.features
    assert {Path(file).name for file in ([files] if isinstance(files, str) else files)} <= published
