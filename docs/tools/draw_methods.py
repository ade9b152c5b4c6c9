"""Draws the diagrams of docs/methods and docs/overview.svg: `python docs/tools/draw_methods.py`.

One grammar for all: inputs are pale, what is trained is orange, what is frozen is grey with a dashed edge, and a
loss is a pill. Nothing is painted behind the boxes, and lines are of a middle grey, for light pages and dark ones.
"""

from html import escape
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parents[1]
COLUMN, ROW = 190, 84  # from one box to the next, in pixels
WIDTH, HEIGHT = 150, 56  # of a box
LINE = "#7f8d92"
STYLES = {
    "input": ("#efeadf", "#b9ae98", ""),
    "trained": ("#f6b892", "#c2562a", ""),
    "frozen": ("#d5dcde", "#7f8d92", ' stroke-dasharray="5 3"'),
    "loss": ("#bfe3e0", "#2a8a8a", ""),
    "space": ("#dcefe3", "#3f8f68", ""),
}


class Box(NamedTuple):
    """A box: its column and row (fractions are between two), its lines of text, and its kind, a key of STYLES."""

    column: float
    row: float
    text: str
    kind: str


# Boxes by name, and which leads to which.
Diagram = tuple[dict[str, Box], list[tuple[str, str]]]

METHODS: dict[str, tuple[str, Diagram]] = {
    "mural": (
        "MURAL: images and captions meet in one loss, sentences and their translations in another",
        (
            {
                "image": Box(0, 0, "image", "input"),
                "caption": Box(0, 1, "caption|a red square", "input"),
                "left": Box(0, 2, "translations|a red square · mraba mwekundu", "input"),
                "it": Box(1, 0, "image tower", "trained"),
                "tt": Box(1, 1.5, "text tower|and a head for each task", "trained"),
                "l1": Box(2, 0.5, "image ↔ text", "loss"),
                "l2": Box(2, 2, "text ↔ text", "loss"),
            },
            [
                ("image", "it"),
                ("caption", "tt"),
                ("left", "tt"),
                ("it", "l1"),
                ("tt", "l1"),
                ("tt", "l2"),
            ],
        ),
    ),
    "align": (
        "ALIGN: images and captions meet in one loss",
        (
            {
                "image": Box(0, 0, "image", "input"),
                "caption": Box(0, 1, "caption", "input"),
                "it": Box(1, 0, "image tower", "trained"),
                "tt": Box(1, 1, "text tower|and a head", "trained"),
                "l1": Box(2, 0.5, "image ↔ text", "loss"),
            },
            [("image", "it"), ("caption", "tt"), ("it", "l1"), ("tt", "l1")],
        ),
    ),
    "mla": (
        "MLA: acquirers between the frozen blocks of a text tower move a text to where the model puts its translation",
        (
            {
                "new": Box(0, 0, "text in a new|language", "input"),
                "english": Box(0, 1, "its translation|into English", "input"),
                "embedding": Box(1, 0, "shared embedding|of many languages", "trained"),
                "blocks": Box(2, 0, "frozen blocks, each|then an acquirer", "trained"),
                "tower": Box(2, 1, "the same blocks|as they were", "frozen"),
                "loss": Box(3, 0.5, "squared error", "loss"),
            },
            [
                ("new", "embedding"),
                ("embedding", "blocks"),
                ("english", "tower"),
                ("blocks", "loss"),
                ("tower", "loss"),
            ],
        ),
    ),
    "mla-student": (
        "A student: a multilingual encoder learns to give what the frozen model gives for the translation",
        (
            {
                "new": Box(0, 0, "text in any language", "input"),
                "english": Box(0, 1, "its translation|into English", "input"),
                "encoder": Box(1, 0, "multilingual encoder|all, some layers, or none", "trained"),
                "projection": Box(2, 0, "projection", "trained"),
                "tower": Box(2, 1, "text tower of CLIP", "frozen"),
                "loss": Box(3, 0.5, "squared error", "loss"),
            },
            [
                ("new", "encoder"),
                ("encoder", "projection"),
                ("english", "tower"),
                ("projection", "loss"),
                ("tower", "loss"),
            ],
        ),
    ),
    "etcl": (
        "ETCL: an image, a caption and its translation meet in three losses",
        (
            {
                "image": Box(0, 0, "image", "input"),
                "a": Box(0, 1, "caption A", "input"),
                "b": Box(0, 2, "its translation B", "input"),
                "it": Box(1, 0, "image tower", "trained"),
                "tt": Box(1, 1.5, "text tower", "trained"),
                "l1": Box(2, 0, "image ↔ A", "loss"),
                "l3": Box(2, 1, "B ↔ image", "loss"),
                "l2": Box(2, 2, "A ↔ B", "loss"),
            },
            [
                ("image", "it"),
                ("a", "tt"),
                ("b", "tt"),
                ("it", "l1"),
                ("it", "l3"),
                ("tt", "l1"),
                ("tt", "l3"),
                ("tt", "l2"),
            ],
        ),
    ),
    "rc3": (
        "RC3: one encoder reads an image and a text together; a decoder writes",
        (
            {
                "image": Box(0, 0, "regions or patches|of an image", "input"),
                "text": Box(0, 1, "text in any language", "input"),
                "encoder": Box(1, 0.5, "encoder|reads both together", "trained"),
                "decoder": Box(2, 1, "decoder", "trained"),
                "match": Box(3, 0, "matching, contrasts", "loss"),
                "words": Box(3, 1, "words of another|language", "loss"),
            },
            [
                ("image", "encoder"),
                ("text", "encoder"),
                ("encoder", "match"),
                ("encoder", "decoder"),
                ("decoder", "words"),
            ],
        ),
    ),
    "smalr": (
        "SMALR: frequent words have an embedding of their own, all others share a latent vocabulary",
        (
            {
                "image": Box(0, 0, "image", "input"),
                "frequent": Box(0, 1, "frequent words", "input"),
                "rare": Box(0, 2, "all other words,|of all languages", "input"),
                "backbone": Box(1, 0, "vision backbone", "frozen"),
                "own": Box(1, 1, "an embedding each", "trained"),
                "latent": Box(1, 2, "latent vocabulary|shared by languages", "trained"),
                "branch": Box(2, 0, "two layers", "trained"),
                "gru": Box(2, 1.5, "GRU", "trained"),
                "loss": Box(3, 0.5, "image ↔ text", "loss"),
                "masks": Box(3, 2, "masked words,|languages alike", "loss"),
            },
            [
                ("image", "backbone"),
                ("backbone", "branch"),
                ("frequent", "own"),
                ("rare", "latent"),
                ("own", "gru"),
                ("latent", "gru"),
                ("branch", "loss"),
                ("gru", "loss"),
                ("gru", "masks"),
            ],
        ),
    ),
    "liwe": (
        "LIWE: words are made of their characters by the same weights in every language",
        (
            {
                "image": Box(0, 0, "image", "input"),
                "characters": Box(0, 1, "characters of words|in any language", "input"),
                "backbone": Box(1, 0, "vision backbone", "frozen"),
                "words": Box(1, 1, "convolutions|make words", "trained"),
                "layer": Box(2, 0, "linear layer", "trained"),
                "gru": Box(2, 1, "GRU, both directions", "trained"),
                "loss": Box(3, 0.5, "image ↔ text|text ↔ text", "loss"),
            },
            [
                ("image", "backbone"),
                ("backbone", "layer"),
                ("characters", "words"),
                ("words", "gru"),
                ("layer", "loss"),
                ("gru", "loss"),
            ],
        ),
    ),
    "consistency": (
        "Cross-lingual consistency: the scores of a query and of its translations become one score",
        (
            {
                "query": Box(0, 0, "query", "input"),
                "translations": Box(0, 1, "its translations", "input"),
                "model": Box(1, 0.5, "any dual encoder|scores all images", "frozen"),
                "joint": Box(2, 0.5, "mean (CLC-A) or|352 weights (CLC-C)", "trained"),
                "score": Box(3, 0.5, "one score", "space"),
            },
            [("query", "model"), ("translations", "model"), ("model", "joint"), ("joint", "score")],
        ),
    ),
}

OVERVIEW: tuple[str, Diagram] = (
    "A language without captioned images: images, captions and translations meet in one space, searched in Swahili",
    (
        {
            "images": Box(0, 0, "images", "input"),
            "captions": Box(0, 1, "captions|a red square · ein rotes Quadrat", "input"),
            "translations": Box(0, 2, "translations|a red square · mraba mwekundu", "input"),
            "it": Box(1, 0, "image tower", "trained"),
            "tt": Box(1, 1.5, "text tower", "trained"),
            "space": Box(2, 0.75, "one space", "space"),
            "search": Box(3, 0.75, "search in Swahili,|without an image in it", "loss"),
        },
        [
            ("images", "it"),
            ("captions", "tt"),
            ("translations", "tt"),
            ("it", "space"),
            ("tt", "space"),
            ("space", "search"),
        ],
    ),
)


def drawing(title: str, diagram: Diagram) -> str:
    """The SVG of a diagram, with a key of the two colors that say what is trained."""
    boxes, arrows = diagram
    texts = {name: box.text.split("|") for name, box in boxes.items()}
    width = {name: max([WIDTH, *(7.3 * len(line) + 26 for line in texts[name])]) for name in boxes}
    first = max(width[name] for name, box in boxes.items() if box.column == 0)
    column = {0.0: 0.0}
    at = first + 44
    for each in sorted({box.column for box in boxes.values()} - {0}):
        column[each] = at
        at += max(width[name] for name, box in boxes.items() if box.column == each) + 44
    total, lowest = at - 44 + 8, max(box.row for box in boxes.values()) * ROW + HEIGHT
    kinds = {box.kind for box in boxes.values()}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total:.0f} {lowest + 44:.0f}" width="{total:.0f}" '
        'font-family="system-ui, Helvetica, Arial, sans-serif" font-size="13" text-anchor="middle">',
        f"<title>{escape(title)}</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0 L8 4 L0 8 z" fill="{LINE}"/></marker></defs>',
        f'<g fill="none" stroke="{LINE}" stroke-width="1.6" marker-end="url(#tip)">',
    ]
    for start, end in arrows:
        x, y = 4 + column[boxes[start].column] + width[start], boxes[start].row * ROW + HEIGHT / 2 + 4
        to, down = 1 + column[boxes[end].column], boxes[end].row * ROW + HEIGHT / 2 + 4
        bend = (x + to) / 2
        parts.append(f'<path d="M{x:.0f} {y:.0f} C{bend:.0f} {y:.0f} {bend:.0f} {down:.0f} {to:.0f} {down:.0f}"/>')
    parts.append("</g>")
    for name, box in boxes.items():
        fill, edge, dash = STYLES[box.kind]
        x, y = 4 + column[box.column], box.row * ROW + 4
        parts.append(
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{width[name]:.0f}" height="{HEIGHT}" '
            f'rx="{HEIGHT // 2 if box.kind == "loss" else 8}" fill="{fill}" stroke="{edge}" stroke-width="1.4"{dash}/>'
        )
        lines = texts[name]
        for index, line in enumerate(lines):
            down = y + HEIGHT / 2 + 4.5 + 17 * (index - (len(lines) - 1) / 2)
            size = ' font-size="12"' if index else ' font-weight="600"'
            parts.append(
                f'<text x="{x + width[name] / 2:.0f}" y="{down:.0f}" fill="#1d2a2f"{size}>{escape(line)}</text>'
            )
    left = 4.0
    for kind, word in (("trained", "trained"), ("frozen", "frozen")):
        if kind in kinds:
            fill, edge, dash = STYLES[kind]
            top = lowest + 20
            parts.append(
                f'<rect x="{left:.0f}" y="{top}" width="16" height="16" rx="3" fill="{fill}" stroke="{edge}"{dash}/>'
            )
            parts.append(
                f'<text x="{left + 24:.0f}" y="{top + 13}" text-anchor="start" font-size="12" '
                f'fill="{LINE}">{word}</text>'
            )
            left += 90
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    for name, (title, diagram) in METHODS.items():
        (DOCS / "methods" / f"{name}.svg").write_text(drawing(title, diagram), encoding="utf-8")
    (DOCS / "overview.svg").write_text(drawing(*OVERVIEW), encoding="utf-8")


if __name__ == "__main__":
    main()
