import pytest
from transformers import AutoModel, AutoModelForSeq2SeqLM, AutoProcessor, AutoTokenizer

from babelens import Embedder
from babelens.training.trim import gather_texts, trim
from tests.support.tiny_checkpoints import CHECKPOINTS, KEPT_TEXTS, TEXTS, tiny_mbart
from tests.support.tiny_native import saved
from tests.support.tiny_training import write_shapes


@pytest.fixture
def texts_file(tmp_path):
    file = tmp_path / "kept.txt"
    file.write_text("\n".join([*KEPT_TEXTS, "", "  "]), "utf-8")
    return file


def test_mbart_trimmed_generates_the_same(tmp_path):
    model, tokenizer = tiny_mbart()
    pieces = {number for row in tokenizer(KEPT_TEXTS)["input_ids"] for number in row}
    rare = sorted(set(range(4, tokenizer.lang_code_to_id["ar_AR"])) - pieces)
    model.final_logits_bias[:, rare] = -1e4  # it says nothing in other languages
    source = str(saved((model, tokenizer), tmp_path / "mbart"))
    output = tmp_path / "trimmed"
    report = trim(source, KEPT_TEXTS, output, coverage=1)
    assert report.coverage == 1 and report.texts == len(KEPT_TEXTS)
    assert report.pieces == (len(tokenizer), len(AutoTokenizer.from_pretrained(output)))
    dropped = report.pieces[0] - report.pieces[1]
    assert dropped > 0 and report.parameters[0] - report.parameters[1] == model.config.d_model * dropped
    written = []
    for folder in (source, output):
        model, tokenizer = (auto.from_pretrained(folder) for auto in (AutoModelForSeq2SeqLM, AutoTokenizer))
        inputs = tokenizer(KEPT_TEXTS, padding=True, return_tensors="pt")
        written.append(tokenizer.batch_decode(model.generate(**inputs)))
    assert written[0] == written[1]
    assert not list(tmp_path.glob("*.partial"))


def test_models_of_babelens(run, make_mla, texts_file, tmp_path):
    model, processor = make_mla()
    source = saved((model, processor), tmp_path / "mla")
    printed = run("trim", source, "--texts", texts_file, "--output", tmp_path / "out").output
    assert "of the pieces in" in printed and "texts are kept" in printed
    smaller = AutoModel.from_pretrained(tmp_path / "out")
    assert smaller.config.vocab_size < model.config.vocab_size
    assert smaller.config.languages == model.config.languages
    trimmed = Embedder(smaller, AutoProcessor.from_pretrained(tmp_path / "out"))
    for language in (model.config.languages[0], "en"):
        before = Embedder(model, processor).encode_text(KEPT_TEXTS, language=language)
        assert (trimmed.encode_text(KEPT_TEXTS, language=language) == before).all()


def test_texts_of_a_recipe(tmp_path):
    shapes, recipe = write_shapes(tmp_path), tmp_path / "recipe.yaml"
    recipe.write_text(
        "method: mural\nmodel: {preset: mural-tiny}\ntokenizer: {vocab_size: 100}\ntraining: {max_steps: 1}\n"
        f"train:\n  image_text: {{source: {shapes}, languages: [en]}}\n"
        f"  text_text: {{source: {shapes / 'pairs.tsv'}, pairs: [[en, de]]}}\n"
    )
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join(TEXTS["fr"]), "utf-8")
    english = sorted(TEXTS["en"], key=TEXTS["en"].index)
    assert gather_texts([lines], str(recipe)) == [*english, *TEXTS["de"], *TEXTS["fr"]]


def test_what_goes_wrong_is_one_sentence_and_nothing_is_written(run, make_smalr, texts_file, tmp_path):
    source = saved(CHECKPOINTS["mbert"](), tmp_path / "mbert")
    words = saved(make_smalr(), tmp_path / "smalr")
    mixed = saved((CHECKPOINTS["xlm_roberta"]()[0], CHECKPOINTS["mbert"]()[1]), tmp_path / "mixed")
    (tmp_path / "latin.txt").write_bytes("grün".encode("latin-1"))
    for message, *arguments in (
        ("name the texts", source),
        ("latin.txt line 1: not UTF-8", source, "--texts", tmp_path / "latin.txt"),
        ("SmalrProcessor has no tokenizer", words, "--texts", texts_file),
        ("pieces, and the model", mixed, "--texts", texts_file),
    ):
        told = run("trim", *arguments, "--output", tmp_path / "out", code=2).output
        assert message in " ".join(told.replace("│", " ").split()), told
        assert not (tmp_path / "out").exists() and not list(tmp_path.glob("*.partial"))
    assert isinstance(
        run("trim", source, "--texts", texts_file, "--output", source, code=1).exception, FileExistsError
    )
