"""The page in a real browser: searches, languages, the viewer, keys, scripts, colors, a phone."""

import io
import json
from urllib.parse import quote

import pytest
from PIL import Image

from babelens.serving.service import ImageService
from tests.support.browser import CONTRASTS, browser
from tests.support.served import TOKEN, serving

pytestmark = pytest.mark.slow

PHONE = 360  # pixels
FILES = "[...document.querySelectorAll('#results .file')].map(each => each.textContent)"
FOCUS = (
    "document.activeElement.closest('li') ? [...results.children].indexOf(document.activeElement.closest('li')) : -1"
)
STATUS = "document.getElementById('status').textContent"
ARABIC = "قطة على النافذة"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture
def shown(page, server):
    """The page in its first state; afterwards its console must have been silent."""
    open_page(page, server.address)
    page.run("localStorage.clear()")
    open_page(page, server.address)
    choose(page, "")
    yield page
    assert page.problems == []


def open_page(page, address, **options):
    page.open(address, **options)
    page.wait_for("document.body?.dataset.ready && document.activeElement.id === 'query'")


def settled(page, status="Best"):
    page.wait_for(f"{STATUS}.includes({status!r}) && !document.querySelector('#results').hasAttribute('aria-busy')")
    page.wait_for("[...document.querySelectorAll('#results img[loading=eager]')].every(i => i.complete)")
    return page.run(FILES)


def choose(page, tag):
    page.run(f"language.value = {tag!r}, language.dispatchEvent(new Event('change'))")


def files_of(server, path):
    return [each["file"] for each in server.ask(path).json["results"]]


def by_text(server, text, language, top=24):
    return files_of(server, f"/api/search?q={quote(text)}&language={language}&top={top}")


def test_it_opens_with_pictures_which_come_back(shown, server):
    listed = files_of(server, "/api/images?top=24")
    shown.wait_for("results.querySelectorAll('.file').length === 24")
    assert shown.run(FILES) == listed
    choose(shown, "de")
    shown.type("Hund")
    assert settled(shown) != listed
    shown.press("Escape")
    shown.wait_for(
        f"JSON.stringify({FILES}) === {json.dumps(json.dumps(listed, ensure_ascii=False, separators=(',', ':')))}"
    )
    shown.run("document.getElementById('more').click()")
    shown.wait_for("results.children.length === 40")


def test_languages_have_their_own_names_and_change_what_is_found(shown, server):
    options = shown.run("[...language.options].map(each => [each.value, each.textContent])")
    assert ["de", "Deutsch (de)"] in options and ["ar", "العربية (ar)"] in options
    assert [tag for tag, _ in options] == ["", *server.service.languages]  # it takes no others
    choose(shown, "de")
    shown.type("gris")
    german = settled(shown)
    choose(shown, "en")
    shown.wait_for(f"JSON.stringify({FILES}) !== JSON.stringify({german!r})")
    assert settled(shown) == by_text(server, "gris", "en") != german
    open_page(shown, server.address)  # and the choice is remembered
    assert shown.run("language.value") == "en"


def test_the_latest_query_wins(shown, server):
    """The first answer is held back until the second one is there."""
    shown.run("""(() => {
      const real = window.fetch;
      window.fetch = (address, options) => String(address).includes("slow")
        ? window.late = new Promise(done => window.release = done)
            .then(() => real(address, { ...options, signal: undefined }))
        : real(address, options);
    })()""")
    choose(shown, "de")
    shown.type("slow")
    shown.wait_for(f"{STATUS} === 'Searching …'")
    shown.run("query.select()")
    shown.type("Hund")
    assert settled(shown, "“Hund”") == by_text(server, "Hund", "de")
    another = "fetch('/health').then(answer => answer.json())"  # comes after what the page does with the late answer
    shown.run(f"(window.release(), window.late.then(() => {another}).then(() => {another}).then(() => true))")
    assert "“Hund”" in shown.run(STATUS) and shown.run(FILES) == by_text(server, "Hund", "de")


@pytest.mark.parametrize("way", ["choose", "drop", "paste"])
def test_an_image_is_searched_with(shown, server, way):
    file = server.service.folder / "image 07.png"
    if way == "choose":
        shown.choose_file("#file", file)
    elif way == "drop":
        shown.drop_file(file)
    else:
        data = list(file.read_bytes())
        shown.run(f"""(() => {{
          const clipboardData = new DataTransfer();
          clipboardData.items.add(new File([new Uint8Array({data})], "image 07.png", {{ type: "image/png" }}));
          document.dispatchEvent(new ClipboardEvent("paste", {{ clipboardData, bubbles: true }}));
        }})()""")
    assert settled(shown, "for the image")[0] == "image 07.png"
    assert shown.run("document.getElementById('drop').hidden")
    assert shown.run("document.getElementById('example-text').textContent") == "Images like image 07.png"
    assert shown.run("document.getElementById('example-image').src").startswith("blob:")


def test_keys(shown):
    choose(shown, "de")
    shown.type("Hund")
    settled(shown)
    shown.run("query.focus()")
    shown.press("ArrowDown")
    columns = shown.run("getComputedStyle(results).gridTemplateColumns.split(' ').length")
    moves = [("ArrowRight", 1), ("ArrowDown", 1 + columns), ("ArrowLeft", columns), ("ArrowUp", 0), ("End", 23)]
    assert shown.run(FOCUS) == 0
    for key, position in [*moves, ("Home", 0), ("ArrowLeft", 0)]:
        shown.press(key)
        assert shown.run(FOCUS) == position, key
    shown.press("Tab")  # out of the results
    assert shown.run("document.activeElement.id") == "more"
    shown.run("results.querySelector('button').focus()")
    shown.press("ArrowUp")
    assert shown.run("document.activeElement.id") == "query"
    shown.press("ArrowDown")
    shown.press("Escape")
    assert shown.run("[query.value, document.activeElement.id]") == ["", "query"]
    assert shown.run("location.search") == ""


def test_a_screen_reader_is_told_names_and_counts(shown):
    choose(shown, "de")
    shown.type("Hund")
    settled(shown)
    nodes = shown.call("Accessibility.getFullAXTree")["nodes"]
    named = {(node["role"]["value"], node.get("name", {}).get("value")) for node in nodes if not node["ignored"]}
    assert {
        ("searchbox", "Describe the images"),
        ("combobox", "Language of the description"),
        ("button", "Show more"),
        ("list", "Results, best first"),
        ("heading", "Image search"),
    } <= named
    names = shown.run(FILES)
    assert ("button", names[0]) in named
    assert shown.run("document.getElementById('status').getAttribute('aria-live')") == "polite"
    unnamed = [role for role, name in named if role in ("button", "link", "image", "combobox", "textbox") and not name]
    assert unnamed == []


def test_the_address_keeps_the_search(shown, server):
    choose(shown, "fr")
    shown.type("chien & chat")
    found = settled(shown)
    open_page(shown, shown.run("location.href"))
    assert settled(shown) == found and shown.run("[query.value, language.value]") == ["chien & chat", "fr"]


def test_what_is_no_image_or_too_large_is_refused_before_it_is_sent(shown, tmp_path):
    (tmp_path / "notes.txt").write_text("no image")
    shown.drop_file(tmp_path / "notes.txt")
    shown.wait_for("problem.textContent === 'This file is not an image.' && !trouble.hidden")
    (tmp_path / "large.png").write_bytes(bytes((20 << 20) + 1))
    shown.choose_file("#file", tmp_path / "large.png")
    shown.wait_for("problem.textContent === 'The image is too large: 20 MiB are allowed.'")


def test_errors_of_the_server_are_shown(page, server, tmp_path):
    open_page(page, server.address)
    written = io.BytesIO()
    Image.new("RGB", (8, 8)).save(written, "PNG")
    (tmp_path / "cut.png").write_bytes(written.getvalue()[:40])
    page.choose_file("#file", tmp_path / "cut.png")
    page.wait_for("problem.textContent.includes('image of 40 bytes')")
    assert [each for each in page.problems if "400 (Bad Request)" not in each] == []
    page.run("window.fetch = () => Promise.reject(new TypeError('gone'))")
    page.run("query.focus()")
    choose(page, "de")
    page.type("Hund")
    page.wait_for("problem.textContent === 'The server does not answer. Is it still running?'")
    assert page.run(FILES) == [] and page.run("!trouble.hidden && retry.offsetHeight > 0")
    assert not page.run("results.hasAttribute('aria-busy')")


def test_names_of_files_are_text(page, embedder, tmp_path):
    """Nothing in them is read as markup, nor in queries and in errors that repeat them."""
    evil = "<img src=x onerror=document.title='run'>"
    for name, color in ((f"{evil}.png", "red"), ("<script>document.title='run'<\\script>.png", "blue")):
        Image.new("RGB", (8, 8), color).save(tmp_path / name)
    with serving(ImageService.of_folder(embedder, tmp_path, model=evil)) as server:
        open_page(page, f"{server.address}?q={quote(evil)}&language=en")
        names = settled(page)
        assert f"{evil}.png" in names and len(names) == 2
        page.run("document.querySelector('#results button').click()")
        page.run("document.getElementById('similar').click()")
        settled(page)
        open_page(page, f"{server.address}?q=a&language={quote(evil)}")
        page.wait_for("!results.hasAttribute('aria-busy')")
        assert page.run("document.title") == "Image search"
        assert page.run("document.querySelectorAll('[onerror], main script').length") == 0
    page.problems.clear()


def speak(page, address, *tags):
    """Opens the page for the first time in a browser with these languages."""
    page.open(address)
    page.run("localStorage.clear()")
    override = f"Object.defineProperty(navigator, 'languages', {{ get: () => {json.dumps(tags)} }})"
    script = page.call("Page.addScriptToEvaluateOnNewDocument", source=override)["identifier"]
    open_page(page, address)
    page.call("Page.removeScriptToEvaluateOnNewDocument", identifier=script)
    return page.run("language.value")


def test_the_language_of_the_browser_or_the_nearest_is_chosen(page, server, embedder, folder):
    assert speak(page, server.address, "de-AT", "fr") == "de"
    assert speak(page, server.address, "xx", "fr-CA") == "fr"
    assert speak(page, server.address, "sw") == ""
    nearest = "import('./static/page.js').then(page => page.nearest({}, ['zh', 'zh-Hant', 'pt-BR', 'sr-Latn']))"
    expected = {
        "zh-TW": "zh-Hant",
        "zh-CN": "zh",
        "pt": "pt-BR",
        "sr": "sr-Latn",
        "sr-Cyrl": "",
        "sr-Latn-RS": "sr-Latn",
    }
    for wanted, found in expected.items():
        assert page.run(nearest.format(json.dumps([wanted]))) == found
    with serving(ImageService.of_folder(embedder, folder, model="m", language="fr")) as other:
        assert speak(page, other.address, "de") == "fr"


def test_a_picture_opens_large_with_what_can_be_done(shown, server):
    choose(shown, "de")
    shown.type("Hund")
    best, second = settled(shown)[:2]
    shown.run("document.querySelector('#results button').click()")
    facts = "[viewer.open, document.getElementById('viewer-name').textContent]"
    assert shown.run(facts) == [True, best]
    shown.wait_for("document.getElementById('viewer-image').naturalWidth > 0")
    original = shown.run("new URL(document.getElementById('original').href).pathname")
    assert server.ask(original).body == (server.service.folder / best).read_bytes()
    shown.press("ArrowRight")
    assert shown.run(facts) == [True, second]
    shown.press("Escape")  # closes the picture, and keeps the search
    assert shown.run("[viewer.open, query.value]") == [False, "Hund"]
    shown.wait_for(f"({FOCUS}) === 1")  # the viewer's close event comes later
    shown.run("document.activeElement.click()")
    shown.run("document.getElementById('similar').click()")
    similar = settled(shown, f"for {second}")
    image_id = shown.run("new URLSearchParams(location.search).get('like')")
    assert similar == files_of(server, f"/api/similar/{image_id}?top=24") and second not in similar
    shown.run("document.getElementById('more').click()")
    shown.wait_for("document.querySelectorAll('#results li').length === 39")
    settled(shown)
    assert shown.run("document.getElementById('more').hidden") and shown.run(FOCUS) == 24


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1100, PHONE])
def test_it_fits_and_colors_can_be_told_apart(page, server, scheme, width):
    page.open(f"{server.address}?q={quote('ein rotes Auto')}&language=de", width=width, height=800, scheme=scheme)
    settled(page)
    assert page.run("results.getBoundingClientRect().top") < 0.3 * 800  # what was found, not the form, fills a phone
    page.run("trouble.hidden = false, problem.textContent = 'an error'")
    page.run("document.querySelector('#results button').click()")
    assert page.run("innerWidth") == width >= page.run("document.documentElement.scrollWidth")
    box = page.run("(box => [box.left, box.right, box.top, box.bottom])(viewer.getBoundingClientRect())")
    assert box[0] >= 0 and box[1] <= width and box[2] >= 0 and box[3] <= 800
    contrasts = page.run(CONTRASTS)
    assert len(contrasts) > 5 and {name: value for name, value in contrasts.items() if value < 4.5} == {}
    background = page.run("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert (max(background) < 60) == (scheme == "dark")
    assert page.problems == []


def test_a_page_of_another_site_reaches_nothing(page, server, tmp_path):
    """A file is another site: it cannot read the answer, nor does it keep the server at work."""
    asked = []
    server.service.by_image = lambda *given: asked.append(given) or []
    try:
        (tmp_path / "other.html").write_text("<title>Another site</title>")
        page.open(tmp_path / "other.html")
        page.run(f"""(() => {{
          const form = new FormData();
          form.append("file", new File([new Uint8Array({list(server.service.index.paths[0].read_bytes())})], "a.png"));
          return fetch("{server.address}api/search-by-image", {{ method: "POST", mode: "no-cors", body: form }});
        }})().catch(() => null).then(() => true)""")
    finally:
        del server.service.by_image
    assert asked == []


def test_a_browser_gives_the_token_as_a_password(page, service):
    with serving(service, token=TOKEN) as server:
        page.open(server.address.replace("://", f"://:{quote(TOKEN)}@"))  # as the browser asks for it
        open_page(page, server.address)
        page.wait_for("results.children.length === 24")
        page.wait_for("[...document.querySelectorAll('#results img[loading=eager]')].every(i => i.naturalWidth)")
