import copy

import pytest
import torch
from peft import get_peft_model
from transformers import AutoModel

from babelens import MlaProcessor
from babelens.modeling.peft_mla import MlaAdapterConfig
from babelens.processing.tokenizer_training import train_wordpiece
from babelens.utils.errors import InputError
from tests.support.mla_training import COLD, losses, mla_trainer
from tests.support.tiny_native import saved, tiny_clip
from tests.support.tiny_training import shapes_texts
from tests.support.versions import needs_adapters_of_transformers


@pytest.fixture
def adapted(tmp_path):
    native = tiny_clip()
    saved(native, tmp_path / "clip")
    tokenizer = train_wordpiece(shapes_texts(), 200, min_frequency=1)
    config = MlaAdapterConfig(
        language="de",
        vocab_size=len(tokenizer),
        sep_token_id=tokenizer.sep_token_id,
        acquirer_size=8,
        embedding_size=12,
    )

    def make(way="peft"):
        torch.manual_seed(0)
        clip = AutoModel.from_pretrained(tmp_path / "clip")
        if way == "peft":
            return get_peft_model(clip, copy.deepcopy(config))
        clip.add_adapter(copy.deepcopy(config))
        return clip

    # The processor has other languages, in another order: the trainer reads the adapters'.
    return make, MlaProcessor.for_native(native[0].config, native[1], tokenizer, languages=["fr", "de"])


def trainer_of(model, processor, folder, task, **changes):
    return mla_trainer((model, processor), folder, [task], cache=folder / "cache", **COLD | changes)


@needs_adapters_of_transformers
@pytest.mark.parametrize("way", ["peft", "transformers"])
def test_adapters_are_trained_in_both_stages_saved_and_loaded(adapted, tmp_path, way):
    make, processor = adapted
    model = make(way)
    german = dict(processor(text=["ein roter Punkt"], language="de", return_tensors="pt"))
    del german["language_ids"]
    english = processor.native(text=["a red dot"], language="en", return_tensors="pt")
    with torch.no_grad():
        plain = AutoModel.from_pretrained(tmp_path / "clip").get_text_features(**english).pooler_output
    found = []
    for task in ("text_text", "image_text"):  # native language transfer, language exposure
        before = {name: value.clone() for name, value in model.named_parameters()}
        settings = {"max_steps": 20, "per_device_train_batch_size": 16, "learning_rate": 3e-3}
        trainer = trainer_of(model, processor, tmp_path / task, task, **settings)
        trainer.train()
        assert losses(trainer)[-1] < losses(trainer)[0]
        moved = {name for name, value in model.named_parameters() if not torch.equal(value, before[name])}
        assert moved == {name for name in before if ".mla_acquirers." in name or ".shared_embedding." in name}
        with torch.no_grad():
            found.append(model.eval().get_text_features(**german).pooler_output)
    assert not torch.equal(*found)
    trainer.save_model(str(tmp_path / "adapter"))
    model.save_pretrained(tmp_path / "by-itself")
    for folder in ("adapter", "by-itself"):
        assert (tmp_path / folder / "adapter_config.json").is_file()
        loaded = AutoModel.from_pretrained(tmp_path / folder)
        with torch.no_grad():
            assert torch.equal(loaded.get_text_features(**german).pooler_output, found[1])
            loaded.disable_adapters()
            assert torch.equal(loaded.get_text_features(**english).pooler_output, plain)


def test_the_frozen_model_of_adapters_is_not_trained(adapted, tmp_path):
    make, processor = adapted
    with pytest.raises(InputError, match="trainable='all'"):
        trainer_of(make(), processor, tmp_path, "image_text", trainable="all")
