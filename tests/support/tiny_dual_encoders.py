"""Every kind of dual encoder that acquires languages, tiny, with its processor, for the captions of
`tiny_training.shapes_corpus`; and a multilingual XLM-R.

Where a kind's own tokenizer needs SentencePiece, another one stands for it that begins and ends texts as it does.
"""

from collections.abc import Callable

import torch
from transformers import (
    AlignConfig,
    AlignModel,
    AlignProcessor,
    AltCLIPConfig,
    AltCLIPModel,
    AltCLIPProcessor,
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
