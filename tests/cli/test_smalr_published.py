"""The recipes `smalr/…` on a few images: features in the splits of one folder, captions as people wrote them, and a
file of translations in the place of a translation model."""

import json

import numpy as np
import pytest
from datasets import Dataset
from typer.testing import CliRunner

from babelens.cli.main import app
from babelens.workflows.loading import load_recipe

TAGS = ("en", "de", "fr", "cs", "zh", "ja", "ar", "af", "ko", "ru")
WORDS = dict(zip(TAGS, ("dog", "Hund", "chien", "pes", "狗", "犬", "كلب", "hond", "개", "собака"), strict=True))
PEOPLE = {"multi30k": {"en": 5, "de": 5, "fr": 1, "cs": 1}, "coco": {"en": 5, "zh": 1, "ja": 1}}
SMALL = {"hidden_size": 16, "image_hidden_size": 16, "word_size": 4}


def text(tag, number, kind):
    return f"{WORDS[tag]} {number} {kind}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """`data/multi30k-features` and `data/coco-features`, as `babelens features` writes them, and a table."""
    folder = tmp_path_factory.mktemp("smalr")
    rng = np.random.default_rng(0)
    table = []
    for name, people in PEOPLE.items():
        (folder / f"data/{name}-features/data").mkdir(parents=True)
        for split, numbers in {"train": range(6), "validation": range(6, 9)}.items():
            rows = []
            for n in numbers:
                own = [(tag, text(tag, n, kind)) for tag, count in people.items() for kind in range(count)]
                captions = [{"language": tag, "text": caption} for tag, caption in own]
                features = rng.standard_normal(2048, dtype=np.float32)
                rows.append({"image_id": f"{n}.jpg", "captions": captions, "features": features.tolist()})
                for tag, caption in own:
                    others = {other: f"{WORDS[other]} {caption}" for other in TAGS if other != tag}
                    table.append(json.dumps({tag: caption} | others))
            parquet = folder / f"data/{name}-features/data/{split}-00000-of-00001.parquet"
            Dataset.from_list(rows).to_parquet(parquet)
    (folder / "table.jsonl").write_text("\n".join(table))
    (folder / "vectors").mkdir()
    words = [*(word.lower() for word in WORDS.values()), *map(str, range(9))]
    for tag in TAGS:
        lines = [f"{word} {' '.join(map(str, rng.standard_normal(300).round(3)))}" for word in words]
        (folder / f"vectors/wiki.{tag}.vec").write_text("\n".join([f"{len(lines)} 300", *lines]))
    return folder


def from_table(given):
    """What `translate` has, with the table in the place of the model."""
    return (
        [part | {"model": "table.jsonl"} for part in given]
        if isinstance(given, list)
        else given | {"model": "table.jsonl"}
    )


def train(name, output):
    recipe = load_recipe(f"smalr/{name}")
    settings = {f"model.overrides.{key}": value for key, value in SMALL.items() if recipe.method == "smalr"}
    if name in ("smalr", "hem", "la", "mscoco"):
        settings["model.overrides.latent_tokens"] = 8
    for key, source in [
        *((f"train.{task}", each) for task, each in recipe.train.items()),
        ("validation", recipe.validation),
    ]:
        if source.translate:
            settings[f"{key}.translate"] = json.dumps(from_table(source.translate))
    settings |= {
        f"stages.{stage.name}.training.num_train_epochs": 1
        for stage in recipe.stages
        if "num_train_epochs" in stage.training
    }
    settings |= {"training.num_train_epochs": 1, "training.per_device_train_batch_size": 3, "training.use_cpu": "true"}
    settings |= {"training.precision": "float32", "training.dataloader_num_workers": 0}
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    done = CliRunner().invoke(app, ["train", f"smalr/{name}", "--output", str(output), *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads((output / "config.json").read_text())


@pytest.mark.parametrize("name", ["smalr", "hem", "la", "mule", "embn", "par-embn", "s-liwe", "l-liwe", "mscoco"])
def test_every_row_starts(folder, monkeypatch, tmp_path, name):
    monkeypatch.chdir(folder)
    config = train(name, tmp_path / "run")
    assert set(config.get("languages", TAGS)) == ({"en"} if name == "embn" else set(TAGS))


def test_rows_read_the_same_words_and_captions():
    """So that a table compares models, and not what they were given."""
    whole = load_recipe("smalr/smalr")
    for name in ("hem", "la", "mule", "par-embn", "embn"):
        recipe = load_recipe(f"smalr/{name}")
        assert recipe.words == whole.words and not recipe.words.aligned
        assert recipe.train["image_text"].translate == whole.train["image_text"].translate


def test_each_image_has_five_sentences_or_more_in_each_language(folder, monkeypatch):
    monkeypatch.chdir(folder)
    for name in ("smalr", "mscoco"):
        source = load_recipe(f"smalr/{name}").train["image_text"]
        captions = (
            type(source.translated).of(from_table(source.translate)).apply(source.load(), "train")["captions"][0]
        )
        counts = {tag: sum(caption["language"] == tag for caption in captions) for tag in TAGS}
        assert min(counts.values()) >= 5, counts
