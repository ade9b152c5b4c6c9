from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}:{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}{% if part['type'] == 'image' %}<image>"
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


def _tokenizer() -> transformers.PreTrainedTokenizerFast:
    vocab = ["<pad>", "<unk>", "</s>", "<image>", *map(chr, range(32, 127))]
    backend = Tokenizer(WordLevel({token: number for number, token in enumerate(vocab)}, "<unk>"))
    backend.pre_tokenizer = Split("", "isolated")
    special: dict[str, Any] = {"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "</s>"}
    special["extra_special_tokens"] = {"image_token": "<image>"}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=300, **special)


def _save_llava(folder: Path) -> None:
    tokenizer = _tokenizer()
    sizes = {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}
    processor = transformers.LlavaProcessor(
        CLIPImageProcessorPil(**sizes),
        tokenizer,
        patch_size=16,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=_TEMPLATE,
    )
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(image_size=32, patch_size=16, **_VISION),
        text_config=transformers.LlamaConfig(vocab_size=len(tokenizer), **_DECODER),
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
    )
    transformers.LlavaModel(config).save_pretrained(folder)
    processor.save_pretrained(folder)


def tiny_embedder(folder: Path) -> Path:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    torch.manual_seed(0)
    _save_llava(folder / "parts")
    transformer = Transformer(str(folder / "parts"))
    pooling = Pooling(transformer.get_embedding_dimension(), "lasttoken")
    model = SentenceTransformer(modules=[transformer, pooling], device="cpu", prompts={"query": "Find: "})
    with torch.no_grad():  # so that what is untrained depends on what it reads
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) / 10)
    model.save_pretrained(str(folder / "model"))
    return folder / "model"
