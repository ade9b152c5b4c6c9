"""What cards say of the emoji benchmark."""

from babelens.model_cards.cards import model_card
from babelens.model_cards.facts import ModelCardFacts, emoji_results, emoji_sources
from babelens.model_cards.licenses import weights_license

RECALLS = dict.fromkeys(("t2i_r1", "t2i_r5", "t2i_r10", "i2t_r1", "i2t_r5", "i2t_r10", "mean_recall"), 12.5)
NUMBERS = RECALLS | {"n_images": 447, "n_texts": 447}
REPORT = {
    "unseen_concepts": {
        "vendor": "twemoji",
        "split": "test",
        "n_images": 447,
        "n_flags": 60,
        "chance": {"t2i_r1": 0.2, "t2i_r5": 1.1, "t2i_r10": 2.2},
        "groups": {
            "image": {"languages": {"de": NUMBERS | {"flags": RECALLS, "others": RECALLS}}, "mean": RECALLS},
            "unseen": {"languages": {"pt": NUMBERS | {"flags": RECALLS, "others": RECALLS}}, "mean": RECALLS},
        },
    },
    "unseen_vendor": {
        "vendor": "noto",
        "split": "train",
        "n_images": 1285,
        "n_flags": 180,
        "chance": {"t2i_r1": 0.1, "t2i_r5": 0.4, "t2i_r10": 0.8},
        "groups": {"image": {"languages": {"de": NUMBERS}, "mean": RECALLS}},
    },
}


def test_only_what_was_trained_on_is_named_and_binds_the_weights():
    names = [source.name for source in emoji_sources(["twemoji", "fluent"])]
    assert names == ["Unicode CLDR", "Twemoji", "Fluent Emoji"]
    assert weights_license(emoji_sources(["twemoji", "fluent"])) == "cc-by-4.0"
    assert weights_license(emoji_sources(["noto", "fluent"])) == "apache-2.0"
    assert weights_license(emoji_sources(["twemoji", "openmoji", "fluent"])) == "cc-by-sa-4.0"


def test_the_four_questions_become_two_tables():
    facts = ModelCardFacts(
        model_name="mural-emoji",
        method="mural",
        image_languages=["de"],
        unseen_languages=["pt"],
        training_data=emoji_sources(["twemoji", "openmoji", "fluent"]),
        results=emoji_results(REPORT, command="babelens evaluate emoji mural-emoji"),
    )
    text = model_card(facts).text
    concepts, vendor = text.split("**Emoji, unseen concepts (twemoji, test split)**")[1].split(
        "**Emoji, unseen vendor (noto, train split)**"
    )
    assert "| de | captioned images | 12.5 |" in concepts and "| pt | nothing | 12.5 |" in concepts
    assert "R@10 of 2.2" in concepts and "R@10 of 0.8" in vendor
    assert text.count("Measured by `babelens evaluate emoji mural-emoji`.") == 1
