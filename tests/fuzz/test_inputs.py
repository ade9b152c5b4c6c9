"""Processors, embedders, language tags and images take any input or refuse it with a typed error."""

import pytest
from hypothesis import given

from babelens.processing.images import MAX_ASPECT, check_image, open_image
from babelens.utils.errors import ImageError, LanguageTagError
from babelens.utils.language_matching import language_and_script
from babelens.utils.languages import normalize_language
from tests.fuzz.strategies import TAG, image_files

# Pillow warns of files that it can read all the same.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:PIL")


@given(TAG)
def test_a_tag_names_a_language_or_is_refused(tag):
    try:
        normal = normalize_language(tag)
    except LanguageTagError:
        return
    assert normalize_language(normal) == normal
    assert language_and_script(normal)


@given(image_files())
def test_an_image_is_opened_as_rgb_or_refused(data):
    try:
        image = open_image(data)
    except ImageError as error:
        assert str(error)
        return
    assert image.mode == "RGB" and max(image.size) <= MAX_ASPECT * min(image.size)
    check_image(data)  # in less time, and as lenient
