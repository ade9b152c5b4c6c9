"""Makes the folders that the tests of clients read: `python -m tests.clients.make_folders ROOT`."""

import sys
from pathlib import Path

import numpy as np

from babelens import (
    Embedder,
    MlaModel,
    MlaProcessor,
)
from babelens.inference.onnx import export_onnx
from babelens.stock_folders import export_stock
from tests.conftest import two_towers
from tests.contracts import drawn_images
from tests.support.client_texts import TEXTS
from tests.support.tiny_dual_encoders import KINDS, bert_tokenizer


def main(root: Path) -> None:
    images = drawn_images(4)
    (root / "images").mkdir()
    for index, image in enumerate(images):
        image.save(root / "images" / f"{index}.png")
    for part in KINDS["mural"]():
        part.save_pretrained(root / "mural")
    native, native_processor = KINDS["clip"]()
    tokenizer = bert_tokenizer()
    options = {"languages": ["de"], "vocab_size": len(tokenizer), "sep_token_id": tokenizer.sep_token_id}
    MlaModel.from_native(native, **options).save_pretrained(root / "mla")
    MlaProcessor.for_native(native.config, native_processor, tokenizer, languages=["de"]).save_pretrained(root / "mla")
    # AlignModel has an EfficientNet, as the MURAL of conftest.
    for part in two_towers("Mural"):
        part.save_pretrained(root / "align")
    export_stock(root / "align", root / "stock")
    export_onnx(root / "mural", root / "graphs")
    facts = {}
    for name in ("mural", "mla", "align"):
        embedder = Embedder.from_pretrained(root / name, device="cpu")
        facts[f"{name}.texts"] = embedder.encode_text(TEXTS, language="de")
        facts[f"{name}.images"] = embedder.encode_image(images)
    for name, made in (("stock", "align"), ("graphs", "mural")):
        facts |= {f"{name}.texts": facts[f"{made}.texts"], f"{name}.images": facts[f"{made}.images"]}
    np.savez(root / "facts.npz", **facts)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
