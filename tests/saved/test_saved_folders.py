"""Folders and adapters that earlier versions saved load to the same bits, with the package and without it. Each
`VERSION.tar.xz` was written by that version's `save.py`, and is never written again."""

import inspect
import json
import shutil
import tarfile
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from peft import PeftModel
from PIL import Image
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from torch import Tensor
from transformers import AutoModel, AutoProcessor

from babelens import Embedder
from babelens.modeling.peft_mla import embedding_digest
from tests.contracts import answers
from tests.saved.save import outputs

HERE = Path(__file__).parent

# Run with the unpacked folders and a folder for the answers: what a model says, and what its processor makes.
_WITHOUT_PACKAGE = """
import json, sys
from pathlib import Path
from typing import Any
import torch, transformers
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor

{functions}

root, results = map(Path, sys.argv[1:])
said(root, results, trust_remote_code=True)
"""


def said(root: Path, results: Path, **loading: bool) -> None:
    """Asks every model and processor of `root` again for its saved answers."""
    manifest = json.loads((root / "manifest.json").read_text(encoding="utf-8"))
    images = [Image.open(root / f"{number}.png") for number in range(len(manifest["texts"]))]
    for name, kind in manifest["folders"].items():
        if kind == "PEFT":
            continue
        saved = load_file(root / f"{name}.safetensors")
        model, info = getattr(transformers, kind).from_pretrained(root / name, output_loading_info=True, **loading)
        assert not any(info.values()), (name, info)
        found = {f"out.{key}": value for key, value in outputs(kind, model, inputs_of(saved)).items()}
        if (root / name / "processor_config.json").exists():
            processor = transformers.AutoProcessor.from_pretrained(root / name, **loading)
            texts = {"text": manifest["texts"], "language": manifest["languages"]}
            made = processor(images=images, **texts, return_tensors="pt")
            found |= {f"in.{key}": value for key, value in made.items()}
        found |= {f"weight.{key}": value for key, value in model.state_dict().items()}
        save_file({key: value.clone().contiguous() for key, value in found.items()}, results / f"{name}.safetensors")


def inputs_of(saved: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key.removeprefix("in."): value for key, value in saved.items() if key.startswith("in.")}


@pytest.fixture(scope="module", params=sorted(path.name for path in HERE.glob("*.tar.xz")))
def root(request, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / request.param.removesuffix(".tar.xz")
    with tarfile.open(HERE / request.param) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def here(root, tmp_path_factory) -> Path:
    results = tmp_path_factory.mktemp("here")
    said(root, results)
    return results


def test_with_the_package_as_when_they_were_saved(root, here):
    """Weights and inputs to the bit; outputs differ between processors in the last digits."""
    for path in sorted(here.iterdir()):
        saved, found = load_file(root / path.name), load_file(path)
        weights = load_file(root / path.stem / "model.safetensors")
        have = {digest(value) for key, value in found.items() if key.startswith("weight.")}
        assert {digest(value) for value in weights.values()} <= have, path.stem
        for key, value in saved.items():
            if key.startswith("out."):
                torch.testing.assert_close(found[key], value, rtol=1e-4, atol=1e-5, msg=lambda m, k=key: f"{k}: {m}")
            elif key in found:
                assert torch.equal(found[key], value), (path.stem, key)


def digest(value: Tensor) -> bytes:
    return sha256(value.contiguous().flatten().view(torch.uint8).numpy().tobytes()).digest()


def test_without_the_package_to_the_same_bits(root, here, run_without_babelens, tmp_path):
    functions = "\n\n".join(map(inspect.getsource, (answers, outputs, inputs_of, said)))
    run_without_babelens(_WITHOUT_PACKAGE.format(functions=functions), root, tmp_path)
    paths = sorted(tmp_path.iterdir())
    assert len(paths) == len(list(here.iterdir()))
    for path in paths:
        there, found = load_file(path), load_file(here / path.name)
        for key in (key for key in there if not key.startswith("weight.")):
            assert torch.equal(there[key], found[key]), (path.stem, key)


@pytest.mark.parametrize("base", ["clip", "mural-base"])
def test_adapters_on_their_base(root, base):
    saved = load_file(root / f"adapter-on-{base}.safetensors")
    model = PeftModel.from_pretrained(AutoModel.from_pretrained(root / base), root / f"adapter-on-{base}").eval()
    found = outputs("PEFT", model, inputs_of(saved))
    torch.testing.assert_close(found["features"], saved["out.features"], rtol=1e-4, atol=1e-5)
    weights = load_file(root / f"adapter-on-{base}" / "adapter_model.safetensors")
    have = {digest(value) for value in model.state_dict().values()}
    assert {digest(value) for value in weights.values()} <= have
    shared = {name.partition("shared_embedding.")[2]: value for name, value in weights.items()}
    assert model.peft_config["default"].embedding_digest == embedding_digest(shared)


def test_sentence_transformers_loads_once_files_are_added(root, tmp_path):
    """`export_code` adds them, and changes no file that a folder had."""
    manifest = json.loads((root / "manifest.json").read_text(encoding="utf-8"))
    whole = [name for name in manifest["folders"] if (root / name / "processor_config.json").exists()]
    of_method = {name.partition("-")[0]: name for name in whole}
    for method in ("mural", "mla", "liwe"):
        name = of_method[method]
        folder = shutil.copytree(root / name, tmp_path / name)
        settings = {path.name: path.read_bytes() for path in folder.glob("*.json")}
        for auto_class in (AutoModel, AutoProcessor):
            auto_class.from_pretrained(folder).export_code(folder)
        language = manifest["languages"][0]
        model = SentenceTransformer(str(folder), trust_remote_code=True, device="cpu", local_files_only=True)
        expected = Embedder.from_pretrained(root / name, device="cpu").encode_text(
            manifest["texts"], language=language
        )
        np.testing.assert_allclose(model.encode(manifest["texts"], prompt_name=language), expected, rtol=0, atol=1e-6)
        assert {file: (folder / file).read_bytes() for file in settings} == settings


def test_each_archive_is_small():
    assert sum(path.stat().st_size for path in HERE.glob("*.tar.xz")) < 1_500_000
