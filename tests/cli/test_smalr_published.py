"""SMALR's data have five sentences of each image in each language (Burns et al. 2020, section 7.1)."""

import json

import pytest
from datasets import Dataset

from babelens.training.loading import load_recipe

TAGS = ("en", "de", "fr", "cs", "zh", "ja", "ar", "af", "ko", "ru")
# In the script of the language: a column of other texts is not one of captions.
WORDS = dict(
    zip(
        TAGS, ("picture", "Bild", "image", "obrázek", "图片", "写真の", "صورة", "prent", "사진", "снимок"), strict=True
    )
)
PEOPLE = {"smalr": {"en": 5, "de": 5, "fr": 1, "cs": 1}, "mscoco": {"en": 5, "zh": 1, "ja": 1}}


@pytest.mark.parametrize("name", PEOPLE)
def test_each_image_has_five_sentences_or_more_in_each_language(monkeypatch, tmp_path, name):
    monkeypatch.chdir(tmp_path)
    captions = [
        {"language": tag, "text": f"{WORDS[tag]} {kind}"}
        for tag, count in PEOPLE[name].items()
        for kind in range(count)
    ]
    source = load_recipe(f"smalr/{name}").train["image_text"]
    rows = [{"image_id": "1.jpg", "captions": captions, "features": [0.0]}]
    Dataset.from_list(rows).to_parquet(f"{source.source}/data/train-00000-of-00001.parquet")
    table = [
        {one["language"]: one["text"]} | {tag: f"{WORDS[tag]} {row}" for tag in TAGS if tag != one["language"]}
        for row, one in enumerate(captions)
    ]
    (tmp_path / "table.jsonl").write_text("\n".join(map(json.dumps, table)))
    translated = type(source.translated).of([part | {"model": "table.jsonl"} for part in source.translate])
    [found] = translated.apply(source.load(), "train")["captions"]
    counts = {tag: sum(caption["language"] == tag for caption in found) for tag in TAGS}
    assert min(counts.values()) >= 5, counts
