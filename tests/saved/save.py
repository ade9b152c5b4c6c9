"""Writes the folders that every later version must load: one tiny model of each kind, as this version saves it.

VERSION=0.9 python -m pytest tests/saved/save.py    # before a release; writes tests/saved/0.9.tar.xz

It needs pytest for the fixtures that build the models. Next to each folder, `NAME.safetensors` has the model's inputs
(`in.*`) and outputs (`out.*`); `manifest.json` names its Auto class.
"""

import json
import os
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import get_peft_model
from safetensors.torch import save_file
from torch import Tensor

import babelens
from babelens.modeling.modeling_rc3_tasks import TASK_MODELS
from tests.contracts import LANGUAGES, TEXTS, answers, drawn_images, visio_textual_batch

HERE = Path(__file__).parent


def test_save(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    version = os.environ["VERSION"]
    manifest = {}
    for name, kind, model, processor, inputs in _kinds(request.getfixturevalue):
        model.eval().save_pretrained(tmp_path / name)
        if processor is not None:
            processor.save_pretrained(tmp_path / name)
        manifest[name] = kind
        tensors = {f"in.{key}": value for key, value in inputs.items()}
        tensors |= {f"out.{key}": value for key, value in outputs(kind, model, inputs).items()}
        save_file(
            {key: value.clone().contiguous() for key, value in tensors.items()}, tmp_path / f"{name}.safetensors"
        )
    for number, image in enumerate(drawn_images(len(TEXTS))):
        image.save(tmp_path / f"{number}.png")
    manifest = {"texts": TEXTS, "languages": LANGUAGES, "folders": manifest}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    with tarfile.open(HERE / f"{version}.tar.xz", "w:xz", preset=9) as archive:
        archive.add(tmp_path, arcname=".", filter=_anonymous)


def _kinds(make: Callable[[str], Any]) -> Iterator[tuple[str, str, Any, Any, dict[str, Tensor]]]:
    dual_encoders = {
        "mural": ("make_mural", {}),
        "etcl": ("make_etcl", {}),
        "mla": ("make_mla", {}),
        "mla-on-mural": ("make_mla_on_mural", {}),
        "mla-student": ("make_mla_student", {}),
        "mla-student-acquisition": ("make_mla_student", {"strategy": "acquisition"}),
        "ridge": ("make_ridge", {"encoder": True, "glossaries": True}),
        "smalr": ("make_smalr", {}),
        "liwe": ("make_liwe", {}),
    }
    for name, (factory, options) in dual_encoders.items():
        model, processor = make(factory)(**options)
        yield name, "AutoModel", model, processor, _captioned(processor)
    model, processor = make("make_smalr")()
    yield "smalr-compressed", "AutoModel", model.compress(), processor, _captioned(processor)
    for model_class in (babelens.Rc3Model, *TASK_MODELS):
        labels = {"num_labels": 7} if model_class.__name__ == "Rc3ForVisualQuestionAnswering" else {}
        model, _ = make("make_rc3")(model_class, **labels)
        images = 2 if model_class is babelens.Rc3ForVisualReasoning else 1
        yield model_class.__name__, model_class.auto_classes[0], model, None, visio_textual_batch(images)
    model, _ = make("make_rc3")(babelens.Rc3ForPreTraining)
    yield "Rc3ForPreTraining", babelens.Rc3ForPreTraining.auto_classes[0], model, None, {}
    torch.manual_seed(0)
    consistency = babelens.CrossLingualConsistency(
        babelens.CrossLingualConsistencyConfig(languages=["de", "en", "fr"], hidden_size=4)
    )
    yield "consistency", "AutoModel", consistency, None, {"scores": torch.randn(3, 4, 5)}
    for name, factory in (("clip", "make_mla"), ("mural-base", "make_mla_on_mural")):
        mla, processor = make(factory)()
        base = mla.unload()
        captioned = dict(processor(text=TEXTS[:1] * 3, language="en", return_tensors="pt"))
        captioned.pop("language_ids")
        yield name, "AutoModel", base, None, captioned
        options = {"vocab_size": 60, "embedding_size": 6, "sep_token_id": 3, "acquirer_size": 4}
        ids = {"input_ids": torch.tensor([[2, 5, 6, 9, 3], [2, 7, 3, 0, 0], [2, 9, 8, 3, 0]])}
        torch.manual_seed(1)
        adapted = get_peft_model(base, babelens.MlaAdapterConfig(language="de", **options)).eval()
        adapted.peft_config["default"].base_model_name_or_path = name
        yield f"adapter-on-{name}", "PEFT", adapted, None, ids


def _captioned(processor: Any) -> dict[str, Tensor]:
    images = drawn_images(len(TEXTS))
    return dict(processor(images=images, text=TEXTS, language=LANGUAGES, return_tensors="pt"))


@torch.no_grad()
def outputs(kind: str, model: Any, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    if not inputs:
        return {}
    if kind == "PEFT" or ("pixel_values" not in inputs and "input_ids" in inputs):
        return {"features": model.get_text_features(**inputs).pooler_output}
    if "language_token_ids" in vars(model.config):
        return answers(model, inputs)
    output = model(**inputs)
    output = output if isinstance(output, dict) else {"scores": output}
    names = ("text_embeds", "image_embeds", "logits_per_image", "scores")
    return {name: output[name] for name in names if output.get(name) is not None}


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """The same archive whoever writes it."""
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry
