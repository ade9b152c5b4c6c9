import io
import json

from rich.console import Console

from babelens.cli.tables import print_emoji_report
from babelens.evaluation.emoji import EmojiBenchmark
from babelens.training.results import labelled_images
from tests.support.retrieval_fixtures import ColorEmbedder

GROUPS = {"image_languages": ["en", "DE"], "pair_languages": ["es"], "unseen_languages": ["ar"]}


def test_each_question_asks_the_right_images_in_the_right_languages(emoji_corpus):
    embedder = ColorEmbedder()
    report = EmojiBenchmark(embedder, corpus=emoji_corpus, **GROUPS).report()
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    concepts, vendor = report["unseen_concepts"], report["unseen_vendor"]
    assert (concepts["vendor"], concepts["split"], concepts["n_images"], concepts["n_flags"]) == (
        "twemoji",
        "test",
        4,
        1,
    )
    assert (vendor["vendor"], vendor["split"], vendor["n_images"], vendor["n_flags"]) == ("noto", "train", 8, 2)
    assert concepts["chance"] == {"t2i_r1": 25.0, "t2i_r5": 100.0, "t2i_r10": 100.0}
    for answers in (concepts, vendor):
        languages = {group: list(answer["languages"]) for group, answer in answers["groups"].items()}
        assert languages == {"image": ["en", "de"], "pair": ["es"], "unseen": ["ar"]}
        for answer in answers["groups"].values():
            assert answer["mean"]["mean_recall"] == 100
    assert embedder.n_images == 4 + 8  # those of openmoji, and the rest of the splits, are not asked
    assert len(embedder.texts) == len(set(embedder.texts)) == 4 * (4 + 8)


def test_flags_are_reported_apart_and_the_table_shows_every_group_and_language(emoji_corpus):
    """One of the two flags among the training concepts, 30 and 70, is taken for another image."""
    report = EmojiBenchmark(ColorEmbedder({"gesicht 30": 0}), corpus=emoji_corpus, **GROUPS).report()
    german = report["unseen_vendor"]["groups"]["image"]["languages"]["de"]
    assert german["t2i_r1"] == 100 * 7 / 8
    assert (german["flags"]["t2i_r1"], german["flags"]["n_texts"]) == (50, 2)
    assert (german["others"]["t2i_r1"], german["others"]["n_texts"]) == (100, 6)
    mean = report["unseen_vendor"]["groups"]["image"]["mean"]
    assert mean["flags"]["t2i_r1"] == 75  # English knows both
    output = io.StringIO()
    print_emoji_report(report, Console(file=output, width=100))
    lines = output.getvalue().splitlines()
    for title in ("1 Unseen concepts", "2 Unseen vendor", "3 Unseen vendor", "4 Unseen vendor"):
        assert any(line.strip().startswith(title) for line in lines)
    rows = [line.split() for line in lines if line.split()[:1] == ["de"]]
    assert rows[1][1:] == ["87.5", "100.0", "100.0", "100.0", "91.7", "100.0", "100.0"]


def test_images_with_labels_are_of_concepts_never_seen(emoji_corpus):
    shown = [*labelled_images(EmojiBenchmark(ColorEmbedder({}), corpus=emoji_corpus, **GROUPS), 4)]
    test = emoji_corpus.filter(lambda row: (row["vendor"], row["split"]) == ("twemoji", "test"))
    trained = ["en", "de", "es"]
    assert [language for _, language, _ in shown] == [trained[n % len(trained)] for n in range(4)]
    for image, language, labels in shown:
        names = {
            caption["text"]: row["image"].tobytes()
            for row in test
            for caption in row["captions"]
            if caption["language"] == language and row["category"] != "Flags"
        }
        assert names[labels[0]] == image.tobytes()
        assert set(labels) == set(names) and len(labels) == 3
