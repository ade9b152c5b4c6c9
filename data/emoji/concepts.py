"""What the emoji benchmark is about: its concepts, which of them are variants of each other, and how they are split.

A concept is an emoji without skin tone, named by its code points (`1f468-200d-1f692`). Concepts that look alike for a
reason that Unicode or a vendor built in form a group: a man and a woman doing the same thing, a runner facing right,
the colours of a heart, the hours of a clock, countries that share a flag. A group lies on one side of the split, so
that what is tested as unseen has no near copy in training. The split follows from the concepts alone: it is the same
for all vendors, languages and image sizes.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

SPLITS = ("train", "validation", "test")

VARIATION_SELECTOR = "\ufe0f"

# Words of an English CLDR name that tell the variants of a drawing apart.
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
    # Variants that the names do not show.
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
    """An emoji without skin tone. `emoji` is fully qualified; `name` is its English CLDR name."""

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
    """Concepts that share a trait, directly or through others; groups and their members in the order given."""
    parent: dict[str, str] = {}

    def root(node: str) -> str:
        while (above := parent.setdefault(node, node)) != node:
            parent[node] = node = parent[above]
        return node

    for concept in concepts:
        for trait in _traits(concept):
            parent[root(trait)] = root(concept.id)
    groups: dict[str, list[Concept]] = {}
    for concept in concepts:
        groups.setdefault(root(concept.id), []).append(concept)
    return list(groups.values())


def split_concepts(concepts: Sequence[Concept], test: int = 450, validation: int = 176) -> dict[str, str]:
    """Concept id -> `test`, `validation` or `train`; the first two get the number of concepts given, `train` the rest.

    Whole groups, in the order of a hash of their members, go where they still fit, first to test, then to validation.
    """
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
    """What ties a concept to its variants: two concepts with a trait in common belong to one group."""
    words = re.findall(r"\w+", concept.name.lower())
    yield "name: " + " ".join(word for word in words if word not in _QUALIFIERS and not word[0].isdigit())
    if concept.subcategory in _SERIES_SUBCATEGORIES:
        yield "subcategory: " + concept.subcategory
    for series in _SERIES:
        if concept.id in map(concept_id, series.split()):
            yield "series: " + series
