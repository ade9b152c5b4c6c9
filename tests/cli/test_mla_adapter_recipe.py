import numpy as np
from transformers import AutoModel

from babelens import Embedder
from tests.support.tiny_native import saved, tiny_bert, tiny_clip, tiny_siglip
from tests.support.tiny_training import shapes_captions

TEXTS = shapes_captions()["de"][:4]


def train(run, name, base, folder, **settings):
    captions = shapes_captions()
    lines = ["de\ten", *map("\t".join, zip(captions["de"], captions["en"], strict=True))]
    (folder / "pairs.tsv").write_text("\n".join(lines) + "\n")
    bert = saved(tiny_bert(), folder / "bert")
    given = {
        "model.from_pretrained": saved(base, folder / "base"),
        "train.text_text.source": folder / "pairs.tsv",
        "training.max_steps": 2,
        "training.per_device_train_batch_size": 8,
        "training.use_cpu": "true",
        "training.precision": "float32",
    } | {key: bert if value is None else value for key, value in settings.items()}
    words = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
    run("train", f"mla/{name}", *words, "--output", folder / "out")
    english = [Embedder.from_pretrained(folder / part).encode_text(["a red dog"]) for part in ("base", "out")]
    np.testing.assert_array_equal(*english)
    return folder / "out"


def test_an_adapter_stands_beside_its_model(run, tmp_path):
    out = train(run, "adapter", tiny_siglip(), tmp_path, **{"multilingual_tokenizer.from_pretrained": None})
    alone = Embedder.from_pretrained(out / "adapter").encode_text(TEXTS, language="de")
    np.testing.assert_array_equal(alone, Embedder.from_pretrained(out).encode_text(TEXTS, language="de"))
    card = (out / "adapter" / "README.md").read_text(encoding="utf-8")
    assert "library_name: peft" in card and str(tmp_path) not in card


def test_a_student_is_a_whole_model(run, tmp_path):
    settings = {"text_model.from_pretrained": None, "training.towers": "{text: {train: upper, layers: 1}}"}
    assert AutoModel.from_pretrained(train(run, "student", tiny_clip(), tmp_path, **settings)).config.languages == [
        "de"
    ]
