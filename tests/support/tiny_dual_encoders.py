"""Every kind of dual encoder that acquires languages, tiny, with its processor, for the captions of
`tiny_training.shapes_corpus`; and a multilingual XLM-R.

Where a kind's own tokenizer needs SentencePiece, another one stands for it that begins and ends texts as it does.
"""

import json
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import (
    AlignConfig,
    AlignModel,
    AlignProcessor,
    AltCLIPConfig,
    AltCLIPModel,
    AltCLIPProcessor,
    AutoConfig,
    AutoModel,
    BertTokenizer,
    ChineseCLIPConfig,
    ChineseCLIPModel,
    ChineseCLIPProcessor,
    CLIPProcessor,
    MetaClip2Config,
    MetaClip2Model,
    PreTrainedModel,
    ProcessorMixin,
    Siglip2Config,
    Siglip2Model,
    Siglip2Processor,
    Siglip2Tokenizer,
    VisionTextDualEncoderConfig,
    VisionTextDualEncoderModel,
    VisionTextDualEncoderProcessor,
    XLMRobertaConfig,
    XLMRobertaModel,
    XLMRobertaTokenizer,
)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.siglip2.image_processing_pil_siglip2 import Siglip2ImageProcessorPil

from babelens import EtclConfig, EtclModel, EtclProcessor, MuralConfig, MuralModel
from babelens.processing.tokenizer_training import train_wordpiece
from tests.support.tiny_native import TOWER, WIDE, shapes_texts, tiny_clip, tiny_siglip
from tests.support.tiny_training import TEXT, VISION, shapes_corpus, shapes_processor

Parts = tuple[PreTrainedModel, ProcessorMixin]
LENGTH = 40
VIT = TOWER | {"image_size": 32, "patch_size": 8}
# As in `WIDE`, of towers that have `initializer_range`.
BERT = TOWER | {"initializer_range": 0.3}
ALIGN_VISION = {
    "image_size": 32,
    "width_coefficient": 1.0,
    "depth_coefficient": 1.0,
    "kernel_sizes": [3],
    "in_channels": [32],
    "out_channels": [16],
    "depthwise_padding": [],
    "strides": [1],
    "num_block_repeats": [1],
    "expand_ratios": [1],
    "hidden_dim": 16,
}


def images() -> CLIPImageProcessorPil:
    return CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})


def shapes_words() -> list[str]:
    """The words of the captions."""
    return sorted({word for text in shapes_texts() for word in text.split()})


def xlm_tokenizer(length: int = LENGTH) -> XLMRobertaTokenizer:
    """A tokenizer of letters and the captions' words: `<s>` 0, `<pad>` 1, `</s>` 2, as XLM-R's and E5's."""
    letters = sorted(set("".join(shapes_texts())) | set("abcdefghijklmnopqrstuvwxyz"))
    special = [(piece, 0.0) for piece in ("<s>", "<pad>", "</s>", "<unk>", "▁")]
    pieces = [(piece, -5.0) for piece in letters] + [(f"▁{word}", -1.0) for word in shapes_words()]
    return XLMRobertaTokenizer(vocab=[*special, *pieces, ("<mask>", 0.0)], model_max_length=length)


def bert_tokenizer(length: int = LENGTH) -> BertTokenizer:
    pieces = train_wordpiece(shapes_texts(), 120, min_frequency=1, lowercase=False).get_vocab()
    return BertTokenizer(vocab=pieces, do_lower_case=False, model_max_length=length)


def gemma_tokenizer() -> Siglip2Tokenizer:
    """A tokenizer of letters and the captions' words, which ends texts as SigLIP 2's and begins them with nothing."""
    merges = list(dict.fromkeys((word[:end], word[end]) for word in shapes_words() for end in range(1, len(word))))
    letters = sorted(set("".join(shapes_texts())) | set("abcdefghijklmnopqrstuvwxyz▁"))
    pieces = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", *letters, *(left + right for left, right in merges)]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    sides = {"padding_side": "right", "add_bos_token": False, "add_eos_token": True}
    return Siglip2Tokenizer(vocabulary, merges, model_max_length=64, model_input_names=["input_ids"], **sides)


def tiny_xlm_roberta() -> tuple[PreTrainedModel, XLMRobertaTokenizer]:
    """An XLM-R with a vocabulary for all languages, wider than the towers."""
    tokenizer = xlm_tokenizer(512)
    torch.manual_seed(1)
    sizes = {"hidden_size": 20, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = XLMRobertaConfig(vocab_size=len(tokenizer), initializer_range=0.3, **sizes)
    return XLMRobertaModel(config).eval(), tokenizer


def tiny_metaclip_2() -> Parts:
    tokenizer = xlm_tokenizer()
    ends = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
    text = TOWER | WIDE | ends | {"vocab_size": len(tokenizer), "max_position_embeddings": LENGTH}
    torch.manual_seed(0)
    config = MetaClip2Config(text_config=text, vision_config=VIT | WIDE, projection_dim=16)
    return MetaClip2Model(config).eval(), CLIPProcessor(images(), tokenizer)


def tiny_siglip2() -> Parts:
    """With its image processor, which gives patches, a mask of them and the shapes of images (NaFlex)."""
    tokenizer = gemma_tokenizer()
    text = TOWER | {"vocab_size": len(tokenizer), "max_position_embeddings": 64, "projection_size": 16}
    text |= {"eos_token_id": 1, "pad_token_id": 0}
    torch.manual_seed(0)
    model = Siglip2Model(Siglip2Config(text_config=text, vision_config=TOWER))
    embeddings = model.text_model.embeddings
    with torch.no_grad():  # or else the last state would depend on the padding before it, and hardly on the text
        embeddings.token_embedding.weight[0] = 0
        embeddings.position_embedding.weight.mul_(0.1)
        for block in model.text_model.encoder.layers:
            block.self_attn.v_proj.weight.mul_(3)
    return model.eval(), Siglip2Processor(Siglip2ImageProcessorPil(), tokenizer)


def tiny_align() -> Parts:
    tokenizer = bert_tokenizer(512)  # its processor cuts texts at 64 tokens
    text = BERT | {"vocab_size": len(tokenizer), "max_position_embeddings": 512}
    torch.manual_seed(0)
    model = AlignModel(AlignConfig(text_config=text, vision_config=ALIGN_VISION, projection_dim=16))
    return model.eval(), AlignProcessor(images(), tokenizer)


def tiny_altclip() -> Parts:
    """Its text tower counts positions from 2, as XLM-R's does."""
    tokenizer = xlm_tokenizer()
    text = BERT | {"vocab_size": len(tokenizer), "max_position_embeddings": LENGTH + 2, "project_dim": 12}
    torch.manual_seed(0)
    model = AltCLIPModel(AltCLIPConfig(text_config=text, vision_config=VIT | WIDE, projection_dim=16))
    with torch.no_grad():
        model.text_model.transformation.weight.mul_(10)
    return model.eval(), AltCLIPProcessor(images(), tokenizer)


def tiny_chinese_clip() -> Parts:
    tokenizer = bert_tokenizer()
    text = BERT | {"vocab_size": len(tokenizer), "max_position_embeddings": LENGTH}
    torch.manual_seed(0)
    config = ChineseCLIPConfig(text_config=text, vision_config=VIT | WIDE, projection_dim=16)
    return ChineseCLIPModel(config).eval(), ChineseCLIPProcessor(images(), tokenizer)


def tiny_vision_text(encoder: str) -> Parts:
    """A ViT with a text encoder of this `model_type`."""
    tokenizer = xlm_tokenizer() if encoder == "xlm-roberta" else bert_tokenizer()
    positions = LENGTH + 2 if encoder == "xlm-roberta" else LENGTH
    text = BERT | {"model_type": encoder, "vocab_size": len(tokenizer), "max_position_embeddings": positions}
    vision = VIT | {"model_type": "vit", "initializer_range": 0.3}
    torch.manual_seed(0)
    config = VisionTextDualEncoderConfig(text_config=text, vision_config=vision, projection_dim=16)
    return VisionTextDualEncoderModel(config).eval(), VisionTextDualEncoderProcessor(images(), tokenizer)


def tiny_mural() -> Parts:
    processor = shapes_processor(shapes_corpus())
    text = TEXT | {"vocab_size": len(processor.tokenizer), "initializer_range": 0.3}
    torch.manual_seed(0)
    return MuralModel(MuralConfig(text_config=text, vision_config=VISION)).eval(), processor


def tiny_etcl() -> Parts:
    processor = shapes_processor(shapes_corpus())
    text = TEXT | {"vocab_size": len(processor.tokenizer), "initializer_range": 0.3}
    torch.manual_seed(0)
    model = EtclModel(EtclConfig(text_config=text, vision_config=VISION)).eval()
    return model, EtclProcessor(processor.image_processor, processor.tokenizer)


KINDS: dict[str, Callable[[], Parts]] = {
    "clip": lambda: tiny_clip([word for word in shapes_words() if word.isascii()]),
    "metaclip_2": tiny_metaclip_2,
    "siglip": tiny_siglip,
    "siglip2": tiny_siglip2,
    "align": tiny_align,
    "altclip": tiny_altclip,
    "chinese_clip": tiny_chinese_clip,
    "vision-text-dual-encoder (bert)": lambda: tiny_vision_text("bert"),
    "vision-text-dual-encoder (xlm-roberta)": lambda: tiny_vision_text("xlm-roberta"),
    "mural": tiny_mural,
    "etcl": tiny_etcl,
}

# ---- A dual encoder whose code comes with it ----

REMOTE_TOWER = {
    "path": "text_model",
    "embeddings": "transformer.table",
    "blocks": "transformer.layers",
    "pooling": "mean",
}
_REMOTE_CONFIGURATION = """
from transformers import PreTrainedConfig


class ToyDualConfig(PreTrainedConfig):
    model_type = "toy_dual"

    def __init__(self, text_config=None, vision_config=None, projection_dim=16, **kwargs):
        super().__init__(**kwargs)
        self.text_config = ToyTextConfig(**(text_config or {}))
        self.vision_config = ToyVisionConfig(**(vision_config or {}))
        self.projection_dim = projection_dim


class ToyTextConfig(PreTrainedConfig):
    model_type = "toy_text"

    def __init__(self, vocab_size=200, embed_dim=16, pad_token_id=1, **kwargs):
        super().__init__(**kwargs)
        self.vocab_size, self.embed_dim, self.pad_token_id = vocab_size, embed_dim, pad_token_id


class ToyVisionConfig(PreTrainedConfig):
    model_type = "toy_vision"

    def __init__(self, embed_dim=16, **kwargs):
        super().__init__(**kwargs)
        self.embed_dim = embed_dim
"""
_REMOTE_MODEL = '''
import torch
from torch import nn
from transformers import PreTrainedModel

from .configuration_toy import ToyDualConfig


class ToyBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.mix = nn.Linear(width, width)

    def forward(self, hidden_states, padding, residual=None):
        attended, _ = self.attention(hidden_states, hidden_states, hidden_states, key_padding_mask=padding)
        return hidden_states + self.mix(attended).tanh(), attended


class ToyTransformer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.table = nn.Embedding(config.vocab_size, config.embed_dim)
        self.layers = nn.ModuleList(ToyBlock(config.embed_dim) for _ in range(2))

    def forward(self, ids, padding):
        places = torch.arange(ids.shape[1], device=ids.device)[None, :, None]
        states = self.table(ids) + torch.sin(places / 3)
        for layer in self.layers:
            states, _ = layer(states, padding)
        return states


class ToyText(nn.Module):
    """It makes its mask from the ids, as JinaCLIP does, and takes them by another name."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.transformer = ToyTransformer(config)

    def forward(self, x):
        padding = x == self.config.pad_token_id
        states = self.transformer(x, padding)
        kept = (~padding)[..., None].to(states.dtype)
        return (states * kept).sum(1) / kept.sum(1)


class ToyDual(PreTrainedModel):
    config_class = ToyDualConfig

    def __init__(self, config):
        super().__init__(config)
        self.logit_scale = nn.Parameter(torch.tensor(2.0))
        self.text_model = ToyText(config.text_config)
        self.vision_model = nn.Conv2d(3, config.vision_config.embed_dim, 8, 8)
        self.text_projection = nn.Linear(config.text_config.embed_dim, config.projection_dim, bias=False)
        self.post_init()

    def _init_weights(self, module):
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight)

    def get_text_features(self, input_ids=None, *_, **__):
        return self.text_projection(self.text_model(x=input_ids))

    def get_image_features(self, pixel_values=None, *_, **__):
        return self.vision_model(pixel_values).mean((2, 3))
'''


def write_remote(folder: Path) -> Path:
    """Writes a dual encoder whose code is in its folder; its text tower is at `REMOTE_TOWER`."""
    tokenizer = xlm_tokenizer()
    CLIPProcessor(images(), tokenizer).save_pretrained(folder)
    (folder / "configuration_toy.py").write_text(_REMOTE_CONFIGURATION)
    (folder / "modeling_toy.py").write_text(_REMOTE_MODEL)
    code = {"AutoConfig": "configuration_toy.ToyDualConfig", "AutoModel": "modeling_toy.ToyDual"}
    config = {"model_type": "toy_dual", "auto_map": code, "text_config": {"vocab_size": len(tokenizer)}}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def save_remote(folder: Path) -> Path:
    """The same with weights."""
    model = AutoModel.from_config(
        AutoConfig.from_pretrained(write_remote(folder), trust_remote_code=True), trust_remote_code=True
    )
    save_file({name: value.contiguous() for name, value in model.state_dict().items()}, folder / "model.safetensors")
    return folder
