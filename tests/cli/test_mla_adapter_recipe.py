import numpy as np

from babelens import Embedder
from tests.support.tiny_native import saved, tiny_bert, tiny_siglip
from tests.support.tiny_training import shapes_captions


def test_an_adapter_stands_beside_its_model(run, tmp_path):
    captions = shapes_captions()
    lines = ["de\ten", *map("\t".join, zip(captions["de"], captions["en"], strict=True))]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines) + "\n")
    base, out = saved(tiny_siglip(), tmp_path / "base"), tmp_path / "out"
    settings = {
        "model.from_pretrained": base,
        "multilingual_tokenizer.from_pretrained": saved(tiny_bert(), tmp_path / "bert"),
        "train.text_text.source": tmp_path / "pairs.tsv",
        "training.max_steps": 2,
        "training.per_device_train_batch_size": 8,
        "training.use_cpu": "true",
        "training.precision": "float32",
    }
    run("train", "mla/adapter", *(f"--set={key}={value}" for key, value in settings.items()), "--output", out)
    english, after = (Embedder.from_pretrained(each).encode_text(["a red dog"]) for each in (base, out))
    np.testing.assert_array_equal(english, after)
    alone, whole = (Embedder.from_pretrained(each) for each in (out / "adapter", out))
    texts = captions["de"][:4]
    np.testing.assert_array_equal(alone.encode_text(texts, language="de"), whole.encode_text(texts, language="de"))
    card = (out / "adapter" / "README.md").read_text(encoding="utf-8")
    assert "library_name: peft" in card and str(tmp_path) not in card
