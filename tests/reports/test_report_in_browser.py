"""The report in a real browser: its console is silent, all images load, letters join, and it fits a phone."""

import json

import pytest
from browser import CONTRASTS, browser
from report_runs import QUERIES

from babelens.reports.page import write_report

pytestmark = pytest.mark.live

PHONE = 360  # pixels
# The width of a query as it is, and with a zero width non-joiner between all letters, which no longer join.
WIDTHS = """
(() => {
  const query = document.querySelector(`.query:lang(LANGUAGE)`);
  const width = text => {
    const copy = query.cloneNode();
    copy.textContent = text;
    copy.style.cssText = "display:inline-block;white-space:nowrap";
    query.after(copy);
    const found = copy.getBoundingClientRect().width;
    copy.remove();
    return found;
  };
  const text = query.textContent;
  return [width(text), width([...text].join("\\u200c")), getComputedStyle(query).direction];
})()
"""


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture(scope="module")
def report(seeds):
    return write_report(seeds)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1100, PHONE])
def test_nothing_is_wrong_and_nothing_is_fetched(shown, report, scheme, width):
    shown.open(report, width=width, scheme=scheme)
    assert shown.problems == []
    # Three images that each query finds, and one image of each language with the texts that it finds.
    assert shown.run("document.images.length") == (3 + 1) * len(QUERIES)
    assert shown.run("[...document.images].every(image => image.complete && image.naturalWidth > 0)")
    assert shown.run("document.querySelectorAll('svg').length") > 20


@pytest.mark.parametrize("seed", ["seed-1", ""], ids=["one run", "seeds"])
def test_it_fits_a_phone(shown, seeds, seed):
    """Also with the parts open that are closed at first."""
    shown.open(write_report(seeds / seed), width=PHONE)
    shown.run("document.querySelectorAll('details').forEach(each => { each.open = true })")
    assert shown.run("[innerWidth, document.documentElement.scrollWidth]") == [PHONE, PHONE]
    outside = """[...document.querySelectorAll("main *")].filter(each => !each.closest(".scroll") &&
        each.getBoundingClientRect().right > innerWidth + 1).map(each => each.outerHTML)"""
    assert shown.run(outside) == []
    assert shown.run("Math.min(...[...document.querySelectorAll('.curves text')].map(each => "
                     "parseFloat(getComputedStyle(each).fontSize) * each.getCTM().a))") > 9  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colors_can_be_told_apart(shown, report, scheme):
    shown.open(report, scheme=scheme)
    shown.run("document.querySelectorAll('details').forEach(each => { each.open = true })")
    contrasts = shown.run(CONTRASTS)
    assert len(contrasts) > 15
    assert {name: value for name, value in contrasts.items() if value < 4.5} == {}
    background = shown.run("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert (max(background) < 60) == (scheme == "dark")


@pytest.mark.parametrize(("language", "direction"), [("ar", "rtl"), ("he", "rtl"), ("hi", "ltr"), ("en", "ltr")])
def test_texts_run_in_their_direction(shown, report, language, direction):
    shown.open(report)
    assert shown.run(WIDTHS.replace("LANGUAGE", language))[2] == direction


@pytest.mark.parametrize("language", ["ar", "hi"])
def test_letters_join(shown, report, language):
    """Arabic letters have other forms where they join, Devanagari's form ligatures: both are narrower or wider than
    the letters alone. English letters are not."""
    shown.open(report)
    if not has_font(shown, language):
        pytest.skip(f"the system has no font for {language}")
    joined, apart, _ = shown.run(WIDTHS.replace("LANGUAGE", language))
    assert abs(joined - apart) > 0.05 * joined
    joined, apart, _ = shown.run(WIDTHS.replace("LANGUAGE", "sw"))
    assert abs(joined - apart) < 0.01 * joined


def has_font(shown, language):
    """Whether the letters of a query differ in width, as boxes for missing letters do not."""
    letters = [letter for letter in dict.fromkeys(QUERIES[language]) if letter.isalpha()]
    script = f"""(() => {{
      const query = document.querySelector(`.query:lang({language})`);
      const pen = document.createElement("canvas").getContext("2d");
      pen.font = `40px ${{getComputedStyle(query).fontFamily}}`;
      return {json.dumps(letters)}.map(letter => pen.measureText(letter).width);
    }})()"""
    return len({round(width, 2) for width in shown.run(script)}) > 2
