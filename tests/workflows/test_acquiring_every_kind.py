"""`babelens acquire` on every kind of dual encoder, with the vocabulary of an XLM-R: the language is learned, and
everything else stays as it was."""

import itertools
import random

import numpy as np
import pytest
from tiny_dual_encoders import KINDS, tiny_xlm_roberta
from tiny_native import saved
from tiny_training import COLORS, SHAPES, shapes_corpus
from transformers import AutoModel, AutoTokenizer

from babelens import Embedder
from babelens.evaluation.retrieval import translation_retrieval
from babelens.workflows.acquiring import Acquisition

SIZES = {"small": "kleiner", "big": "großer", "old": "alter", "new": "neuer"}
THINGS = list(itertools.product(SIZES.items(), COLORS.items(), SHAPES.items(), {"a": "ein", "the": "der"}.items()))
random.Random(0).shuffle(THINGS)
ENGLISH = [f"{the} {size} {color} {shape}" for (size, _), (color, _), (shape, _), (the, _) in THINGS]
GERMAN = [f"{der} {size} {form} in {color}" for (_, size), (_, (color, *_)), (_, (form, _)), (_, der) in THINGS]
HELD_OUT = 24


@pytest.fixture(scope="module")
def brought(tmp_path_factory):
    """Translations, and an XLM-R whose table is the vocabulary."""
    folder = tmp_path_factory.mktemp("brought")
    saved(tiny_xlm_roberta(), folder / "xlm-roberta")
    rows = zip(["en", *ENGLISH[HELD_OUT:]], ["de", *GERMAN[HELD_OUT:]], strict=True)
    (folder / "pairs.tsv").write_text("\n".join("\t".join(row) for row in rows))
    return folder


def german(brought, base, output, **changes):
    """The acquisition of German, in a few steps."""
    training = {"per_device_train_batch_size": 32, "learning_rate": 3e-2, "weight_decay": 0.0, "use_cpu": True}
    given = {"vocabulary": str(brought / "xlm-roberta"), "acquirer_size": 32, "steps": 120}
    given |= {"training": training | {"precision": "float32"}} | changes
    return Acquisition(str(base), "de", str(brought / "pairs.tsv"), output, **given)


def learned(acquisition):
    """Trains, saves the adapter and the model, and returns the recall at 1 and 10 of texts that were held out."""
    acquisition.load()
    results = acquisition.run()
    acquisition.assemble()
    acquisition.save(results, "babelens acquire")
    texts, translations = GERMAN[:HELD_OUT], ENGLISH[:HELD_OUT]
    embedder = Embedder(acquisition.model, acquisition.processor)
    return translation_retrieval(embedder, texts, translations, languages=("de", "en"))


def features(source, *languages, **loading):
    embedder = Embedder.from_pretrained(source, **loading)
    embedder.model.requires_grad_(False)  # torch may multiply weights that are trained in another way
    images = [row["image"] for row in shapes_corpus().select(range(4))]
    texts = {"en": [*ENGLISH[:9], " ".join(ENGLISH)], "de": [*GERMAN[:9], " ".join(GERMAN)]}  # one is cut
    found = {tag: embedder.encode_text(texts[tag], language=tag, normalize=False) for tag in languages}
    return found | {"images": embedder.encode_image(images, normalize=False)}


def assert_same(found, expected):
    assert {name: np.array_equal(found[name], value) for name, value in expected.items()} == dict.fromkeys(
        expected, True
    )


@pytest.mark.parametrize("kind", KINDS)
def test_every_dual_encoder_acquires_a_language(brought, tmp_path, kind):
    base = saved(KINDS[kind](), tmp_path / "base")
    recalls = learned(german(brought, base, tmp_path / "de"))
    assert recalls["r1"] > 2 * 100 / HELD_OUT and recalls["r10"] > 1.5 * 1000 / HELD_OUT  # than chance
    model = features(tmp_path / "de" / "model", "en", "de")
    assert_same(model, features(base, "en"))
    assert_same(features(tmp_path / "de", "en", "de"), model)
    plain = AutoModel.from_pretrained(base).requires_grad_(False).eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "de" / "embedding")
