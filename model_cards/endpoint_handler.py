"""Inference Endpoints: classifies an image by labels in any language of the model in this folder.

Request: `{"inputs": "<image, base64>", "parameters": {"candidate_labels": ["…", "…"]}}`; answer:
`[{"label": "…", "score": 0.9}, …]`, best first. `"hypothesis_template": "… {} …"` among the parameters puts the labels
into a sentence; otherwise they are taken as they are. The model's processor puts its own prompt before both.
`"language": "de"` states the language of the labels.

The server answers a `ValueError` with its message, which therefore says what is wrong with the request.
"""

import base64
import binascii
import io
import warnings
from typing import Any

from PIL import Image
from PIL.ImageOps import exif_transpose
from transformers import pipeline


class EndpointHandler:
    def __init__(self, path: str = "") -> None:
        self.classifier = pipeline("zero-shot-image-classification", model=path, trust_remote_code=True)

    def __call__(self, data: dict[str, Any]) -> list[dict[str, Any]]:
        if "inputs" not in data:
            raise ValueError("the request has no 'inputs': the image, in base64")
        image, labels, others = _image(data["inputs"]), *_parameters(data.get("parameters"))
        return self.classifier(image, candidate_labels=labels, **others)


def _image(given: Any) -> Image.Image:
    """The image of a request; addresses and paths, which the pipeline would follow, are not images."""
    if not isinstance(given, str | Image.Image):  # an image is that of a request whose body it is
        raise ValueError(f"'inputs' is the image, in base64, and not of type {type(given).__name__}")
    try:
        if isinstance(given, Image.Image):
            return _as_rgb(given)
        content = base64.b64decode(given.partition(";base64,")[2] or given, validate=True)
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            return _as_rgb(Image.open(io.BytesIO(content)))
    except (binascii.Error, OSError, SyntaxError, ValueError, Image.DecompressionBombError, Warning) as error:
        raise ValueError(f"'inputs' is not an image in base64 that can be read: {error}") from error


def _as_rgb(image: Image.Image) -> Image.Image:
    """An image as the model's processor reads it: upright, and transparency laid on white. Gray values of more than 8
    bits are left to the processor, which scales them by their range."""
    image = exif_transpose(image)
    if image.mode.startswith(("I", "F")):
        return image
    if not image.has_transparency_data:
        return image.convert("RGB")
    image = image.convert("RGBA")
    white = Image.new("RGB", image.size, "white")
    white.paste(image, mask=image)
    return white


def _parameters(given: Any) -> tuple[list[str], dict[str, str]]:
    """The labels of a request; its template and, if it is given, the language of the labels."""
    if not isinstance(given, dict) or "candidate_labels" not in given:
        raise ValueError("the request has no 'parameters' with 'candidate_labels': a list of texts")
    if unknown := sorted(set(given) - {"candidate_labels", "hypothesis_template", "language"}):
        raise ValueError(
            f"'parameters' has candidate_labels, hypothesis_template and language, and no {', '.join(unknown)}"
        )
    labels, template = given["candidate_labels"], given.get("hypothesis_template", "{}")
    if isinstance(labels, str):
        labels = [label.strip() for label in labels.split(",")]
    if (
        not isinstance(labels, list)
        or not labels
        or not all(isinstance(each, str) and each.strip() for each in labels)
    ):
        raise ValueError("'candidate_labels' is a list of texts, none of them empty")
    if not isinstance(template, str) or "{}" not in template:
        raise ValueError("'hypothesis_template' is a text with {} in place of the label")
    try:
        template.format("")
    except (LookupError, ValueError) as error:
        raise ValueError("'hypothesis_template' has one {} in place of the label, and no other braces") from error
    others = {"hypothesis_template": template}
    if (language := given.get("language")) is not None:
        if not isinstance(language, str):
            raise ValueError("'language' is the tag of a language, such as 'de'")
        others["language"] = language
    return labels, others
