from pathlib import Path
from typing import Any

import torch
from transformers import M2M100Config, M2M100ForConditionalGeneration, NllbTokenizer

from tests.support.tiny_layers import encoder_decoder

LETTERS = "▁abcdefghijklmnopqrstuvwxyz0123456789"
SIZES = encoder_decoder(ffn=16, max_position_embeddings=40, init_std=0.7)


def save(model_class: Any, config_class: Any, tokenizer: Any, folder: Path, *, more_tokens: int = 0) -> None:
    torch.manual_seed(0)
    end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    options = {
        "vocab_size": len(tokenizer) + more_tokens,
        "eos_token_id": end,
        "pad_token_id": pad,
        "decoder_start_token_id": end,
    }
    model = model_class(config_class(**SIZES, **options))
    with torch.no_grad():
        model.get_input_embeddings().weight[tokenizer.all_special_ids] *= 0.3  # so that letters are likelier
    model.generation_config.update(max_length=None, max_new_tokens=7, num_beams=1, forced_eos_token_id=None)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def save_nllb(folder: Path) -> Path:
    words = ["<s>", "<pad>", "</s>", "<unk>", *LETTERS]
    tokenizer = NllbTokenizer(vocab={word: i for i, word in enumerate(words)}, merges=[], model_max_length=36)
    save(M2M100ForConditionalGeneration, M2M100Config, tokenizer, folder)
    return folder
