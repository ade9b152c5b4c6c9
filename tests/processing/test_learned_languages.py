import pytest
import torch

from babelens.inference.embedder import Embedder
from babelens.utils.errors import LanguageTagError


@pytest.mark.parametrize("factory", ["make_mla", "make_ridge", "make_smalr"])
def test_a_language_goes_by_several_tags(factory, request):
    _, processor = request.getfixturevalue(factory)()
    learned = processor.languages[-1]
    one, other = (processor(text="ein Hund", language=tag, return_tensors="pt") for tag in (learned, f"{learned}-AT"))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    with pytest.raises(LanguageTagError, match="'mi'"):
        processor(text="ein Hund", language="mi")


def test_native_texts_of_any_country_are_native(make_mla, make_mla_student, make_ridge):
    for model, processor in (make_mla(), make_ridge(), make_mla_student(native_texts="native")):
        embedder = Embedder(model, processor)
        found = embedder.encode_text(["a red dog"] * 3, language=["en", "en-GB", "en-Latn-US"])
        assert (found == found[0]).all()
