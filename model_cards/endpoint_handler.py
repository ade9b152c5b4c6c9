"""Inference Endpoints: classifies an image by labels in any language of the model that lies beside this file.

Request: `{"inputs": "<image, base64>", "parameters": {"candidate_labels": ["…", "…"]}}`; answer:
`[{"label": "…", "score": 0.9}, …]`, best first. `"hypothesis_template": "… {} …"` among the parameters puts the labels
into a sentence; otherwise they are taken as they are. The model's own prompt comes before both.
"""

import base64
import io
from typing import Any

from PIL import Image
from transformers import pipeline


class EndpointHandler:
    def __init__(self, path: str = "") -> None:
        self.classifier = pipeline("zero-shot-image-classification", model=path, trust_remote_code=True)

    def __call__(self, data: dict[str, Any]) -> list[dict[str, Any]]:
        image = data["inputs"]
        if isinstance(image, str):
            image = Image.open(io.BytesIO(base64.b64decode(image)))
        parameters = {"hypothesis_template": "{}", **data["parameters"]}
        prompt = getattr(self.classifier.model.config, "text_prompt", "")  # which pipelines do not put before texts
        parameters["hypothesis_template"] = prompt + parameters["hypothesis_template"]
        return self.classifier(image, **parameters)
