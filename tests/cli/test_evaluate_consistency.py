"""`babelens evaluate --consistency`: CLC-A, and a CLC-C that is fitted on other captions, with its weights."""

import json

import pytest
import torch
from PIL import Image

from babelens import CrossLingualConsistency, CrossLingualConsistencyConfig
from babelens.data.corpus.loading import load_captions
from babelens.evaluation import consistency as module, consistency_scores, emoji, evaluate_consistent_retrieval
from babelens.inference.embedder import Embedder
from babelens.inference.translation_cache import TranslationTable
from babelens.utils.errors import InputError


def captioned(folder):
    """Eight images with captions in two languages, four to be fitted on."""
    folder.mkdir()
    lines = []
    for n in range(8):
        Image.new("RGB", (20, 20), (30 * n, 255 - 30 * n, 10)).save(folder / f"{n}.png")
        captions = {"en": [f"number {n}"], "de": [f"nummer {n}", f"bild {n}"]}
        lines.append({"file_name": f"{n}.png", "split": "test" if n < 4 else "validation", "captions": captions})
    (folder / "metadata.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return folder


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return captioned(tmp_path_factory.mktemp("data") / "photos")


def test_captions_search_together_and_the_weights_are_those_of_fit(run, model, photos):
    options = ("--data", photos, "--split", "test", "--languages", "en,de", "--consistency")
    report = json.loads(run("evaluate", "captions", model, *options, "--fit", "validation", "--json").stdout)
    embedder, test = Embedder.from_pretrained(model), load_captions(photos, split="test")
    made = {
        kind: CrossLingualConsistency(CrossLingualConsistencyConfig(languages=["en", "de"], aggregation=aggregation))
        for kind, aggregation in (("clc_a", "mean"), ("clc_c", "mlp"))
    }
    scores, right = consistency_scores(embedder, load_captions(photos, split="validation"), "en", ["en", "de"])
    losses = made["clc_c"].fit(scores, right)
    for kind, consistency in made.items():
        found = report["consistency"][kind]
        expected = evaluate_consistent_retrieval(embedder, test, ["en", "de"], consistency)
        assert found["recalls"] == {str(photos): expected}
        assert found["importances"] == pytest.approx(consistency.importances, abs=1e-6)
    learned = report["consistency"]["clc_c"]
    for name, weights in learned["weights"].items():
        torch.testing.assert_close(torch.tensor(weights), getattr(made["clc_c"], name).weight.detach())
    assert (learned["parameters"], learned["losses"], learned["fitted_in"]) == (96, pytest.approx(losses), "en")
    assert set(report["recalls"]) == {"en", "de"}

    shown = run("evaluate", "captions", model, *options, "--fit", "validation").stdout
    assert "CLC-A" in shown and "CLC-C, 96 weights" in shown and "hidden unit 32" in shown
    assert f"{learned['weights']['hidden'][31][1]:.3f}" in shown


def test_translations_come_from_a_file_and_not_from_other_captions(run, model, photos, tmp_path):
    """Other captions of an image would tell more about it than its translations do."""
    table = tmp_path / "table.tsv"
    table.write_text("\n".join(["en\tde", *(f"number {n}\tdas {n}" for n in range(8))]))
    both = ("--data", photos, "--split", "test", "--languages", "en,de", "--consistency", "--json")
    failed = run("evaluate", "captions", model, *both, "--translator", table, code=1).exception
    assert isinstance(failed, InputError) and "8 texts have no translation from de to en" in str(failed)
    lines = [json.dumps({"en": f"number {n}", "de": f"das {n}"}) for n in range(8)]
    lines += [json.dumps({"de": f"{word} {n}", "en": f"that {n}"}) for n in range(8) for word in ("nummer", "bild")]
    table = tmp_path / "table.jsonl"
    table.write_text("\n".join(lines))
    found = json.loads(run("evaluate", "captions", model, *both, "--translator", table).stdout)["consistency"]["clc_a"]
    consistency = CrossLingualConsistency(CrossLingualConsistencyConfig(languages=["en", "de"], aggregation="mean"))
    arguments = Embedder.from_pretrained(model), load_captions(photos, split="test"), ["en", "de"], consistency
    expected = evaluate_consistent_retrieval(*arguments, translator=TranslationTable(table))
    assert found["recalls"] == {str(photos): expected} and found["translations"] == "machine"
    assert (
        json.loads(run("evaluate", "captions", model, *both).stdout)["consistency"]["clc_a"]["translations"]
        == "captions"
    )


def test_without_captions_to_fit_on_clc_c_is_left_out(run, model, photos):
    shown = run("evaluate", "captions", model, "--data", photos, "--split", "test", "--consistency").stdout
    assert "CLC-A" in shown and "CLC-C was left out: it needs captions for fitting" in shown


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--fit", "validation"), "CLC-C is fitted with --consistency"),
        (("--consistency", "--fit", "test"), "different captions"),
        (("--consistency", "--protocol", "wit"), "search together"),
    ],
)
def test_options_that_do_not_go_together_are_refused(run, model, photos, options, complaint):
    assert (
        complaint in run("evaluate", "captions", model, "--data", photos, "--split", "test", *options, code=2).output
    )


def test_the_emoji_benchmark_with_names_that_search_together(run, model, emoji_corpus, monkeypatch):
    asked = []

    def load_emoji(*, vendors, split, languages):
        asked.append((vendors, split, languages))
        wanted = {"validation": "train"}.get(split, split)
        return emoji_corpus.filter(lambda row: row["vendor"] in vendors and row["split"] == wanted)

    monkeypatch.setattr(emoji, "load_emoji", lambda **options: emoji_corpus)
    monkeypatch.setattr(module, "load_emoji", load_emoji)
    groups = ("--image-languages", "en,de", "--pair-languages", "es", "--unseen-languages", "ar")
    report = json.loads(run("evaluate", "emoji", model, *groups, "--consistency", "--json").stdout)
    assert asked == [
        (["twemoji"], "test", ["en", "de"]),
        (["noto"], "train", ["en", "de"]),
        (["twemoji"], "validation", ["en", "de"]),
    ]
    for found in report["consistency"].values():
        assert set(found["recalls"]) == {"unseen_concepts", "unseen_vendor"}
        assert found["recalls"]["unseen_vendor"]["de"]["n_images"] == 8
    assert len(report["consistency"]["clc_c"]["weights"]["hidden"]) == 32
    assert "CLC-C, 96 weights" in run("evaluate", "emoji", model, *groups, "--consistency").stdout


def test_results_with_consistency_are_compared_by_their_recalls(run, model, photos, tmp_path):
    options = ("--data", photos, "--split", "test", "--languages", "en,de")
    for name, more in (("plain", ()), ("joined", ("--consistency",))):
        run("evaluate", "captions", model, *options, *more, "--output", tmp_path / f"{name}.json")
    rows = json.loads(run("compare", tmp_path / "plain.json", tmp_path / "joined.json", "--format", "json").stdout)
    plain, joined = ([entry for entry in rows if entry["run"] == name] for name in ("plain", "joined"))
    assert plain and [entry["mean"] for entry in plain] == [entry["mean"] for entry in joined]
