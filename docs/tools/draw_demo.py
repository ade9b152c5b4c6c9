"""Draws docs/demo.svg: how well the demo's model searches in each language, as `babelens demo` measured it.

babelens demo --method mural && python docs/tools/draw_demo.py runs/demo-mural/results.json
"""

import argparse
from html import escape
from pathlib import Path

from babelens.evaluation.results import Measurement, emoji_dataset, read_results

WIDTH, HEIGHT = 920, 330
LEFT, TOP, BASE = 24, 92, 282  # of the bars' area, in pixels; BASE is where 0 % is
GAP = 34  # between the groups
COLORS = {"image": "#1a73c8", "pair": "#169550", "unseen": "#8a949c"}
HEADINGS = {
    "image": "captioned images in training",
    "pair": "translations only, no image",
    "unseen": "not in training",
}


def drawing(report: list[Measurement]) -> str:
    """The SVG of the bars: text-to-image recall at 10 on the images of the vendor that was not in training."""
    names = {emoji_dataset("unseen_vendor", group): group for group in HEADINGS}
    found = [each for each in report if each.dataset in names and each.metric == "t2i_r10"]
    groups: dict[str, dict[str, float]] = {group: {} for group in HEADINGS}
    for each in found:
        groups[names[each.dataset]][each.language] = each.value
    n_images = max(each.n for each in found)
    step = (WIDTH - 2 * LEFT - GAP * (len(groups) - 1)) / sum(map(len, groups.values()))
    title = f"babelens demo: text-to-image recall at 10 in {sum(map(len, groups.values()))} languages, in %"
    note = f"{n_images} images of a vendor that was not in training; chance is {1000 / n_images:.1f} %"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="Helvetica, Arial, sans-serif" font-size="13">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="32" font-size="15" fill="#1a1a1a">{escape(title)}</text>',
        f'<text x="{LEFT}" y="52" fill="#5b6770">{escape(note)}</text>',
    ]
    left = float(LEFT)
    for name, languages in groups.items():
        color = COLORS[name]
        parts.append(f'<text x="{left:.0f}" y="{TOP - 12}" fill="{color}">{HEADINGS[name]}</text>')
        parts.append(f'<path d="M{left:.0f} {BASE} h{step * len(languages):.0f}" stroke="#d9dee2"/>')
        for index, (tag, recall) in enumerate(languages.items()):
            height = (BASE - TOP - 18) * recall / 80
            middle = left + step * (index + 0.5)
            parts.append(
                f'<rect x="{middle - 0.36 * step:.1f}" y="{BASE - height:.1f}" width="{0.72 * step:.1f}" '
                f'height="{height:.1f}" fill="{color}"/>'
                f'<text x="{middle:.1f}" y="{BASE - height - 5:.1f}" text-anchor="middle" font-size="11" '
                f'fill="#5b6770">{recall:.0f}</text>'
                f'<text x="{middle:.1f}" y="{BASE + 18}" text-anchor="middle" fill="#1a1a1a">{escape(tag)}</text>'
            )
        left += step * len(languages) + GAP
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path, help="the demo's results.json")
    parser.add_argument("--output", type=Path, default=Path(__file__).parents[1] / "demo.svg")
    given = parser.parse_args()
    given.output.write_text(drawing(read_results(given.report)), encoding="utf-8")


if __name__ == "__main__":
    main()
