"""The quickstart and the guide on languages run as they are printed, command by command, on small data."""

import json
import sys
from itertools import product
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from babelens.cli.main import main
from tests.support.documents import CHECKOUT, TITLED_BLOCK, commands
from tests.support.tiny_native import saved, tiny_bert, tiny_clip
from tests.support.tiny_text_encoders import tiny_tokenizer

pytestmark = pytest.mark.slow

PAGES = ["quickstart.md", "how-to/language-for-your-clip.md"]
ELSEWHERE = {"serve", "demo"}  # one does not end; `make demo` runs the other
SHORT = ["--set", "training.max_steps=2", "--set", "training.per_device_train_batch_size=8"]
COLORS = {"red": ("rotes", "червоний"), "green": ("grünes", "зелений"), "blue": ("blaues", "синій")}
THINGS = {"house": ("Haus", "будинок"), "dog": ("Pferd", "пес"), "bread": ("Brot", "хліб"), "table": ("Bett", "стіл")}
PLACES = {
    "in the snow": ("im Schnee", "на снігу"),
    "in the garden": ("im Garten", "у саду"),
    "at night": ("nachts", "вночі"),
}
WORDS = {**COLORS, **THINGS}
QUECHUA = (
    "allqu dog michi cat wasi house inti sun killa moon yaku water rumi stone urqu mountain runa person wawa child"
)


def sentences() -> list[dict[str, str]]:
    """36 captions in English, German and Ukrainian."""
    return [
        {
            "en": f"a {color} {thing} {place}",
            "de": f"ein {COLORS[color][0]} {THINGS[thing][0]} {PLACES[place][0]}",
            "uk": f"{COLORS[color][1]} {THINGS[thing][1]} {PLACES[place][1]}",
        }
        for color, thing, place in product(COLORS, THINGS, PLACES)
    ]


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """The working directory: photographs, translations, words, vectors, and tiny models under the names of the Hub."""
    monkeypatch.chdir(tmp_path)
    rows = sentences()
    photos = tmp_path / "photos"
    photos.mkdir()
    with (photos / "metadata.jsonl").open("w", encoding="utf-8") as metadata:
        for number, row in enumerate(rows[:12]):
            Image.new("RGB", (40, 40), (20 * number, 80, 120)).save(photos / f"{number}.jpg")
            captions = {tag: [row[tag]] for tag in row}
            metadata.write(json.dumps({"file_name": f"{number}.jpg", "captions": captions}) + "\n")
    for tag in ("de", "uk"):
        lines = [f"en\t{tag}", *(f"{row['en']}\t{row[tag]}" for row in rows)]
        Path(f"en-{tag}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    quechua = QUECHUA.split()
    words = ["uk\tqu\ten", *(f"{uk}\t\t{en}" for en, (_, uk) in WORDS.items())]
    words += [f"\t{qu}\t{en}" for qu, en in zip(quechua[::2], quechua[1::2], strict=True)]
    Path("words.tsv").write_text("\n".join(words) + "\n", encoding="utf-8")
    Path("captions.en.txt").write_text("\n".join(row["en"] for row in rows) + "\n", encoding="utf-8")
    vectors = [[float(len(row["en"])), float(number), 1.0, -1.0] for number, row in enumerate(rows)]
    pq.write_table(pa.table({"text": [row["en"] for row in rows], "vector": vectors}), "vectors.parquet")
    saved(tiny_clip(), tmp_path / "openai/clip-vit-base-patch32")
    saved(tiny_bert(layers=3), tmp_path / "intfloat/multilingual-e5-small")
    tiny_tokenizer().save_pretrained(tmp_path / "google-bert/bert-base-multilingual-cased")


def run(words: list[str]) -> None:
    """Runs a command as the program does."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "argv", ["babelens", *words])
        try:
            main()
        except SystemExit as ended:
            assert not ended.code, words


@pytest.mark.parametrize("page", PAGES)
def test_every_command_and_example_runs(page, desk):
    ran = 0
    for language, _, code in TITLED_BLOCK.findall((CHECKOUT / "docs" / page).read_text(encoding="utf-8")):
        if language == "bash":
            for words in commands(code):
                if words[0] not in ELSEWHERE and "--help" not in words:
                    run([*words, *(SHORT if words[0] == "train" else [])])
                    ran += 1
        elif language == "python":
            exec(compile(code, page, "exec"), {})
    assert ran > 4
