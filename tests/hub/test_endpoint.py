"""The handler of an Inference Endpoint, over HTTP. As huggingface-inference-toolkit does, `toolkit` imports
`handler.py` by its path, reads a body of JSON or an image by its content type, and answers any exception with status
400."""

import base64
import importlib.util
import io
import json

import pytest
from PIL import Image
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.testclient import TestClient

LABELS = ["ein rotes auto", "un chien gris"]


def toolkit(folder):
    specification = importlib.util.spec_from_file_location("handler", folder / "handler.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    handler = module.EndpointHandler(str(folder))

    async def predict(request):
        try:
            body = await request.body()
            if request.headers["content-type"] == "application/json":
                data = json.loads(body)
            else:
                data = {"inputs": Image.open(io.BytesIO(body))}
            if "inputs" not in data:
                raise ValueError("Body needs to provide a inputs key")
            if request.query_params and "parameters" not in data:
                data["parameters"] = dict(request.query_params)
            return JSONResponse(handler(data))
        except Exception as error:
            return JSONResponse({"error": str(error)}, 400)

    return Starlette(routes=[Route("/", predict, methods=["POST"])])


@pytest.fixture(scope="module")
def client(finished):
    with TestClient(toolkit(finished)) as client:
        yield client


@pytest.fixture(scope="module")
def image(finished):
    return (finished / "examples/auto.png").read_bytes()


def encoded(content):
    return base64.b64encode(content).decode()


def test_an_image_and_labels_in_two_languages(client, image):
    parameters = {"candidate_labels": LABELS}
    first = client.post("/", json={"inputs": encoded(image), "parameters": parameters})
    assert first.status_code == 200 and {answer["label"] for answer in first.json()} == set(LABELS)
    assert sum(answer["score"] for answer in first.json()) == pytest.approx(1)
    scores = [answer["score"] for answer in first.json()]
    assert scores == sorted(scores, reverse=True)
    as_address = {"inputs": f"data:image/png;base64,{encoded(image)}", "parameters": parameters}
    in_sentence = {"inputs": encoded(image), "parameters": parameters | {"hypothesis_template": "das ist {}"}}
    assert client.post("/", json=as_address).json() == first.json() != client.post("/", json=in_sentence).json()


GOOD = {"candidate_labels": LABELS}


def test_transparency_lies_on_white(client):
    answers = []
    for image in (Image.new("RGBA", (40, 40), (255, 0, 0, 0)), Image.new("RGB", (40, 40), "white")):
        content = io.BytesIO()
        image.save(content, "PNG")
        answers.append(client.post("/", json={"inputs": encoded(content.getvalue()), "parameters": GOOD}))
    assert answers[0].status_code == 200 and answers[0].json() == answers[1].json()


@pytest.mark.parametrize(
    ("inputs", "parameters", "message"),
    [
        ("no base64!", GOOD, "'inputs' is not a readable image in base64"),
        (["https://example.com/cat.png"], GOOD, "not of type list"),
        (..., {}, "needs 'candidate_labels'"),
        (..., GOOD | {"hypothesis_template": "{} {name}"}, "one {} for the label, and no other braces"),
    ],
)
def test_a_wrong_request_is_told_what_is_wrong(client, image, inputs, parameters, message):
    sent = {"inputs": encoded(image) if inputs is ... else inputs, "parameters": parameters}
    answer = client.post("/", json=sent)
    assert answer.status_code == 400 and message in answer.json()["error"]
    assert "\n" not in answer.json()["error"] and len(answer.json()["error"]) < 200


def test_an_image_that_is_a_bomb(client):
    bomb = io.BytesIO()
    Image.new("1", (20_000, 20_000)).save(bomb, "PNG")
    answer = client.post("/", json={"inputs": encoded(bomb.getvalue()), "parameters": GOOD})
    assert answer.status_code == 400 and "not a readable image in base64" in answer.json()["error"]
