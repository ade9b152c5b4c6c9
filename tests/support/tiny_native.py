"""Tiny bases for `babelens acquire`: transformers' dual encoders and a multilingual BERT, with the classes and quirks
of the Hub's, for the captions of `tiny_training.shapes_corpus`."""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers.pre_tokenizers import ByteLevel
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from babelens import MlaModel, MlaProcessor
from babelens.processing.processing_mla import MlaStudentProcessor
from babelens.processing.tokenizer_training import train_wordpiece
from tests.support.tiny_training import shapes_texts

TOWER = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
# Wider than usual, so an untrained tower's outputs depend on its inputs.
WIDE = {"initializer_factor": 10.0}


def tiny_clip(words: Sequence[str] = ()) -> tuple[transformers.PreTrainedModel, transformers.ProcessorMixin]:
    """A CLIP like `openai/clip-vit-base-patch32`: byte-level BPE of letters and these words, `<|endoftext|>` for
    padding, `eos_token_id=2`."""
    letters = sorted(ByteLevel.alphabet())
    merges = [pair for word in words for pair in _merges(word)]
    merges = list(dict.fromkeys(merges))
    merged = [left + right for left, right in merges]
    pieces = [*letters, *(f"{letter}</w>" for letter in letters), *merged, "<|startoftext|>", "<|endoftext|>"]
    tokenizer = transformers.CLIPTokenizer(
        vocab={piece: number for number, piece in enumerate(pieces)}, merges=merges, model_max_length=40
    )
    images = CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    text = TOWER | WIDE | {"vocab_size": len(pieces), "max_position_embeddings": 40}
    vision = TOWER | WIDE | {"image_size": 32, "patch_size": 8}
    torch.manual_seed(0)
    config = transformers.CLIPConfig(
        text_config=text | {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2},
        vision_config=vision,
        projection_dim=16,
    )
    return transformers.CLIPModel(config).eval(), transformers.CLIPProcessor(images, tokenizer)


def _merges(word: str) -> list[tuple[str, str]]:
    return [(word[:end], word[end] + "</w>" * (end == len(word) - 1)) for end in range(1, len(word))]


def tiny_siglip() -> tuple[transformers.PreTrainedModel, transformers.ProcessorMixin]:
    """A SigLIP: texts padded to the full length, images resized without a crop, a bias on the logits. Its tokenizer is
    a word-piece one: SigLIP's own needs SentencePiece."""
    tokenizer = train_wordpiece(shapes_texts()[::3], 80, min_frequency=1, max_tokens=24)
    tokenizer.add_special_tokens({"eos_token": "[SEP]"})
    tokenizer.model_input_names = tokenizer.init_kwargs["model_input_names"] = ["input_ids"]
    text = TOWER | {"vocab_size": len(tokenizer), "max_position_embeddings": 24, "projection_size": 16}
    vision = TOWER | {"image_size": 32, "patch_size": 8}
    torch.manual_seed(0)
    model = transformers.SiglipModel(
        transformers.SiglipConfig(text_config=text | {"eos_token_id": 3, "pad_token_id": 0}, vision_config=vision)
    )
    with torch.no_grad():
        for table in (model.text_model.embeddings.token_embedding, model.text_model.embeddings.position_embedding):
            table.weight.mul_(3)
    images = SiglipImageProcessorPil(size={"height": 32, "width": 32})
    return model.eval(), transformers.SiglipProcessor(images, tokenizer)


def tiny_bert(layers: int = 1) -> tuple[transformers.PreTrainedModel, transformers.BertTokenizer]:
    pieces = train_wordpiece(shapes_texts(), 200, min_frequency=1, lowercase=False).get_vocab()
    tokenizer = transformers.BertTokenizer(vocab=pieces, do_lower_case=False, model_max_length=512)
    torch.manual_seed(1)
    sizes = {"hidden_size": 12, "intermediate_size": 16, "num_hidden_layers": layers, "num_attention_heads": 2}
    return transformers.BertModel(
        transformers.BertConfig(vocab_size=len(tokenizer), initializer_range=0.3, **sizes)
    ).eval(), tokenizer


def tiny_mla(
    native: tuple[Any, Any], tokenizer: Any, languages: Sequence[str] = ("de", "fr"), **options: Any
) -> tuple[MlaModel, MlaProcessor]:
    model, native_processor = native
    sizes = {"vocab_size": len(tokenizer), "sep_token_id": tokenizer.sep_token_id}
    sizes |= {"acquirer_size": 8, "embedding_size": 12}
    torch.manual_seed(0)
    mla = MlaModel.from_native(model, languages=list(languages), **sizes | options).eval()
    parts = copy.deepcopy((native_processor, tokenizer))
    return mla, MlaProcessor.for_native(model.config, *parts, languages=list(languages))


def saved(parts: tuple, folder: Path) -> Path:
    for part in parts:
        part.save_pretrained(folder)
    return folder


def student_processor(config: Any, native_processor: Any, tokenizer: Any) -> MlaStudentProcessor:
    settings = {"text_prompt": config.text_prompt, "native_texts": config.native_texts}
    parts = config.base_config, native_processor, tokenizer, config.native_language
    return MlaStudentProcessor.for_native(*parts, **settings)
