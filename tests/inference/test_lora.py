import json

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModel

from babelens import Embedder
from babelens.utils.errors import InputError, ModelFolderError, ModelKindError
from tests.contracts import TEXTS, drawn_images

OPTIONS = {
    "attention": {"target_modules": ["q_proj", "v_proj"]},
    "dora": {"target_modules": ["q_proj"], "use_dora": True},
    "projection saved": {"target_modules": ["k_proj"], "modules_to_save": ["text_projection"]},
}


def adapted(base, folder, **options):
    torch.manual_seed(0)
    model = get_peft_model(AutoModel.from_pretrained(base), LoraConfig(r=2, lora_alpha=8, **options)).eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            if value.requires_grad:
                value.add_(torch.randn_like(value) / (1 if "lora" in name else 10))
    model.save_pretrained(str(folder))
    return model


@pytest.mark.parametrize("kind", OPTIONS)
def test_the_embedder_reads_what_peft_saved(kind, clip_folder, tmp_path):
    model = adapted(clip_folder, tmp_path / "lora", **OPTIONS[kind])
    embedder, plain = (Embedder.from_pretrained(each, device="cpu") for each in (tmp_path / "lora", clip_folder))
    assert type(embedder.model) is type(plain.model)
    texts, images = TEXTS[:3], drawn_images(2)
    wanted = Embedder(model.base_model.model, plain.processor)
    for found, own in (
        (embedder.encode_text(texts), wanted.encode_text(texts)),
        (embedder.encode_image(images), wanted.encode_image(images)),
    ):
        np.testing.assert_allclose(found, own, atol=2e-5)
    assert np.abs(embedder.encode_text(texts) - plain.encode_text(texts)).max() > 1e-3


def test_what_does_not_fit_is_refused(clip_folder, tmp_path):
    adapted(clip_folder, tmp_path / "lora", **OPTIONS["attention"])
    settings = json.loads((tmp_path / "lora/adapter_config.json").read_text())
    for changed, error in (
        ({"r": 3}, InputError),
        ({"target_modules": ["nothing"]}, InputError),
        ({"target_modules": ["q_proj"]}, InputError),
        ({"base_model_name_or_path": None}, ModelFolderError),
        ({"peft_type": "TOY"}, ModelKindError),
    ):
        (tmp_path / "lora/adapter_config.json").write_text(json.dumps(settings | changed))
        with pytest.raises(error, match="lora"):
            Embedder.from_pretrained(tmp_path / "lora", device="cpu")
