"""Makes the folders that the tests of clients read: `python -m tests.clients.make_folders ROOT`."""

import sys
from pathlib import Path

import numpy as np

from babelens import Embedder
from babelens.inference.onnx import export_onnx
from babelens.stock_folders import export_stock
from tests.conftest import two_towers
from tests.contracts import drawn_images
from tests.support.client_texts import TEXTS
from tests.support.tiny_dual_encoders import KINDS, bert_tokenizer
from tests.support.tiny_native import saved, tiny_mla


def main(root: Path) -> None:
    images = drawn_images(4)
    (root / "images").mkdir()
    for index, image in enumerate(images):
        image.save(root / "images" / f"{index}.png")
    saved(KINDS["mural"](), root / "mural")
    saved(tiny_mla(KINDS["clip"](), bert_tokenizer(), ["de"]), root / "mla")
    # AlignModel has an EfficientNet, like conftest's MURAL.
    saved(two_towers("Mural"), root / "align")
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
