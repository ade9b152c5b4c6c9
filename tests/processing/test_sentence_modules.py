import numpy as np
import pytest
import torch

from babelens import Embedder
from babelens.inference.rc3_pipelines import CrossEncoderModule
from babelens.processing.sentence_modules import DualEncoderModule
from babelens.utils.errors import InputError
from tests.contracts import drawn_images
from tests.support.tiny_cross_encoder import tiny_cross_encoder


@pytest.fixture
def module(make_mla):
    return DualEncoderModule(*make_mla()).eval()


def test_texts_and_images_have_the_embeddings_of_the_embedder(module):
    embedder, images = Embedder(module.model, module.processor), drawn_images(2)
    texts = [{"text": "ein rotes Auto", "language": "de"}, {"text": "a red car", "language": "en"}]
    with torch.no_grad():
        found = module(module.preprocess(texts))["sentence_embedding"].numpy()
        seen = module(module.preprocess(images))["sentence_embedding"].numpy()
        prompted = module(module.preprocess(["ein rotes Auto"], prompt="de"))["sentence_embedding"].numpy()
    wanted = embedder.encode_text([each["text"] for each in texts], language=["de", "en"])
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    np.testing.assert_allclose(prompted[0], wanted[0], atol=1e-6)
    np.testing.assert_allclose(seen, embedder.encode_image(images), atol=1e-6)
    assert module.get_embedding_dimension() == wanted.shape[1] and module.modalities == ["text", "image"]


def test_what_is_not_one_kind_of_input_in_one_language_is_refused(module):
    image = drawn_images(1)[0]
    for inputs, options in (
        (["a red car"], {"prompt": "de", "language": "de"}),
        (["a red car"], {"language": ["de"]}),
        (["a red car", image], {"language": "en"}),
        ([{"caption": "a red car"}], {"language": "en"}),
        ([{"text": 1}], {"language": "en"}),
        (["a red car"], {"processing_kwargs": {"text": {"max_length": 2}}}),
    ):
        with pytest.raises(InputError):
            module.preprocess(inputs, **options)


def test_a_judge_scores_pairs_of_a_text_and_an_image():
    model, processor = tiny_cross_encoder(["ein Hund"], ["en", "de"])
    module, image = CrossEncoderModule(model, processor).eval(), drawn_images(1)[0]
    with torch.no_grad():
        found = module(module.preprocess([("ein Hund", image), (image, "ein Hund")], language="de"))["scores"]
    assert found.shape == (2, 1) and found[0] == found[1]
    with pytest.raises(InputError, match="pair"):
        module.preprocess([(image, image)], language="de")
