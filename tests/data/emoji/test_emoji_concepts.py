"""Concepts of the emoji benchmark: their ids, which belong together, and a split that keeps them together."""

import random
from collections import Counter

import pytest

from babelens.data.emoji.build import Concept, group_concepts, split_concepts


def concept(emoji, name, subcategory="", category=""):
    return Concept(emoji, category, subcategory, name)


VARIANTS = {
    "gender": [
        concept("🧑\u200d🚒", "firefighter"),
        concept("👨\u200d🚒", "man firefighter"),
        concept("👩\u200d🚒", "woman firefighter"),
    ],
    "gender without a word": [
        concept("🧜\u200d♀️", "mermaid"),
        concept("🧜\u200d♂️", "merman"),
        concept("🧜", "merperson"),
    ],
    "direction": [concept("🏃", "person running"), concept("🏃\u200d♀️\u200d➡️", "woman running: facing right")],
    "clock faces": [concept("🕛", "twelve o’clock", "time"), concept("🕧", "twelve-thirty", "time")],
    "keycaps": [concept("#️⃣", "keycap: #", "keycap"), concept("🔟", "keycap: 10", "keycap")],
    "arrows": [concept("➡️", "right arrow", "arrow"), concept("🔙", "BACK arrow", "arrow")],
    "colours": [concept("❤️", "red heart"), concept("🩵", "light blue heart"), concept("🤍", "white heart")],
    "one flag of several countries": [
        concept("🇳🇴", "flag: Norway"),
        concept("🇸🇯", "flag: Svalbard & Jan Mayen"),
        concept("🇧🇻", "flag: Bouvet Island"),
    ],
}


def test_variants_form_one_group():
    for variants in VARIANTS.values():
        stranger = concept("🐙", "octopus")
        assert group_concepts([stranger, *variants]) == [[stranger], variants]


def some_concepts(seed):
    """Concepts in groups of one to seven, in a random order."""
    generator = random.Random(seed)
    colours = ["red", "green", "blue", "black", "white", "brown", "pink"]
    concepts = [
        concept(chr(0xE000 + 10 * thing + number), f"{colour} thing-{chr(0x4E00 + thing)}")
        for thing in range(60)
        for number, colour in enumerate(colours[: generator.randint(1, 7)])
    ]
    generator.shuffle(concepts)
    return concepts


@pytest.mark.parametrize("seed", range(1))
def test_no_group_lies_on_two_sides(seed):
    concepts = some_concepts(seed)
    split_of = split_concepts(concepts, test=40, validation=15)
    for group in group_concepts(concepts):
        assert len({split_of[member.id] for member in group}) == 1, group
    sizes = Counter(split_of.values())
    assert sizes == {"test": 40, "validation": 15, "train": len(concepts) - 55}
