"""Draws languages by a number of each: `python docs/tools/draw_languages.py TABLE.csv FIGURE.svg TITLE`.

The table has the columns `tag`, `name`, `group` and `value` (percent); the groups, in the order of the table, get the
colors. Every language is its name, as its speakers write it, at its value; names that would overlap are stacked.
`python docs/tools/draw_languages.py --names TABLE.csv` fills empty names in from Unicode CLDR (the package babel).
"""

import csv
import sys
import unicodedata
from html import escape
from pathlib import Path

WIDTH, LEFT, RIGHT = 1120, 24, 96  # pixels; the longest name begins at 100 %
ROW, PILL, SIZE = 19, 16, 11
GREY = "#7f8d92"
# Names that CLDR does not have.
NAMES = {
    "acm": "Mesopotamian Arabic",
    "acq": "Taʽizzi-Adeni Arabic",
    "ajp": "South Levantine Arabic",
    "apc": "North Levantine Arabic",
    "ayr": "Aymara",
    "azb": "South Azerbaijani",
    "cjk": "Chokwe",
    "dik": "Dinka",
    "fuv": "Fulfulde",
    "hne": "Chhattisgarhi",
    "kbp": "Kabɩyɛ",
    "knc": "Kanuri",
    "quy": "Runasimi",
    "taq": "Tamasheq",
    "tw": "Twi",
}
COLORS = (("#bfe3e0", "#2a8a8a"), ("#f6b892", "#c2562a"), ("#efeadf", "#b9ae98"))


def read(table: Path) -> list[dict[str, str]]:
    """The rows of a table."""
    with table.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def width_of(text: str) -> float:
    """About how wide a text is drawn, in pixels."""

    def of(letter: str) -> float:
        if unicodedata.category(letter) in ("Mn", "Me", "Cf"):
            return 0.0
        return 1.0 if unicodedata.east_asian_width(letter) in "WF" else 0.8 if "\u0900" <= letter < "\u1e00" else 0.6

    return SIZE * sum(map(of, text))


def draw(rows: list[dict[str, str]], title: str) -> str:
    """The figure of a table."""
    values = [float(row["value"]) for row in rows]
    least = min(values) // 10 * 10
    groups = list(dict.fromkeys(row["group"] for row in rows))

    def place(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (value - least) / (100 - least)

    ends: list[float] = []  # of the names that stand in each row so far
    pills = []
    for value, row in sorted(zip(values, rows, strict=True), key=lambda pair: pair[0]):
        x, width = place(value), width_of(row["name"]) + 12
        level = next((n for n, end in enumerate(ends) if end + 4 < x), len(ends))
        ends[level : level + 1] = [x + width]
        fill, edge = COLORS[groups.index(row["group"]) % len(COLORS)]
        y = -(level + 1) * ROW
        pills.append(
            f"<g><title>{escape(row['name'])} ({row['tag']}): {value:.1f} %</title>"
            f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{PILL}" rx="8" fill="{fill}" stroke="{edge}"/>'
            f'<text x="{x + 6:.1f}" y="{y + 12}" fill="#16242a">{escape(row["name"])}</text></g>'
        )
    key_height = 30 + 20 * len(groups)
    height = max(len(ends) * ROW, key_height) + 12
    axis = [f'<path d="M{LEFT} 2H{WIDTH - RIGHT}" stroke="{GREY}"/>']
    for tick in range(int(least), 101, 10):
        axis.append(f'<path d="M{place(tick):.1f} 2v5" stroke="{GREY}"/>')
        axis.append(f'<text x="{place(tick):.1f}" y="20" fill="{GREY}" text-anchor="middle">{tick}</text>')
    axis.append(f'<text x="{LEFT}" y="40" fill="{GREY}">{escape(title)}</text>')
    key = [f'<text x="{LEFT}" y="{-height + 24}" fill="{GREY}" font-size="24">{len(rows)} languages</text>']
    for number, group in enumerate(groups):
        y, (fill, edge) = -height + 48 + 20 * number, COLORS[number % len(COLORS)]
        own = sum(row["group"] == group for row in rows)
        key.append(f'<rect x="{LEFT}" y="{y - 11}" width="22" height="14" rx="7" fill="{fill}" stroke="{edge}"/>')
        key.append(f'<text x="{LEFT + 30}" y="{y}" fill="{GREY}" font-size="13">{escape(group)} ({own})</text>')
    inside = "\n".join([*key, *pills, *axis])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 {-height} {WIDTH} {height + 50}" role="img" '
        f'font-family="system-ui, Noto Sans, sans-serif" font-size="{SIZE}">\n'
        f"<title>{escape(title)}, {len(rows)} languages</title>\n{inside}\n</svg>\n"
    )


def name_of(tag: str) -> str:
    """The name of a language in itself, else in English."""
    from babel import Locale, UnknownLocaleError

    language, _, script = tag.partition("-")
    if language in NAMES:
        return NAMES[language]
    near = {"arb": "ar", "pes": "fa", "swh": "sw", "zsm": "ms", "ydd": "yi", "nb": "no", "npi": "ne", "ory": "or"}
    near |= {"azj": "az", "khk": "mn", "lvs": "lv", "plt": "mg", "uzn": "uz", "als": "sq", "pbt": "ps", "gaz": "om"}
    language = near.get(language, language)
    english = Locale("en")
    try:
        locale = Locale.parse(f"{language}_{script}" if script in ("Hans", "Hant") else language)
        return (locale.get_display_name() or language).partition(" (")[0] if not locale.script else locale.display_name
    except (UnknownLocaleError, ValueError):
        return english.languages.get(language, tag)


def fill_names(table: Path) -> None:
    """Writes names into the rows of a table that have none; equal names get the rest of their tags."""
    rows = [row | {"name": row["name"] or name_of(row["tag"])} for row in read(table)]
    names = [row["name"] for row in rows]
    for row in rows:
        if names.count(row["name"]) > 1 and "-" in row["tag"]:
            row["name"] += f" ({row['tag'].partition('-')[2]})"
    with table.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    if sys.argv[1] == "--names":
        fill_names(Path(sys.argv[2]))
    else:
        given, figure, words = sys.argv[1:]
        Path(figure).write_text(draw(read(Path(given)), words), encoding="utf-8")
