"""The real emoji benchmark and CLDR's names, from their pinned packages (`make test-slow`)."""

import hashlib
import json

import pytest

from babelens.data.corpus.corpus import languages_of
from babelens.data.emoji.benchmark import load_emoji, published_manifest
from babelens.data.emoji.build import DEFAULT_CACHE
from babelens.data.emoji.names import names_for, names_of_emoji

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def test_every_build_has_the_published_texts_and_pixels(tmp_path):
    """Pixels do not depend on the compression of the images."""
    (DEFAULT_CACHE / "packages").mkdir(parents=True, exist_ok=True)
    (tmp_path / "packages").symlink_to(DEFAULT_CACHE / "packages", target_is_directory=True)  # fetched once, checked
    corpus, published, digest = load_emoji(cache_dir=tmp_path), published_manifest(), hashlib.sha256()
    for row in corpus:
        image = row.pop("image")
        digest.update(json.dumps(row, ensure_ascii=False, sort_keys=True).encode("utf-8"))
        digest.update(image.tobytes())
    assert digest.hexdigest() == published["content_sha256"]
    assert "CC-BY-SA-4.0" in corpus.info.license and "All emojis designed by OpenMoji" in corpus.info.citation
    assert {*languages_of(corpus)} == {*published["languages"]}
    for split, facts in published["splits"].items():
        assert corpus["split"][:].count(split) == facts["images"]


def test_the_pinned_package_has_names_in_many_languages():
    names = names_of_emoji()
    assert len(names.languages) >= 110 and {"mi", "uk", "zh", "sw", "qu"} <= set(names.languages)
    (words, english), (_, keywords) = names.translations("de", "en", 0.2).groups
    assert 1300 < len(words) < 1600 and 1200 < len(keywords) < 1500
    assert dict(zip(english, words, strict=True))["dog"] == "Hund"
    rwandan = [each.name for each in names.named("rw").values()][::3]
    # Rundi has no names; its sentences look like Kinyarwanda, and are taken for it.
    assert names_for({"rn": rwandan}, "en", names)["rn"].language == "rw"
