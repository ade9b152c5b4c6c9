"""A tiny real dual encoder (transformers' CLIP with random weights) and a small synthetic corpus."""

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import CLIPConfig, CLIPImageProcessorPil, CLIPModel, CLIPProcessor, PreTrainedTokenizerFast

ALPHABET = " abcdefghijklmnopqrstuvwxyz0123456789äöüß"


def _build_tokenizer(model_max_length: int = 16) -> PreTrainedTokenizerFast:
    """One token for each letter, [BOS] … [EOS] as CLIP wants them."""
    vocabulary = {token: i for i, token in enumerate(["[PAD]", "[UNK]", "[BOS]", *ALPHABET, "[EOS]"])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    special = [("[BOS]", vocabulary["[BOS]"]), ("[EOS]", vocabulary["[EOS]"])]
    tokenizer.post_processor = processors.TemplateProcessing(single="[BOS] $A [EOS]", special_tokens=special)
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "bos_token": "[BOS]", "eos_token": "[EOS]"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=model_max_length, **names)


def _tower(**more: int) -> dict[str, int | float]:
    return {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "attention_dropout": 0.1,
        **more,
    }


@pytest.fixture
def build_tokenizer():
    return _build_tokenizer


@pytest.fixture
def tower():
    return _tower


@pytest.fixture(scope="session")
def clip_parts() -> tuple[CLIPModel, CLIPProcessor]:
    """Shared by the tests: whoever changes the model works on a copy."""
    tokenizer = _build_tokenizer()
    config = CLIPConfig(
        text_config=_tower(
            vocab_size=len(tokenizer),
            max_position_embeddings=16,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        ),
        vision_config=_tower(image_size=16, patch_size=8),
        projection_dim=12,
    )
    torch.manual_seed(0)
    image_processor = CLIPImageProcessorPil(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16})
    return CLIPModel(config).eval(), CLIPProcessor(image_processor, tokenizer)


@pytest.fixture(scope="session")
def clip_folder(clip_parts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("clip")
    for part in clip_parts:
        part.save_pretrained(folder)
    return folder
