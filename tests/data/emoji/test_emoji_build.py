import random
from collections import Counter

from babelens.data.emoji.build import Concept, group_concepts, split_concepts

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
