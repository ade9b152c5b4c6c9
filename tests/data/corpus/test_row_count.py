import json
import zipfile

import pytest
from datasets import Dataset
from hypothesis import HealthCheck, given, settings, strategies as st
from PIL import Image

from babelens.data import load_captions
from babelens.data.corpus.corpus import RowCount
from babelens.data.readers.bitext import read_translations
from babelens.utils.errors import BabelensError

ENGLISH = st.sampled_from(["a red chair", "two dogs", "two dogs", 'the "best" cup', "", " ", None, "x" * 20_000])
UKRAINIAN = st.sampled_from(["червоний стілець", "два пси", "два пси", "чашка", "", "\u2003", None])
PAIRS = st.lists(st.tuples(ENGLISH, UKRAINIAN, st.sampled_from(["ein Stuhl", "", None])), min_size=1, max_size=12)
KINDS = ["csv", "tsv", "jsonl", "json", "translation.jsonl", "parquet", "pair.tsv.gz", "zip"]


@pytest.fixture
def counts(monkeypatch):
    found = []
    monkeypatch.setattr(RowCount, "report", lambda count: found.append(count))
    return found


def write(folder, kind, rows, header):
    file = folder / f"x.en-uk.{kind}"
    named = [dict(zip(header, row, strict=True)) for row in rows]
    if kind == "parquet":
        Dataset.from_dict({name: [row[name] for row in named] for name in header}).to_parquet(file)
    elif kind == "zip":
        with zipfile.ZipFile(file, "w") as archive:
            for column, tag in enumerate(("en", "uk")):
                archive.writestr(f"X.en-uk.{tag}", "".join(f"{row[column] or ''}\n" for row in rows))
    elif kind == "json":
        file.write_text(json.dumps(named, ensure_ascii=False), "utf-8")
    elif kind.endswith("jsonl"):
        lines = [{"translation": row} if "translation" in kind else row for row in named]
        file.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    else:
        import pandas as pd

        table = pd.DataFrame([[*row[:2], "1.5"] for row in rows] if "pair" in kind else rows, columns=header)
        table.to_csv(file, sep="," if "csv" in kind else "\t", index=False, header="pair" not in kind)
    return file


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(rows=PAIRS, tags=st.sampled_from([("en", "uk", "de"), ("EN-US", "uk_UA", "de")]))
def test_translations(kind, rows, tags, tmp_path, counts):
    counts.clear()
    if kind == "zip" or "pair" in kind:
        rows = [(*row[:2], "") for row in rows]
    rows = [row for row in rows if any(cell and cell.strip() for cell in row)]  # a blank line is no row
    if not rows:
        return
    try:
        corpus = read_translations(
            str(write(tmp_path, kind, rows, tags)), languages=["en", "uk"], on_incomplete="skip"
        )
    except BabelensError as error:
        assert str(error)  # a row that is refused, or no row that can be read
        return
    (count,) = counts
    assert count.read + count.left_out.total() == len(rows) and count.read == len(corpus) > 0
    assert {each["language"] for row in corpus for each in row["captions"]} == {"en", "uk"}


@pytest.mark.parametrize("kind", ["csv", "metadata.csv", "metadata.jsonl", "parquet"])
@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(rows=PAIRS, split=st.sampled_from([None, "train"]))
def test_captions(kind, rows, split, tmp_path, counts):
    counts.clear()
    Image.new("RGB", (8, 8)).save(tmp_path / "0.png")
    (tmp_path / "1.png").write_bytes(b"no image")
    records = [
        {"image": f"{n % 5 == 4:d}.png", "text_en": en, "uk": uk, "split": "test" if n % 3 == 2 else "train"}
        for n, (en, uk, _) in enumerate(rows)
    ]
    file = tmp_path / (kind if "metadata" in kind else f"x.{kind}")
    data = Dataset.from_dict({name: [row[name] for row in records] for name in records[0]})
    if kind.endswith("csv"):
        data.to_csv(file, index=False)
    elif kind.endswith("jsonl"):
        data.to_json(file)
    else:
        data.map(lambda row: {"image": str(tmp_path / row["image"])}, load_from_cache_file=False).to_parquet(file)
    source = tmp_path if "metadata" in kind else file
    try:
        corpus = load_captions(source, languages=["en", "uk"], split=split, on_bad_image="skip")
    except BabelensError as error:
        assert str(error)
        return
    finally:
        file.unlink()
    (count,) = counts
    assert count.read + count.left_out.total() == len(rows) and count.read == len(corpus)


def test_the_log_counts_and_names_rows(tmp_path, caplog):
    table = "en,uk,de,text_de\na cat,кіт,,\na dog,,,\n,пес,Hund,Hund\n,,Pferd,Pferd\na cup,чашка,,\n"
    (tmp_path / "x.csv").write_text(table, "utf-8")  # its two German columns are not examined
    assert len(read_translations(str(tmp_path / "x.csv"), languages=["en", "uk"], on_incomplete="skip")) == 2
    (told,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "read 2 of 5 rows; left out 3 with too few texts (line 3, line 4, line 5)" in told.getMessage()
