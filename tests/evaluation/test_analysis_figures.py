import xml.etree.ElementTree as ET

import numpy as np
import pytest

from babelens.evaluation.analysis import (
    LabelMap,
    distance_ratios,
    draw_distance_ratios,
    draw_label_map,
    draw_language_map,
    language_map,
    save_figure,
)

TAGS = ["en", "de", "sr-Latn", "zh-Hant", "sw"]
SVG = "{http://www.w3.org/2000/svg}"


def embeddings(n=80):
    random = np.random.default_rng(0)
    shared = random.standard_normal((n, 6))
    return {tag: shared + 0.5 * random.standard_normal((n, 6)) for tag in TAGS}


def a_language_map():
    return draw_language_map(language_map(embeddings()))


def a_label_map():
    random = np.random.default_rng(0)
    images, labels = random.standard_normal((12, 2)), random.standard_normal((5, 2, 2))
    return draw_label_map(LabelMap(0, ["cat", "dog"], TAGS, [0, 1] * 6, images, labels, dict.fromkeys(TAGS, 50.0)))


def distances():
    random = np.random.default_rng(0)
    baseline = {tag: random.standard_normal((12, 6)) for tag in TAGS}
    return draw_distance_ratios(distance_ratios(embeddings(12), baseline, list("abcdefghijkl"), anchor="en"))


FIGURES = {
    "language map": (a_language_map, 5),  # a point for each language
    "label map": (a_label_map, 12 + 2 * 5),  # an image, and a label in each language
    "distances": (distances, 4 * 12 + 4),  # each image, and the medians
}
CELLS = {"language map": 5 * 5 - 5}  # the diagonal is empty


def of_kind(root, kind):
    return [group for group in root.iter(f"{SVG}g") if group.get("id", "").startswith(kind)]


@pytest.mark.parametrize("name", FIGURES)
def test_figures_have_a_mark_for_everything_and_name_every_language(name, tmp_path):
    draw, n_points = FIGURES[name]
    figures = [tmp_path / "1.svg", tmp_path / "2.svg"]
    for file in figures:
        save_figure(draw(), file)
    assert figures[0].read_bytes() == figures[1].read_bytes()
    root = ET.parse(figures[0]).getroot()
    legends = [use for legend in of_kind(root, "legend") for use in legend.iter(f"{SVG}use")]
    points = [use for group in of_kind(root, "PathCollection") for use in group.iter(f"{SVG}use")]
    assert len([use for use in points if use not in legends]) == n_points
    cells = [path for group in of_kind(root, "QuadMesh") for path in group.iter(f"{SVG}path")]
    assert len([path for path in cells if "fill: none" not in path.get("style", "")]) == CELLS.get(name, len(cells))
    texts = " ".join("".join(text.itertext()) for text in root.iter(f"{SVG}text"))
    assert all(tag in texts for tag in TAGS if not (name == "distances" and tag == "en"))
    assert "<dc:date>" not in figures[0].read_text("utf-8")
