"""Inference Endpoints: classifies an image by labels in any language of the model in this folder.

Request: `{"inputs": "<image, base64>", "parameters": {"candidate_labels": ["…", "…"]}}`; answer: `[{"label": "…",
"score": 0.9}, …]`, best first. Two more parameters are optional: `"hypothesis_template": "… {} …"` puts the labels
into a sentence, and `"language": "de"` states their language. The model's processor adds its prompt. The server
answers a `ValueError` with its message.
"""

import base64
import binascii
import io
import warnings
from typing import Any

from PIL import Image
from transformers import pipeline


class EndpointHandler:
    def __init__(self, path: str = "") -> None:
        self.classifier = pipeline("zero-shot-image-classification", model=path, trust_remote_code=True)

    def __call__(self, data: dict[str, Any]) -> list[dict[str, Any]]:
        return self.classifier(_image(data.get("inputs")), **_parameters(data.get("parameters") or {}))


def _image(given: Any) -> Image.Image:
    """Reads the image of a request; never an address or a path, which the pipeline would follow."""
    if not isinstance(given, str | Image.Image):  # the server opens a request whose body is an image
        raise ValueError(f"'inputs' must be an image in base64, not of type {type(given).__name__}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            if isinstance(given, str):
                content = base64.b64decode(given.partition(";base64,")[2] or given, validate=True)
                given = Image.open(io.BytesIO(content))
            given.load()  # now, so that an error names the request
            return given
    except (binascii.Error, OSError, SyntaxError, ValueError, Image.DecompressionBombError, Warning) as error:
        raise ValueError(f"'inputs' is not a readable image in base64: {error}") from error


def _parameters(given: dict[str, Any]) -> dict[str, Any]:
    labels, template = given.get("candidate_labels"), given.get("hypothesis_template", "{}")
    if isinstance(labels, str):
        labels = [label.strip() for label in labels.split(",")]
    if not isinstance(labels, list) or not labels or not all(isinstance(each, str) and each for each in labels):
        raise ValueError("'parameters' needs 'candidate_labels', a list of texts that are not empty")
    if not isinstance(template, str) or template.count("{}") != 1 or template.count("{") != 1:
        raise ValueError("'hypothesis_template' must be a text with one {} for the label, and no other braces")
    return given | {"candidate_labels": labels, "hypothesis_template": template}
