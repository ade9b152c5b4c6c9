from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from babelens import MlaStudentModel
from tests.support.tiny_dual_encoders import KINDS, tiny_xlm_roberta
from tests.support.tiny_native import student_processor, tiny_bert, tiny_clip, tiny_mla, tiny_siglip

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
    "mla student beside clip": partial(tiny_student_of, tiny_clip, tiny_bert, native_texts="native"),
    "mla student beside siglip": partial(tiny_student_of, tiny_siglip, tiny_bert, native_texts="native"),
}
# SigLIP 2's image processor gives every image another size, for which there is no graph.
EXPORTED = {name: make for name, make in KINDS.items() if name != "siglip2"} | MLA_KINDS
