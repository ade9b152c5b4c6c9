"""The concepts of the emoji benchmark: how they are grouped into variants of each other, and split.

A concept is an emoji without skin tone, identified by its code points (`1f468-200d-1f692`). Concepts that look alike
by design of Unicode or of a vendor form a group: a man and a woman doing the same thing, a runner facing right, the
colours of a heart, the hours of a clock, countries that share a flag. All concepts of a group are in the same split,
so that the unseen concepts of the test have no near copy in training. The split depends on the concepts alone: it is
the same for all vendors, languages and image sizes.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

SPLITS = ("train", "validation", "test")

VARIATION_SELECTOR = "\ufe0f"

# Words of English CLDR names in which the variants of a drawing differ.
_GENDERS = "man men woman women person people boy girl child adult male female and mr mrs mx santa"
_COLOURS = "red orange yellow green blue purple brown black white grey pink light dark"
_DIRECTIONS = """left right up down leftwards rightwards upwards downwards forward reverse next last first front facing
    pointing pointed tilted curving oncoming clockwise counterclockwise horizontal vertical horizontally vertically
    increasing decreasing waxing waning"""
_STATES = "open closed raised lowered small medium large low high volume"
_QUALIFIERS = frozenset(f"{_GENDERS} {_COLOURS} {_DIRECTIONS} {_STATES}".split())

# Subcategories of Unicode's list of emoji that are one drawing in many versions.
_SERIES_SUBCATEGORIES = frozenset({"arrow", "keycap", "skin-tone"})
_SERIES = (
    # Variants whose names have nothing in common.
    "🕛 🕧 🕐 🕜 🕑 🕝 🕒 🕞 🕓 🕟 🕔 🕠 🕕 🕡 🕖 🕢 🕗 🕣 🕘 🕤 🕙 🕥 🕚 🕦",
    "🌑 🌒 🌓 🌔 🌕 🌖 🌗 🌘",
    "🌚 🌛 🌜 🌝",
    "🌍 🌎 🌏",
    "🔇 🔈 🔉 🔊",
    "▶ ◀ 🔼 🔽 ⏫ ⏩",
    "🫅 🤴 👸",
    "🧓 👴 👵",
    "🧜 🧜‍♂ 🧜‍♀",
    # Flags that one of the vendors draws identically, pixel for pixel.
    "🇦🇺 🇭🇲",
    "🇨🇵 🇫🇷 🇲🇫",
    "🇩🇬 🇮🇴",
    "🇪🇦 🇪🇸",
    "🇧🇻 🇳🇴 🇸🇯",
    "🇺🇲 🇺🇸",
    "🇮🇩 🇲🇨",
    "🇷🇴 🇹🇩",
    # Near copies: drawings that differ, in one of the vendors, by a mouth, a shackle, a shade or a shadow.
    "🧑 👱 🧑‍🦰",
    "🙍 🙎",
    "🐱 😺",
    "😈 👿",
    "🙁 ☹",
    "💬 🗨 🗯 💭",
    "🔒 🔓",
    "✡ 🔯",
    "🏿 🟫",
    "🌕 🟡",
)


@dataclass(frozen=True)
class Concept:
    """An emoji without skin tone, fully qualified, its category and subcategory in Unicode's list of emoji, and its
    English CLDR name."""

    emoji: str
    category: str
    subcategory: str
    name: str

    @property
    def id(self) -> str:
        return concept_id(self.emoji)


def concept_id(emoji: str) -> str:
    """Code points in lower-case hexadecimal, joined by hyphens, without variation selectors: `😀` -> `1f600`."""
    return "-".join(f"{ord(character):x}" for character in emoji.replace(VARIATION_SELECTOR, ""))


def group_concepts(concepts: Sequence[Concept]) -> list[list[Concept]]:
    """Groups concepts that share a trait, directly or through other concepts, in the order of `concepts`."""
    leads_to: dict[str, str] = {}  # from a concept or a trait towards the one that names its group

    def group_of(node: str) -> str:
        while node in leads_to:
            node = leads_to[node]
        return node

    for concept in concepts:
        for trait in _traits(concept):
            one, other = group_of(concept.id), group_of(trait)
            if one != other:
                leads_to[other] = one
    groups: dict[str, list[Concept]] = {}
    for concept in concepts:
        groups.setdefault(group_of(concept.id), []).append(concept)
    return list(groups.values())


def split_concepts(concepts: Sequence[Concept], test: int = 450, validation: int = 176) -> dict[str, str]:
    """Assigns each concept id to a split. Whole groups are assigned in the order of a hash of their members: to
    `test`, of so many concepts, if they still fit, or else to `validation`, or else to `train`."""
    room = {"test": test, "validation": validation, "train": len(concepts)}
    split_of: dict[str, str] = {}
    for group in sorted(group_concepts(concepts), key=_group_order):
        split = next(split for split in room if room[split] >= len(group))
        room[split] -= len(group)
        split_of |= {concept.id: split for concept in group}
    return split_of


def _group_order(group: Sequence[Concept]) -> bytes:
    return hashlib.sha256(" ".join(sorted(concept.id for concept in group)).encode()).digest()


def _traits(concept: Concept) -> Iterator[str]:
    """The traits of a concept; two concepts with a trait in common belong to one group."""
    words = re.findall(r"\w+", concept.name.lower())
    yield "name: " + " ".join(word for word in words if word not in _QUALIFIERS and not word[0].isdigit())
    if concept.subcategory in _SERIES_SUBCATEGORIES:
        yield "subcategory: " + concept.subcategory
    for series in _SERIES:
        if concept.id in map(concept_id, series.split()):
            yield "series: " + series
