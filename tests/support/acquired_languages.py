"""`babelens acquire` on tiny models in the Hub's format: what people bring, and what German and French become."""

import json

import pytest
from acquire_command import as_arguments, run_acquire
from tiny_native import saved, tiny_bert, tiny_clip, tiny_siglip
from tiny_training import COLORS, SHAPES, shapes_corpus

SIZES = {"small": ("kleiner", "petit"), "big": ("großer", "grand"), "old": ("alter", "vieux")}


def sentences():
    """48 things in English, German and French."""
    return [
        {
            "en": f"a {size} {color} {shape}",
            "de": f"{german} {form} in {farbe}",
            "fr": f"{french} {forme} {couleur}",
        }
        for size, (german, french) in SIZES.items()
        for color, (farbe, couleur, _) in COLORS.items()
        for shape, (form, forme) in SHAPES.items()
    ]


@pytest.fixture(scope="session")
def brought(tmp_path_factory):
    """Models, translations and captions as people bring them."""
    folder = tmp_path_factory.mktemp("brought")
    for name, parts in {"clip": tiny_clip(), "siglip": tiny_siglip(), "bert": tiny_bert()}.items():
        saved(parts, folder / name)
    rows = sentences()
    write_tsv(folder / "german.tsv", ["de", "en"], rows)  # the native language second
    (folder / "french.jsonl").write_text("\n".join(json.dumps({k: row[k] for k in ("en", "fr")}) for row in rows))
    (folder / "images").mkdir()
    metadata = []
    for row in shapes_corpus():
        row["image"].save(folder / "images" / f"{row['image_id']}.png")
        french = next(caption["text"] for caption in row["captions"] if caption["language"] == "fr")
        metadata.append({"file_name": f"{row['image_id']}.png", "captions": {"fr": french}})
    (folder / "images" / "metadata.jsonl").write_text("\n".join(map(json.dumps, metadata)))
    return folder


def write_tsv(file, languages, rows):
    lines = ["\t".join(languages), *("\t".join(row[tag] for tag in languages) for row in rows)]
    file.write_text("\n".join(lines) + "\n")


def options(folder, **changes):
    """The arguments of a quick run, some changed; `None` leaves one out, `True` is a flag."""
    given = {
        "way": "adapter",
        "base": folder / "clip",
        "language": "de",
        "translations": folder / "german.tsv",
        "vocabulary": folder / "bert",
        "output": folder / "output",
        "steps": 5,
        "keep": "trained",
        "names": False,
        "batch_size": 8,
        "acquirer_size": 8,
        "learning_rate": 1e-2,
    } | changes
    return as_arguments(given)


def later_options(folder, **changes):
    """Of a language that is not the first: what that one settled is left out."""
    return options(folder, **{"vocabulary": None, "acquirer_size": None} | changes)


@pytest.fixture(scope="session")
def german(brought):
    """CLIP learned German."""
    assert run_acquire(*options(brought, output=brought / "german", assemble=True)) == 0
    return brought / "german"


@pytest.fixture(scope="session")
def french(brought, german):
    """And then French, with images."""
    given = later_options(
        brought,
        base=german / "model",
        language="FR",
        translations=brought / "french.jsonl",
        captions=brought / "images",
        exposure_steps=2,
        output=brought / "french",
        assemble=True,
    )
    assert run_acquire(*given) == 0
    return brought / "french"
