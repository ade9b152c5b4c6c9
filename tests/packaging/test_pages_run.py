import json
import re
import shlex
import shutil
import sys
from itertools import product
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from babelens import Rc3ForConditionalGeneration, Rc3ForImageTextRetrieval, Rc3ForVisualQuestionAnswering, Rc3Model
from babelens.cli.main import main
from tests.support.documents import BLOCK, CHECKOUT, commands
from tests.support.tiny_native import saved, tiny_bert, tiny_clip
from tests.support.tiny_rc3_tasks import tiny_config, tiny_processor
from tests.support.tiny_text_encoders import tiny_tokenizer
from tests.support.tiny_training import write_shapes

pytestmark = pytest.mark.slow

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
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "argv", ["babelens", *words])
        try:
            main()
        except SystemExit as ended:
            assert not ended.code, words


def run_blocks(text: str, place: str, *, only_python: bool = False) -> int:
    """Runs the commands and the Python of a text and writes its files; returns how many ran. The title of a Python
    block is not a file's: it names what a test lacks."""
    ran, names = 0, {"__name__": "example"}
    for language, title, code in (found for indent, *found in BLOCK.findall(text) if not indent):
        if language == "python" and not title:
            exec(compile(code, place, "exec"), names)
            ran += 1
        elif language == "bash" and not only_python:
            for words in commands(code):
                if words[0] not in ELSEWHERE and "--help" not in words:
                    run(words)
                    ran += 1
        elif title and language != "python" and not Path(title).exists():
            Path(title).write_text(code, encoding="utf-8")
    return ran


def page(name: str) -> str:
    return (CHECKOUT / "docs" / name).read_text(encoding="utf-8")


def section(name: str, heading: str) -> str:
    return page(name).partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("name", ["quickstart.md", "how-to/language-for-your-clip.md"])
def test_a_page_runs(name, desk):
    text = re.sub(r"^(babelens train \S+)", rf"\1 {shlex.join(SHORT)}", page(name), flags=re.MULTILINE)
    assert run_blocks(text, name) > 4


@pytest.fixture(scope="module")
def examples(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("examples")
    (folder / "photos").mkdir()
    write_shapes(folder / "photos")
    (folder / "photos" / "pairs.tsv").rename(folder / "pairs.tsv")
    saved(tiny_clip(), folder / "clip")
    for name in ("mural", "mla", "smalr", "liwe"):
        saved(request.getfixturevalue(f"make_{name}")(), folder / "runs" / name)
    heads = {"rc3": Rc3Model, "itr": Rc3ForImageTextRetrieval, "xgqa": Rc3ForVisualQuestionAnswering}
    for name, head in (heads | {"translation": Rc3ForConditionalGeneration}).items():
        torch.manual_seed(0)
        processor = tiny_processor()
        saved((head(tiny_config(processor, visual="patches")), processor), folder / "runs" / name)
    return folder


@pytest.fixture
def here(examples, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("babelens.trainers.frozen_features.DEFAULT_CACHE", tmp_path / "cache")
    shutil.copytree(examples, tmp_path, dirs_exist_ok=True)  # trainers write into `runs`


API, LIBRARIES = "api/python.md", "how-to/other-libraries.md"
PYTHON = [(API, part.partition("\n")[0]) for part in page(API).split("\n## ")[1:]]
PYTHON += [(LIBRARIES, "transformers"), (LIBRARIES, "Data sets and trackers")]


@pytest.mark.parametrize(("name", "heading"), PYTHON)
def test_the_python_runs(name, heading, here):
    assert run_blocks(section(name, heading), f"{name}, {heading}", only_python=True) or name == API


GUIDES = [
    *((guide, "Example") for guide in ("mural", "etcl", "mla", "rc3", "smalr")),
    ("mural", "ALIGN"),
    ("smalr", "LIWE"),
    ("smalr", "Cross-lingual consistency"),
]
# The recipe's base and vocabulary are on the Hub.
OFFLINE = "--set model.from_pretrained=clip --set 'multilingual_tokenizer={vocab_size: 200}'"


@pytest.mark.parametrize(("guide", "heading"), GUIDES)
def test_the_example_of_a_method_runs(guide, heading, here):
    Path("runs/mural").rename("start")
    shutil.rmtree("runs")
    Path("runs").mkdir()
    Path("start").rename("runs/start")
    text = section(f"methods/{guide}.md", heading).replace("openai/clip-vit-base-patch32", "clip")
    text = text.replace("train mla/adapter", f"train mla/adapter {OFFLINE}")
    if guide != "mural":
        text = text.replace("runs/mural", "runs/start")  # another guide's result
    assert run_blocks(text, guide)
