"""Processors, embedders, language tags and images take any input or refuse it with a typed error."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from babelens.inference import Embedder
from babelens.processing.images import MAX_ASPECT, check_image, open_image
from babelens.utils.errors import BabelensError, ImageError, LanguageTagError
from babelens.utils.languages import language_and_script, normalize_language
from tests.fuzz.strategies import ANY_TEXT, NO_TEXT, TAG, arrays, image_files

# Pillow warns of files that it can read all the same.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:PIL")
METHODS = ["make_mural", "make_ridge", "make_smalr"]


@pytest.fixture(scope="module", params=METHODS)
def embedder(request):
    return Embedder(*request.getfixturevalue(request.param)())


@given(TAG)
def test_a_tag_names_a_language_or_is_refused(tag):
    try:
        normal = normalize_language(tag)
    except LanguageTagError:
        return
    assert normalize_language(normal) == normal
    assert language_and_script(normal)


@given(
    texts=st.one_of(st.lists(st.one_of(ANY_TEXT, NO_TEXT), max_size=3), ANY_TEXT, NO_TEXT),
    tag=TAG,
    known=st.booleans(),
)
def test_texts_are_embedded_or_refused(embedder, texts, tag, known):
    language = embedder.processor.languages[0] if known and getattr(embedder.processor, "languages", None) else tag
    try:
        embeddings = embedder.encode_text(texts, language=language)
    except BabelensError as error:
        assert str(error)
        return
    assert len(embeddings) == (1 if isinstance(texts, str) else len(texts))
    assert np.isfinite(embeddings).all()


@given(st.one_of(image_files(), arrays(), ANY_TEXT, NO_TEXT))
def test_images_are_embedded_or_refused(embedder, image):
    with torch.no_grad():
        try:
            embeddings = embedder.encode_image([image])
        except BabelensError as error:
            assert str(error)
            return
    assert embeddings.shape[0] == 1 and np.isfinite(embeddings).all()


@given(image_files())
def test_an_image_is_opened_as_rgb_or_refused(data):
    try:
        image = open_image(data)
    except ImageError as error:
        assert str(error)
        return
    assert image.mode == "RGB" and max(image.size) <= MAX_ASPECT * min(image.size)
    check_image(data)  # in less time, and as lenient
