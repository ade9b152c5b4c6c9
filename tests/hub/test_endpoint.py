import base64
import importlib.util
import io
import json

import pytest
from PIL import Image

LABELS = ["ein rotes auto", "un chien gris"]
GOOD = {"candidate_labels": LABELS}


@pytest.fixture(scope="module")
def answer(finished):
    """Asks the handler, which huggingface-inference-toolkit imports by its path."""
    specification = importlib.util.spec_from_file_location("handler", finished / "handler.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    handler = module.EndpointHandler(str(finished))
    return lambda inputs, **parameters: json.loads(json.dumps(handler({"inputs": inputs, "parameters": parameters})))


@pytest.fixture(scope="module")
def image(finished):
    return encoded(Image.open(finished / "examples/auto.png"))


def encoded(image):
    content = io.BytesIO()
    image.save(content, "PNG")
    return base64.b64encode(content.getvalue()).decode()


def test_an_image_and_labels_in_two_languages(answer, image):
    first = answer(image, **GOOD)
    assert {each["label"] for each in first} == set(LABELS)
    scores = [each["score"] for each in first]
    assert scores == sorted(scores, reverse=True) and sum(scores) == pytest.approx(1)
    assert answer(f"data:image/png;base64,{image}", **GOOD) == first
    assert answer(image, **GOOD, hypothesis_template="das ist {}") != first


def test_transparency_lies_on_white(answer):
    clear, white = Image.new("RGBA", (40, 40), (255, 0, 0, 0)), Image.new("RGB", (40, 40), "white")
    assert answer(encoded(clear), **GOOD) == answer(encoded(white), **GOOD)


@pytest.mark.parametrize(
    ("inputs", "parameters", "message"),
    [
        ("no base64!", GOOD, "'inputs' is not a readable image in base64"),
        (["https://example.com/cat.png"], GOOD, "not of type list"),
        (..., {}, "needs 'candidate_labels'"),
        (..., GOOD | {"hypothesis_template": "{} {name}"}, "one {} for the label, and no other braces"),
    ],
)
def test_a_wrong_request_is_told_what_is_wrong(answer, image, inputs, parameters, message):
    with pytest.raises(ValueError) as refused:
        answer(image if inputs is ... else inputs, **parameters)
    told = str(refused.value)
    assert message in told and "\n" not in told and len(told) < 200


def test_an_image_that_is_a_bomb(answer):
    with pytest.raises(ValueError, match="not a readable image in base64"):
        answer(encoded(Image.new("1", (20_000, 20_000))), **GOOD)
