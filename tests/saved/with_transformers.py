"""Loads folders with their code in the first transformers on the path, without babelens: `python -m
tests.saved.with_transformers ROOT`, after `python -m tests.clients.make_folders ROOT`."""

import sys
from pathlib import Path

import numpy as np
import transformers
from PIL import Image
from transformers import AutoModel, AutoProcessor, pipeline

from tests.support.client_texts import TEXTS


def main(root: Path) -> None:
    facts = np.load(root / "facts.npz")
    images = [Image.open(path) for path in sorted((root / "images").glob("*.png"))]
    for name, loading, reading in (
        ("stock", {}, {}),
        ("mural", {"trust_remote_code": True}, {"language": "de"}),
        ("mla", {"trust_remote_code": True}, {"language": "de"}),
    ):
        folder = root / name
        model, processor = (cls.from_pretrained(folder, **loading) for cls in (AutoModel, AutoProcessor))
        inputs = processor(text=TEXTS, images=images, padding=True, return_tensors="pt", **reading)
        output = model.eval()(**inputs)
        for kind in ("text", "image"):
            found = output[f"{kind}_embeds"].detach().numpy()
            found /= np.linalg.norm(found, axis=-1, keepdims=True)
            np.testing.assert_allclose(found, facts[f"{name}.{kind}s"], rtol=0, atol=1e-5)
        model.save_pretrained(root / "again" / name)
        processor.save_pretrained(root / "again" / name)
        again = AutoModel.from_pretrained(root / "again" / name, **loading)
        assert all((own == other).all() for own, other in zip(model.parameters(), again.parameters(), strict=True))
        classify = pipeline("zero-shot-image-classification", str(folder), **loading)
        assert len(classify(images[0], candidate_labels=TEXTS, hypothesis_template="{}", **reading)) == len(TEXTS)
        print(f"transformers {transformers.__version__}: {name} loads, embeds, is saved and classifies")
    assert "babelens" not in sys.modules


if __name__ == "__main__":
    main(Path(sys.argv[1]))
