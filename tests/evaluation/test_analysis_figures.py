"""The figures of analyses: well-formed files with a mark for everything, the same at every call."""

import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from matplotlib.text import Text
from PIL import Image

from babelens.configuration.errors import InputError, MissingExtraError
from babelens.evaluation.analysis import (
    DataRecall,
    EmbeddingMap,
    Forgetting,
    LanguageAgreement,
    distance_ratios,
    language_map,
)
from babelens.evaluation.analysis.figures.maps import draw_embedding_map, draw_language_map
from babelens.evaluation.analysis.figures.recall import (
    draw_agreement,
    draw_data_recall,
    draw_distance_ratios,
    draw_forgetting,
)
from babelens.evaluation.analysis.figures.style import family_styles, label_points, new_figure, save_figure
from babelens.evaluation.comparison import Difference

TAGS = ["en", "de", "sr-Latn", "zh-Hant", "sw"]
SVG = "{http://www.w3.org/2000/svg}"


def embeddings(n=80):
    random = np.random.default_rng(0)
    shared = random.standard_normal((n, 6))
    return {tag: shared + 0.5 * random.standard_normal((n, 6)) for tag in TAGS}


def a_language_map():
    return draw_language_map(language_map(embeddings()))


def an_embedding_map():
    ids = [f"image-{i}" for i in range(12)]
    coordinates = np.random.default_rng(0).standard_normal((5, 12, 2))
    return draw_embedding_map(EmbeddingMap("tsne", {}, 0, TAGS, ids, coordinates, 90.0, 5.0, 6.0, 20.0))


def an_agreement():
    found = LanguageAgreement(
        languages=TAGS,
        k=10,
        n_images=4,
        n_searched=4,
        found=dict.fromkeys(TAGS, 50.0) | {"sw": 0.0},
        found_alone={tag: [] for tag in TAGS} | {"de": ["b"]},
        by_count=[1, 1, 1, 0, 1, 0],
        expected_by_count=[0.1, 1.2, 1.5, 1.0, 0.2, 0.0],
        in_all=[],
        in_none=["d"],
        shared=np.array([[100.0] * 5] * 4 + [[np.nan] * 5]),
    )
    return draw_agreement(found)


def a_forgetting():
    test = Difference(-5.0, -7.0, -3.0, 0.0002)
    found = Forgetting(
        models=["before", "after"],
        test_set="captions",
        metric="mean_recall",
        languages=TAGS,
        scores=np.array([[60.0, 55.0]] * 5),
        differences=np.array([[-5.0]] * 5),
        tests=[[test]] * 4 + [[None]],
        forgotten=TAGS,
        mean_before=60.0,
        mean_after=55.0,
    )
    return draw_forgetting(found)


def a_data_recall():
    counts = {"captions": [1000, 500, 0, 0, 0], "translations": [0, 0, 800, 20, 0], "characters": [9, 9, 9, 9, 0]}
    correlations = {"correlation": 0.9, "p": 0.0001, "trained_correlation": None, "trained_p": None}
    recalls = [90.0, 80.0, 60.0, 30.0, 1.0]
    return draw_data_recall(DataRecall("t2i_r10", "captions", TAGS, **counts, recalls=recalls, **correlations))


def distances():
    random = np.random.default_rng(0)
    baseline = {tag: random.standard_normal((12, 6)) for tag in TAGS}
    return draw_distance_ratios(distance_ratios(embeddings(12), baseline, list("abcdefghijkl"), anchor="en"))


FIGURES = {
    "language map": (a_language_map, 5),  # a point for each language
    "embedding map": (an_embedding_map, 5 * 12 * 2 + 5 * 8),  # each caption twice, and those of eight images in color
    "agreement": (an_agreement, 0),
    "forgetting": (a_forgetting, 0),
    "data": (a_data_recall, 5),
    "distances": (distances, 4 * 12 + 4),  # each image, and the medians
}
# Cells of matrices: of an agreement, the diagonal and the language that finds nothing are empty.
CELLS = {"language map": 5 * 5 - 5, "agreement": 4 * 5 - 4, "forgetting": 5 * 2 + 5}


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


def test_a_png_is_the_same_at_every_call(tmp_path):
    for name in ("1.png", "2.png"):
        save_figure(a_forgetting(), tmp_path / name)
    assert (tmp_path / "1.png").read_bytes() == (tmp_path / "2.png").read_bytes()
    with Image.open(tmp_path / "1.png") as image:
        assert min(image.size) > 300


def test_other_files_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"figure.pdf: a figure is written as .svg or .png"):
        save_figure(a_forgetting(), tmp_path / "figure.pdf")


def test_labels_of_points_at_one_place_do_not_cover_each_other():
    figure = new_figure(3, 3)
    axes = figure.subplots()
    points = np.array([[0.5, 0.5]] * 4 + [[0.0, 0.0], [1.0, 1.0]])
    axes.scatter(*points.T)
    label_points(axes, points, ["en", "de", "fr", "ja", "left", "right"])
    figure.draw_without_rendering()
    boxes = [Text.get_window_extent(text) for text in axes.texts]  # without the line to its point
    assert not any(one.overlaps(other) for index, one in enumerate(boxes) for other in boxes[:index])


def test_families_differ_in_color_or_marker():
    tags = ["en", "fr", "ru", "fi", "tr", "hi", "ar", "zh", "ja", "th", "id", "sw", "ta", "eu"]
    styles = family_styles(tags)
    assert len(set(styles.values())) == len(styles) == 14


def test_without_matplotlib_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"pip install matplotlib scikit-learn"):
        a_forgetting()
