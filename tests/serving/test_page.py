import io
import json
from urllib.parse import quote

import pytest
from PIL import Image

from babelens.serving.service import ImageService
from tests.support.browser import browser, problems_of, wait_until
from tests.support.served import TOKEN, serving

pytestmark = pytest.mark.slow

# A dropped or pasted file.
TRANSFER = """([name, type, bytes]) => {
  const data = new DataTransfer();
  data.items.add(new File([new Uint8Array(bytes)], name, { type }));
  return data;
}"""
FOCUSED = "() => [...results.children].indexOf(document.activeElement.closest('li'))"


@pytest.fixture(scope="module")
def chromium():
    with browser() as chromium:
        yield chromium


@pytest.fixture
def open_page(chromium, server):
    contexts = []

    def open_page(address=server.address, languages=("en",), **settings):
        context = chromium.new_context(**settings)
        contexts.append(context)
        context.set_default_timeout(20_000)
        context.add_init_script(
            f"Object.defineProperty(navigator, 'languages', {{ get: () => {json.dumps(languages)} }})"
        )
        page = context.new_page()
        page.problems = problems_of(page)
        load(page, address)
        return page

    yield open_page
    for context in contexts:
        context.close()


@pytest.fixture
def page(open_page):
    """The page in its first state; afterwards its console must have been silent."""
    page = open_page()
    page.locator("#language").select_option("")
    yield page
    assert page.problems == []


def load(page, address):
    page.goto(address)
    wait_until(page, "document.body.dataset.ready && document.activeElement.id === 'query'")


def settled(page, status="Best"):
    page.locator("#status", has_text=status).wait_for()
    page.locator("#results:not([aria-busy])").wait_for()
    return page.locator("#results .file").all_text_contents()


def search(page, text, tag="de"):
    page.locator("#language").select_option(tag)
    page.locator("#query").fill(text)
    return settled(page, f"“{text}”")


def count(page, number):
    wait_until(page, f"results.children.length === {number}")


def files_of(server, path):
    return [each["file"] for each in server.ask(path).json["results"]]


def by_text(server, text, language):
    return files_of(server, f"/api/search?q={quote(text)}&language={language}&top=24")


def test_it_opens_with_pictures_which_come_back(page, server):
    listed = files_of(server, "/api/images?top=24")
    count(page, 24)
    files = page.locator("#results .file")
    assert files.all_text_contents() == listed
    assert search(page, "Hund") != listed
    page.keyboard.press("Escape")
    wait_until(page, f"{json.dumps(listed)}.every((name, i) => results.children[i]?.textContent === name)")
    page.locator("#more").click()
    count(page, 40)


def test_languages_have_their_own_names_and_change_what_is_found(page, server):
    options = page.evaluate("[...language.options].map(each => [each.value, each.textContent])")
    assert ["de", "Deutsch (de)"] in options and ["ar", "العربية (ar)"] in options
    assert [tag for tag, _ in options] == ["", *server.service.languages]  # it takes no others
    german = search(page, "gris")
    with page.expect_response("**/api/search*language=en*"):
        page.locator("#language").select_option("en")
    assert settled(page) == by_text(server, "gris", "en") != german
    load(page, server.address)  # and the choice is remembered
    assert page.locator("#language").input_value() == "en"


def test_the_latest_query_wins(page, server):
    """The first answer comes after the second one, although the page has aborted its request."""
    page.evaluate("""(() => {
      const real = window.fetch;
      window.fetch = (address, options) => String(address).includes("slow")
        ? window.late = new Promise(done => window.release = done)
            .then(() => real(address, { ...options, signal: undefined }))
        : real(address, options);
    })()""")
    page.locator("#language").select_option("de")
    page.locator("#query").fill("slow")
    page.locator("#status", has_text="Searching …").wait_for()
    assert search(page, "Hund") == by_text(server, "Hund", "de")
    another = "fetch('/health').then(answer => answer.json())"  # comes after what the page does with the late answer
    page.evaluate(f"(window.release(), window.late.then(() => {another}).then(() => {another}).then(() => true))")
    assert settled(page, "“Hund”") == by_text(server, "Hund", "de")


@pytest.mark.parametrize("way", ["choose", "drop", "paste"])
def test_an_image_is_searched_with(page, server, way):
    file = server.service.folder / "image 07.png"
    if way == "choose":
        page.locator("#file").set_input_files(file)
    else:
        data = page.evaluate_handle(TRANSFER, [file.name, "image/png", list(file.read_bytes())])
        if way == "drop":
            page.dispatch_event("#results", "dragenter", {"dataTransfer": data})
            assert page.locator("#drop").is_visible()
            page.dispatch_event("#results", "drop", {"dataTransfer": data})
        else:
            pasted = "data => document.dispatchEvent(new ClipboardEvent('paste', { clipboardData: data }))"
            page.evaluate(pasted, data)
    assert settled(page, "for the image")[0] == "image 07.png"
    assert page.locator("#drop").is_hidden()
    assert page.locator("#example-text").text_content() == "Images like image 07.png"
    assert page.locator("#example-image").get_attribute("src").startswith("blob:")


def test_keys(page):
    search(page, "Hund")
    page.keyboard.press("ArrowDown")
    columns = page.evaluate("getComputedStyle(results).gridTemplateColumns.split(' ').length")
    moves = [("ArrowRight", 1), ("ArrowDown", 1 + columns), ("ArrowLeft", columns), ("ArrowUp", 0), ("End", 23)]
    assert page.evaluate(FOCUSED) == 0
    for key, position in [*moves, ("Home", 0), ("ArrowLeft", 0)]:
        page.keyboard.press(key)
        assert page.evaluate(FOCUSED) == position, key
    page.keyboard.press("Tab")  # out of the results
    assert page.evaluate("document.activeElement.id") == "more"
    page.locator("#results button").first.focus()
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement.id") == "query"
    page.keyboard.press("Escape")
    assert page.evaluate("[query.value, location.search]") == ["", ""]


def test_a_screen_reader_is_told_names_and_counts(page):
    names = search(page, "Hund")
    for role, name in (
        ("searchbox", "Describe the images"),
        ("combobox", "Language of the description"),
        ("button", "Show more"),
        ("list", "Results, best first"),
        ("heading", "Image search"),
        ("button", names[0]),
    ):
        assert page.get_by_role(role, name=name, exact=True).count() == 1, name
    assert page.locator("#status").get_attribute("aria-live") == "polite"


def test_the_address_keeps_the_search(page):
    found = search(page, "chien & chat", "fr")
    load(page, page.url)
    assert settled(page) == found and page.evaluate("[query.value, language.value]") == ["chien & chat", "fr"]


def test_what_is_no_image_or_too_large_is_refused_before_it_is_sent(page, tmp_path):
    (tmp_path / "notes.txt").write_text("no image")
    (tmp_path / "large.png").write_bytes(bytes((20 << 20) + 1))
    for name, problem in (("notes.txt", "not an image"), ("large.png", "too large: 20 MiB")):
        page.locator("#file").set_input_files(tmp_path / name)
        page.locator("#problem", has_text=problem).wait_for()


def test_errors_of_the_server_are_shown(open_page, tmp_path):
    page = open_page()
    written = io.BytesIO()
    Image.new("RGB", (8, 8)).save(written, "PNG")
    (tmp_path / "cut.png").write_bytes(written.getvalue()[:40])
    page.locator("#file").set_input_files(tmp_path / "cut.png")
    page.locator("#problem", has_text="image of 40 bytes").wait_for()
    assert [each for each in page.problems if "400 (Bad Request)" not in each] == []
    page.route("**/api/search*", lambda route: route.abort())
    page.locator("#query").fill("Hund")
    page.locator("#problem", has_text="The server does not answer. Is it still running?").wait_for()
    assert page.locator("#results li").count() == 0 and page.locator("#retry").is_visible()
    assert page.locator("#results[aria-busy]").count() == 0


def test_names_of_files_are_text(open_page, embedder, tmp_path):
    """Nothing in them is read as markup, nor in queries and in errors that repeat them."""
    evil = "<img src=x onerror=document.title='run'>"
    for name, color in ((f"{evil}.png", "red"), ("<script>document.title='run'<\\script>.png", "blue")):
        Image.new("RGB", (8, 8), color).save(tmp_path / name)
    with serving(ImageService(embedder, tmp_path, model=evil)) as server:
        page = open_page(f"{server.address}?q={quote(evil)}&language=en")
        names = settled(page)
        assert f"{evil}.png" in names and len(names) == 2
        page.locator("#results button").first.click()
        page.locator("#similar").click()
        settled(page)
        load(page, f"{server.address}?q=a&language={quote(evil)}")
        page.locator("#results:not([aria-busy])").wait_for()
        assert page.title() == "Image search"
        assert page.locator("[onerror], main script").count() == 0


def test_the_language_of_the_browser_or_the_nearest_is_chosen(open_page, embedder, folder):
    for languages, chosen in ((["de-AT", "fr"], "de"), (["xx", "fr-CA"], "fr"), (["sw"], "")):
        page = open_page(languages=languages)
        assert page.locator("#language").input_value() == chosen
    nearest = "async tag => (await import('./static/page.js')).nearest([tag], ['zh', 'zh-Hant', 'pt-BR', 'sr-Latn'])"
    for wanted, found in {"zh-TW": "zh-Hant", "zh-CN": "zh", "pt": "pt-BR", "sr-Cyrl": ""}.items():
        assert page.evaluate(nearest, wanted) == found
    with serving(ImageService(embedder, folder, model="m", language="fr")) as other:
        assert open_page(other.address, ["de"]).locator("#language").input_value() == "fr"


def test_a_picture_opens_large_with_what_can_be_done(page, server):
    best, second = search(page, "Hund")[:2]
    page.locator("#results button").first.click()
    name, viewer = page.locator("#viewer-name"), page.locator("#viewer")
    assert viewer.is_visible() and name.text_content() == best
    wait_until(page, "document.getElementById('viewer-image').naturalWidth > 0")
    original = page.locator("#original").get_attribute("href")
    assert server.ask(f"/{original}").body == (server.service.folder / best).read_bytes()
    page.keyboard.press("ArrowRight")
    assert name.text_content() == second
    page.keyboard.press("Escape")  # closes the picture, and keeps the search
    assert viewer.is_hidden() and page.locator("#query").input_value() == "Hund"
    wait_until(page, f"({FOCUSED})() === 1")
    page.keyboard.press("Enter")
    page.locator("#similar").click()
    similar = settled(page, f"for {second}")
    image_id = page.evaluate("new URLSearchParams(location.search).get('like')")
    assert similar == files_of(server, f"/api/similar/{image_id}?top=24") and second not in similar
    page.locator("#more").click()
    count(page, 39)
    wait_until(page, f"({FOCUSED})() === 24")
    assert page.locator("#more").is_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1100, 360])
def test_it_fits_a_screen_and_a_phone_in_both_color_schemes(open_page, server, scheme, width):
    address = f"{server.address}?q={quote('ein rotes Auto')}&language=de"
    phone = {"is_mobile": width < 500, "has_touch": width < 500}
    page = open_page(address, viewport={"width": width, "height": 800}, color_scheme=scheme, **phone)
    settled(page)
    assert page.locator("#results").bounding_box()["y"] < 0.3 * 800  # what was found, not the form, fills a phone
    page.locator("#results button").first.click()
    assert page.evaluate("innerWidth") == width >= page.evaluate("document.documentElement.scrollWidth")
    box = page.locator("#viewer").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= width and box["y"] >= 0 and box["y"] + box["height"] <= 800
    background = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert (max(background) < 60) == (scheme == "dark")
    assert page.problems == []


def test_a_page_of_another_site_reaches_nothing(chromium, server, tmp_path):
    """A file is another site: it can neither read the answer nor keep the server at work."""
    asked = []
    server.service.by_image = lambda *given: asked.append(given) or []
    (tmp_path / "other.html").write_text("<title>Another site</title>")
    page = chromium.new_page()
    try:
        page.goto((tmp_path / "other.html").as_uri())
        image = list(server.service.index.paths[0].read_bytes())
        send = """([address, data]) => {
          const body = new FormData();
          for (const file of data.files) body.append("file", file);
          return fetch(address, { method: "POST", mode: "no-cors", body }).catch(() => null).then(() => true);
        }"""
        data = page.evaluate_handle(TRANSFER, ["a.png", "image/png", image])
        page.evaluate(send, [f"{server.address}api/search-by-image", data])
    finally:
        del server.service.by_image
        page.close()
    assert asked == []


def test_a_browser_gives_the_token_as_a_password(open_page, service):
    with serving(service, token=TOKEN) as server:
        page = open_page(server.address, http_credentials={"username": "", "password": TOKEN})
        count(page, 24)
        wait_until(page, "[...document.querySelectorAll('img[loading=eager]')].every(i => i.naturalWidth)")
