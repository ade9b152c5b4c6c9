"""Every kind of dual encoder that acquires languages, tiny, with its processor, for the captions of
`tiny_training.shapes_corpus`. Tokenizers that need SentencePiece are replaced by others that begin and end texts
alike."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import transformers
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.siglip2.image_processing_pil_siglip2 import Siglip2ImageProcessorPil

from babelens import EtclProcessor, MlaStudentModel
from babelens.processing.tokenizer_training import train_wordpiece
from tests.support.tiny_layers import TINY_VISION
from tests.support.tiny_native import TOWER, WIDE, student_processor, tiny_bert, tiny_clip, tiny_mla, tiny_siglip
from tests.support.tiny_training import TEXT, VISION, shapes_processor, shapes_texts

Parts = tuple[transformers.PreTrainedModel, transformers.ProcessorMixin]
LENGTH = 40
XLM_ENDS = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
VIT = TOWER | {"image_size": 32, "patch_size": 8}
# Like `WIDE`, for towers that have `initializer_range`.
BERT = TOWER | {"initializer_range": 0.3}


def images() -> CLIPImageProcessorPil:
    return CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})


def shapes_words() -> list[str]:
    return sorted({word for text in shapes_texts() for word in text.split()})


def xlm_tokenizer(length: int = LENGTH) -> transformers.XLMRobertaTokenizer:
    """A tokenizer of letters and the captions' words: `<s>` 0, `<pad>` 1, `</s>` 2, as XLM-R's and E5's."""
    letters = sorted(set("".join(shapes_texts())) | set("abcdefghijklmnopqrstuvwxyz"))
    special = [(piece, 0.0) for piece in ("<s>", "<pad>", "</s>", "<unk>", "▁")]
    pieces = [(piece, -5.0) for piece in letters] + [(f"▁{word}", -1.0) for word in shapes_words()]
    return transformers.XLMRobertaTokenizer(vocab=[*special, *pieces, ("<mask>", 0.0)], model_max_length=length)


def bert_tokenizer(length: int = LENGTH) -> transformers.BertTokenizer:
    pieces = train_wordpiece(shapes_texts(), 120, min_frequency=1, lowercase=False).get_vocab()
    return transformers.BertTokenizer(vocab=pieces, do_lower_case=False, model_max_length=length)


def tiny_xlm_roberta() -> tuple[transformers.PreTrainedModel, transformers.XLMRobertaTokenizer]:
    tokenizer = xlm_tokenizer(512)
    torch.manual_seed(1)
    sizes = {"hidden_size": 20, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.XLMRobertaConfig(vocab_size=len(tokenizer), initializer_range=0.3, **sizes)
    return transformers.XLMRobertaModel(config).eval(), tokenizer


def made(model_type: str, **settings: Any) -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    return transformers.AutoModel.from_config(
        transformers.AutoConfig.for_model(model_type, projection_dim=16, **settings)
    ).eval()


def with_tokenizer(
    model_type: str,
    processor: Callable[..., transformers.ProcessorMixin],
    tokenizer: transformers.PreTrainedTokenizerBase,
    **settings: Any,
) -> Parts:
    text = {"vocab_size": len(tokenizer), "max_position_embeddings": tokenizer.model_max_length}
    towers = {"text_config": text | settings.pop("text", BERT), "vision_config": settings.pop("vision", VIT | WIDE)}
    return made(model_type, **towers, **settings), processor(images(), tokenizer)


def tiny_siglip2() -> Parts:
    """Its image processor gives patches, a mask of them and the shapes of images (NaFlex)."""
    merges = list(dict.fromkeys((word[:end], word[end]) for word in shapes_words() for end in range(1, len(word))))
    letters = sorted(set("".join(shapes_texts())) | set("abcdefghijklmnopqrstuvwxyz▁"))
    pieces = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", *letters, *(left + right for left, right in merges)]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    sides = {"padding_side": "right", "add_bos_token": False, "add_eos_token": True}
    tokenizer = transformers.Siglip2Tokenizer(
        vocabulary, merges, model_max_length=64, model_input_names=["input_ids"], **sides
    )
    text = TOWER | {"vocab_size": len(tokenizer), "max_position_embeddings": 64, "projection_size": 16}
    text |= {"eos_token_id": 1, "pad_token_id": 0}
    model = made("siglip2", text_config=text, vision_config=TOWER)
    embeddings = model.text_model.embeddings
    with torch.no_grad():  # or else the last state would depend on the padding before it, and hardly on the text
        embeddings.token_embedding.weight[0] = 0
        embeddings.position_embedding.weight.mul_(0.1)
        for block in model.text_model.encoder.layers:
            block.self_attn.v_proj.weight.mul_(3)
    return model, transformers.Siglip2Processor(Siglip2ImageProcessorPil(), tokenizer)


def tiny_altclip() -> Parts:
    """Its text tower counts positions from 2, like XLM-R's."""
    text = BERT | {"max_position_embeddings": LENGTH + 2, "project_dim": 12}
    model, processor = with_tokenizer("altclip", transformers.AltCLIPProcessor, xlm_tokenizer(), text=text)
    with torch.no_grad():
        model.text_model.transformation.weight.mul_(10)
    return model, processor


def tiny_vision_text(encoder: str) -> Parts:
    is_xlm = encoder == "xlm-roberta"
    tokenizer = xlm_tokenizer() if is_xlm else bert_tokenizer()
    text = BERT | {"model_type": encoder, "max_position_embeddings": LENGTH + 2 if is_xlm else LENGTH}
    towers = {"text": text, "vision": VIT | {"model_type": "vit", "initializer_range": 0.3}}
    return with_tokenizer("vision-text-dual-encoder", transformers.VisionTextDualEncoderProcessor, tokenizer, **towers)


def tiny_two_towers(method: str) -> Parts:
    processor = shapes_processor()
    text = TEXT | {"vocab_size": len(processor.tokenizer), "initializer_range": 0.3}
    settings = {"text_config": text, "vision_config": VISION}
    if method == "etcl":
        processor = EtclProcessor(processor.image_processor, processor.tokenizer)
    torch.manual_seed(0)
    return transformers.AutoModel.from_config(transformers.AutoConfig.for_model(method, **settings)).eval(), processor


KINDS: dict[str, Callable[[], Parts]] = {
    "clip": lambda: tiny_clip([word for word in shapes_words() if word.isascii()]),
    "metaclip_2": lambda: with_tokenizer(
        "metaclip_2", transformers.CLIPProcessor, xlm_tokenizer(), text=TOWER | WIDE | XLM_ENDS
    ),
    "siglip": tiny_siglip,
    "siglip2": tiny_siglip2,
    # Its processor cuts texts at 64 tokens.
    "align": lambda: with_tokenizer("align", transformers.AlignProcessor, bert_tokenizer(512), vision=TINY_VISION),
    "altclip": tiny_altclip,
    "chinese_clip": lambda: with_tokenizer("chinese_clip", transformers.ChineseCLIPProcessor, bert_tokenizer()),
    "vision-text-dual-encoder (bert)": lambda: tiny_vision_text("bert"),
    "vision-text-dual-encoder (xlm-roberta)": lambda: tiny_vision_text("xlm-roberta"),
    "mural": lambda: tiny_two_towers("mural"),
    "etcl": lambda: tiny_two_towers("etcl"),
}


LEARNED = ["de", "fr"]


def tiny_mla_on(make_native: Callable[[], Any]) -> tuple[Any, Any]:
    return tiny_mla(make_native(), tiny_bert()[1], LEARNED)


def tiny_student_of(make_native: Callable[[], Any], encoder: Callable[[], Any], **options: Any) -> tuple[Any, Any]:
    native, native_processor = make_native()
    text, tokenizer = encoder()
    torch.manual_seed(0)
    model = MlaStudentModel.from_towers(native, text, languages=LEARNED, **options)
    return model.eval(), student_processor(model.config, native_processor, tokenizer)


MLA_KINDS = {
    "mla on clip": partial(tiny_mla_on, tiny_clip),
    "mla on siglip": partial(tiny_mla_on, tiny_siglip),
    "mla on mural": partial(tiny_mla_on, KINDS["mural"]),
    "mla student": partial(tiny_student_of, tiny_clip, tiny_xlm_roberta, text_pooling="mean", text_prompt="a "),
    "mla student with clip": partial(tiny_student_of, tiny_clip, tiny_bert, native_texts="native"),
    "mla student with siglip": partial(tiny_student_of, tiny_siglip, tiny_bert, native_texts="native"),
}
# SigLIP 2's image processor gives every image another size, which a graph cannot take.
EXPORTED = {name: make for name, make in KINDS.items() if name != "siglip2"} | MLA_KINDS
