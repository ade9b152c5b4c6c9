"""transformers.js, under node, encodes texts and images with exported folders: `make test-slow`."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from babelens import Embedder
from babelens.inference.onnx import export_onnx
from tests.contracts import drawn_images
from tests.support.tiny_dual_encoders import EXPORTED
from tests.support.tiny_native import saved
from tests.support.transformers_js import program

INSTALLED = os.environ.get("BABELENS_TRANSFORMERS_JS")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not INSTALLED, reason="transformers.js is not installed: make test-slow installs it"),
]
TEXTS = ["a red circle", "ein rotes Quadrat", "un cercle très grand"]
CLOSE = {"rtol": 0, "atol": 1e-4}
# SigLIP reads texts of one length, and MLA its languages; the others are like CLIP.
SPECIAL = {
    "siglip": {"padding": "max_length"},
    "mla on clip": {"tokenizer": "multilingual_tokenizer", "language_ids": [1, 1, 2]},
}


def encoded(folder, name, **request):
    command = [program("node"), Path(__file__).with_name("encode.mjs")]
    command += [Path(INSTALLED, "node_modules/@huggingface/transformers"), folder]
    request = {"name": name, "dtype": "fp32", "padding": True} | request
    done = subprocess.run(command, input=json.dumps(request), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    return [np.array(rows) / np.linalg.norm(rows, axis=-1, keepdims=True) for rows in (found["text"], found["image"])]


@pytest.mark.parametrize("name", ["clip", "siglip", "vision-text-dual-encoder (xlm-roberta)", "mural", "mla on clip"])
def test_transformers_js_embeds_as_the_model_does(name, tmp_path):
    source = saved(EXPORTED[name](), tmp_path / "model")
    export_onnx(source, tmp_path / "graphs", precisions=["fp32", "int8"])
    images = [tmp_path / f"{index}.png" for index in range(2)]
    for image, path in zip(drawn_images(2), images, strict=True):
        # Images have the size that the model reads: sharp and Pillow resize differently.
        side = 36 if name == "mural" else 32
        image.resize((side, side)).save(path)
    longest = Embedder.from_pretrained(source).process_texts(["x " * 999], ["en"])["input_ids"].shape[1]
    request = {"texts": TEXTS, "images": list(map(str, images)), "max_length": longest} | SPECIAL.get(name, {})
    texts, pictures = encoded(tmp_path, "graphs", **request)
    embedder = Embedder.from_pretrained(source)
    languages = ["de", "de", "fr"] if name == "mla on clip" else "en"
    np.testing.assert_allclose(texts, embedder.encode_text(TEXTS, language=languages), **CLOSE)
    np.testing.assert_allclose(pictures, embedder.encode_image(images), **CLOSE)
    quantized, _ = encoded(tmp_path, "graphs", **request | {"dtype": "q8"})
    # onnxruntime-node has another version than onnxruntime here; 8 bits are rounded differently.
    own = Embedder.from_pretrained(tmp_path / "graphs", backend="onnx", precision="int8")
    assert np.abs(quantized - own.encode_text(TEXTS, language=languages)).max() < 0.05
