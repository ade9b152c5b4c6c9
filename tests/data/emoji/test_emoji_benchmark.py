"""The real emoji benchmark, built from its sources (`make test-slow`): manifest, coverage, a split without leaks."""

import hashlib
import json
import re
from collections import Counter, defaultdict
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset

from babelens.data.emoji.benchmark import (
    DEFAULT_CACHE,
    VENDORS,
    emoji_licenses,
    emoji_manifest,
    load_emoji,
    published_manifest,
)
from babelens.data.emoji.build import content_digest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

REFERENCE_LANGUAGES = "en de fr cs zh ja es ru ko tr hi id sw pt nl sv pl uk ar th fi yo"
# Words by which CLDR's names of two variants differ; kept apart from the ones that the split is made with.
VARIANT_WORDS = {"man", "men", "woman", "women", "person", "people", "facing", "right"}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache without tables, so that they are built here; packages are kept from run to run, and checked."""
    folder = tmp_path_factory.mktemp("emoji")
    packages = DEFAULT_CACHE / "packages"
    packages.mkdir(parents=True, exist_ok=True)
    (folder / "packages").symlink_to(packages, target_is_directory=True)
    return folder


@pytest.fixture(scope="module")
def corpus(cache: Path) -> Dataset:
    return load_emoji(cache_dir=cache)


@pytest.fixture(scope="module")
def split_of(corpus: Dataset) -> dict[str, str]:
    """Concept id -> split, which is the same for all vendors."""
    pairs = set(zip(corpus["image_id"], corpus["split"], strict=True))
    split_of = dict(pairs)
    assert len(pairs) == len(split_of)
    return split_of


@pytest.fixture(scope="module")
def english(corpus: Dataset) -> dict[str, str]:
    """English name -> concept id."""
    columns = corpus.select_columns(["image_id", "captions"])
    names = {text["text"]: row["image_id"] for row in columns for text in row["captions"] if text["language"] == "en"}
    assert len(names) == 1911
    return names


@pytest.fixture(scope="module")
def pixels(corpus: Dataset) -> dict[str, dict[str, np.ndarray]]:
    """Vendor -> concept id -> pixels."""
    pixels: dict[str, dict[str, np.ndarray]] = {vendor: {} for vendor in VENDORS}
    for row in corpus.select_columns(["vendor", "image_id", "image"]):
        pixels[row["vendor"]][row["image_id"]] = np.asarray(row["image"])
    return pixels


def test_the_manifest_is_the_published_one_to_the_byte(cache: Path, corpus: Dataset) -> None:
    manifest = emoji_manifest(cache_dir=cache)
    assert manifest == published_manifest()
    text = json.dumps(manifest, ensure_ascii=False, indent=2) + "\n"
    assert text == files("babelens.data.emoji").joinpath("manifest.json").read_text("utf-8")
    assert manifest["content_sha256"] == content_digest(corpus)


def test_counts(corpus: Dataset, split_of: dict[str, str]) -> None:
    assert Counter(split_of.values()) == {"train": 1285, "validation": 176, "test": 450}
    assert Counter(corpus["vendor"]) == {"twemoji": 1875, "openmoji": 1911, "fluent": 1595, "noto": 1910}
    flags = {row["image_id"] for row in corpus.remove_columns("image") if row["category"] == "Flags"}
    assert Counter(split_of[identifier] for identifier in flags) == {"train": 186, "validation": 34, "test": 50}


def test_vendors_draw_nearly_everything_but_fluent_flags(corpus: Dataset) -> None:
    ids_of = defaultdict(set)
    for row in corpus.select_columns(["vendor", "image_id", "category"]):
        if row["category"] != "Flags":
            ids_of[row["vendor"]].add(row["image_id"])
    assert {vendor: len(ids) for vendor, ids in ids_of.items()} == {
        "twemoji": 1606,
        "openmoji": 1641,
        "fluent": 1587,
        "noto": 1641,
    }


def test_every_language_names_most_concepts_and_each_once(corpus: Dataset) -> None:
    names: dict[str, list[str]] = defaultdict(list)
    for row in corpus.filter(lambda vendor: vendor == "openmoji", input_columns="vendor").remove_columns("image"):
        languages = [text["language"] for text in row["captions"]]
        assert len(languages) == len(set(languages))
        for text in row["captions"]:
            assert text["text"] == text["text"].strip() != ""
            names[text["language"]].append(text["text"])
    assert len(names) == 120
    assert not {"en-GB", "es-MX", "und"} & set(names)
    assert min(map(len, names.values())) == 1200
    used_twice = {tag: len(texts) - len(set(texts)) for tag, texts in names.items() if len(texts) != len(set(texts))}
    assert used_twice == {"az": 1, "te": 1}


@pytest.mark.parametrize("tag", REFERENCE_LANGUAGES.split())
def test_languages_of_the_reference_figures_name_all_but_three(tag: str, cache: Path) -> None:
    assert emoji_manifest(cache_dir=cache)["languages"][tag] >= 1908


def test_no_image_is_on_two_sides(pixels: dict[str, dict[str, np.ndarray]], split_of: dict[str, str]) -> None:
    for vendor, images in pixels.items():
        splits_of_image = defaultdict(set)
        for identifier, image in images.items():
            splits_of_image[hashlib.sha256(image.tobytes()).digest()].add(split_of[identifier])
        assert all(len(splits) == 1 for splits in splits_of_image.values()), vendor
        assert len(splits_of_image) < len(images) or vendor == "fluent"  # there are some, so the test can fail


def test_no_near_copy_is_on_another_side(pixels: dict[str, dict[str, np.ndarray]], split_of: dict[str, str]) -> None:
    """Peak signal-to-noise ratio below 30 dB between any two images of a vendor on different sides."""
    for vendor, images in pixels.items():
        splits = np.array([split_of[identifier] for identifier in images])
        flat = np.stack([image.ravel() for image in images.values()]).astype(np.float32)
        power = (flat**2).sum(axis=1)
        squared_error = (power[:, None] + power[None, :] - 2 * flat @ flat.T) / flat.shape[1]  # [N, N]
        squared_error[splits[:, None] == splits[None, :]] = np.inf
        assert 10 * np.log10(255**2 / squared_error.min()) < 30, vendor


def test_variants_are_on_one_side(english: dict[str, str], split_of: dict[str, str]) -> None:
    splits_of_thing = defaultdict(set)
    for name, identifier in english.items():
        thing = " ".join(word for word in name.replace(":", "").split() if word not in VARIANT_WORDS)
        splits_of_thing[thing].add(split_of[identifier])
    assert all(len(splits) == 1 for splits in splits_of_thing.values())


@pytest.mark.parametrize(
    ("pattern", "number"),
    [
        (r".* o’clock|.*-thirty", 24),
        (r"(up|down|left|right)\b.* arrow\b.*", 14),
        (r"(red|orange|yellow|green|blue|purple|brown|black|white|light blue|grey|pink) heart", 12),
        (r"(red|orange|yellow|green|blue|purple|brown|black|white) circle", 9),
        (r"(red|orange|yellow|green|blue|purple|brown|black|white)\b.* square", 15),
        (r"(green|blue|orange) book", 3),
        (r"family.*", 30),
        (r"keycap: .*", 13),
        (r"kiss|kiss: .*", 4),
        (r"couple with heart.*", 4),
    ],
)
def test_series_are_on_one_side(english: dict[str, str], split_of: dict[str, str], pattern: str, number: int) -> None:
    members = [name for name in english if re.fullmatch(pattern, name)]
    assert len(members) == number
    assert len({split_of[english[name]] for name in members}) == 1


def test_every_source_is_named_with_its_license(corpus: Dataset) -> None:
    for source in emoji_licenses():
        assert source["license"] in corpus.info.license
        assert source["attribution"] in corpus.info.citation
