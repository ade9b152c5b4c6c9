"""The real emoji benchmark and CLDR's names, from their pinned packages (`make test-slow`)."""

import json
from importlib.resources import files

import pytest

from babelens.data.emoji.benchmark import (
    DEFAULT_CACHE,
    emoji_manifest,
    load_emoji,
    load_emoji_names,
    published_manifest,
)
from babelens.data.emoji.build import content_digest
from babelens.emoji_names import names_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def test_the_manifest_is_the_published_one_to_the_byte(tmp_path):
    """Counts, splits and languages, and a digest of all texts and pixels."""
    (DEFAULT_CACHE / "packages").mkdir(parents=True, exist_ok=True)
    (tmp_path / "packages").symlink_to(DEFAULT_CACHE / "packages", target_is_directory=True)  # fetched once, checked
    corpus, manifest = load_emoji(cache_dir=tmp_path), emoji_manifest(cache_dir=tmp_path)
    assert manifest == published_manifest()
    text = json.dumps(manifest, ensure_ascii=False, indent=2) + "\n"
    assert text == files("babelens.data.emoji").joinpath("manifest.json").read_text("utf-8")
    assert manifest["content_sha256"] == content_digest(corpus)


def test_the_pinned_package_has_names_in_many_languages():
    names = load_emoji_names()
    assert len(names.languages) >= 110 and {"mi", "uk", "zh", "sw", "qu"} <= set(names.languages)
    (words, english), (_, keywords) = names.translations("de", "en", 0.2).groups
    assert 1500 < len(words) < 2000 and 1500 < len(keywords) < 2000
    assert dict(zip(english, words, strict=True))["dog"] == "Hund"
    # Rundi has no names; its sentences look like Kinyarwanda, and are taken for it by what they look like.
    kinyarwanda = names.sample("rw")
    assert names_for({"rn": kinyarwanda}, "en", names)["rn"].language == "rw"
