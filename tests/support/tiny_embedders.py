"""Tiny embedders of sentence-transformers that read texts and images, made of vision-language models."""

from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import (
    CLIPVisionConfig,
    Gemma3Config,
    Gemma3Model,
    Gemma3Processor,
    Gemma3TextConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaModel,
    LlavaProcessor,
    PreTrainedTokenizerFast,
    SiglipVisionConfig,
)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}:{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}{% if part['type'] == 'image' %}IMAGE"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %};{% endfor %}"
)
_DECODER = {
    "hidden_size": 24,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 12,
}
_VISION = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}


def _tokenizer(special: dict[str, str]) -> PreTrainedTokenizerFast:
    """Its tokens are printable characters and these, by their names."""
    vocab = ["<pad>", "<unk>", "</s>", *special.values(), *map(chr, range(32, 127))]
    backend = Tokenizer(WordLevel({token: number for number, token in enumerate(vocab)}, "<unk>"))
    backend.pre_tokenizer = Split("", "isolated")
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<pad>",
        unk_token="<unk>",
        eos_token="</s>",
        extra_special_tokens=special,
        model_max_length=300,
    )


def llava(folder: Path) -> None:
    """A LLaVA: CLIP's image tower before a Llama."""
    tokenizer = _tokenizer({"image_token": "<image>"})
    sizes = {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}
    processor = LlavaProcessor(
        CLIPImageProcessorPil(**sizes),
        tokenizer,
        patch_size=16,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=_TEMPLATE.replace("IMAGE", "<image>"),
    )
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(image_size=32, patch_size=16, **_VISION),
        text_config=LlamaConfig(vocab_size=len(tokenizer), **_DECODER),
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
    )
    LlavaModel(config).save_pretrained(folder)
    processor.save_pretrained(folder)


def gemma3(folder: Path) -> None:
    """A Gemma 3: SigLIP's image tower before a Gemma."""
    tokenizer = _tokenizer({"image_token": "<img>", "boi_token": "<boi>", "eoi_token": "<eoi>"})
    images = Gemma3ImageProcessorPil(size={"height": 32, "width": 32})
    template = _TEMPLATE.replace("IMAGE", "<boi>")
    processor = Gemma3Processor(images, tokenizer, chat_template=template, image_seq_length=4)
    config = Gemma3Config(
        vision_config=SiglipVisionConfig(image_size=32, patch_size=16, **_VISION),
        text_config=Gemma3TextConfig(vocab_size=len(tokenizer), **_DECODER),
        mm_tokens_per_image=4,
        image_token_index=tokenizer.convert_tokens_to_ids("<img>"),
        boi_token_index=tokenizer.convert_tokens_to_ids("<boi>"),
        eoi_token_index=tokenizer.convert_tokens_to_ids("<eoi>"),
    )
    Gemma3Model(config).save_pretrained(folder)
    processor.save_pretrained(folder)


EMBEDDERS = {"llava": llava, "gemma3": gemma3}


def tiny_embedder(name: str, folder: Path) -> Path:
    """An embedder as sentence-transformers saves it, with a prompt for queries."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    torch.manual_seed(0)
    EMBEDDERS[name](folder / "parts")
    transformer = Transformer(str(folder / "parts"))
    pooling = Pooling(transformer.get_embedding_dimension(), "lasttoken")
    model = SentenceTransformer(modules=[transformer, pooling], device="cpu", prompts={"query": "Find: "})
    with torch.no_grad():  # untrained, Gemma's images say nothing
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) / 10)
    model.save_pretrained(str(folder / "model"))
    return folder / "model"
