"""How much of held-out data is trained on: equal files of images, and equal texts."""

import io

import numpy as np
import PIL.Image
from datasets import Dataset, Features, Image, Value

from babelens.data.corpus.corpus import CAPTIONS
from babelens.data.corpus.overlap import corpus_overlaps


def png(seed):
    buffer = io.BytesIO()
    noise = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    PIL.Image.fromarray(noise).save(buffer, "PNG")
    return {"bytes": buffer.getvalue(), "path": None}


def corpus(images, texts):
    rows = [
        {"image": image, "image_id": str(n), "captions": [{"language": "en", "text": text}]}
        for n, (image, text) in enumerate(zip(images, texts, strict=True))
    ]
    features = Features(image=Image(decode=False), image_id=Value("string"), captions=CAPTIONS)
    return Dataset.from_list(rows, features=features)


def test_equal_files_and_equal_texts_are_counted_wherever_they_are(tmp_path):
    path = tmp_path / "1.png"
    path.write_bytes(png(1)["bytes"])
    held_out = corpus(
        [png(0), png(1), png(2), {"bytes": None, "path": "gone.png"}], ["a cat", "a  dog", "café", "a cat"]
    )
    training = corpus([{"bytes": None, "path": str(path)}, png(3), png(0)], ["a dog", "a bird", "cafe\u0301"])
    images, texts = corpus_overlaps(held_out, images={"a": training}, texts={"b": training})
    assert (images.total, images.same, texts.total, texts.same) == (4, 2, 3, 2)
    assert images.is_notable and texts.is_notable
    assert str(images) == "2 of the 4 held-out images are also in the training data"


def test_streams_and_features_are_not_compared():
    held_out = corpus([png(0)], ["a cat"])
    stream = held_out.to_iterable_dataset()
    features = Dataset.from_dict({"features": [[1.0]], "captions": [[{"language": "en", "text": "a bird"}]]})
    images, texts = corpus_overlaps(held_out, images={"a": stream, "b": features}, texts={"c": features})
    assert (images.same, texts.same) == (0, 0) and not images.is_notable
    assert str(images).endswith("(a, b not compared)") and texts.unchecked == ()
    assert corpus_overlaps(held_out, images={}, texts={}) == []
