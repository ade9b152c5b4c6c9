import pytest

from babelens.inference.rc3_pipelines import CrossEncoderModule
from babelens.processing.sentence_modules import DualEncoderModule
from babelens.utils.errors import InputError
from tests.contracts import drawn_images
from tests.support.tiny_cross_encoder import tiny_cross_encoder


@pytest.fixture
def module(make_mla):
    return DualEncoderModule(*make_mla()).eval()


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


def test_a_judge_reads_a_text_with_an_image():
    module, image = CrossEncoderModule(*tiny_cross_encoder(["ein Hund"], ["en", "de"])), drawn_images(1)[0]
    with pytest.raises(InputError, match="pair"):
        module.preprocess([(image, image)], language="de")
