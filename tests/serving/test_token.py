from base64 import b64encode

import pytest

from tests.support.served import TOKEN, serving

TEXT = "/api/search?q=ein%20rotes%20Quadrat&language=de"
PATHS = ["/", TEXT, "/api/info", "/openapi.json", "/static/page.js", "/images/x", "/thumbnails/x"]


@pytest.fixture(scope="module")
def guarded(service):
    with serving(service, token=TOKEN) as server:
        yield server


def basic(password, user=""):
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


@pytest.mark.parametrize("path", PATHS)
def test_nothing_is_answered_without_it(guarded, path):
    assert guarded.ask(path).headers["www-authenticate"].startswith("Basic")
    wrong = ["Bearer no", "Bearer", "Basic YTpi", "Basic", "Basic \xff", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}"]
    for each in [*wrong, basic(""), basic(f"{TOKEN}x"), basic("x", TOKEN), TOKEN, f"Digest {TOKEN}"]:
        answer = guarded.ask(path, Authorization=each)
        assert answer.status == 401 and "token" in answer.json["error"], each
    assert guarded.ask(path, "HEAD").status == guarded.ask(path, "POST", b"a").status == 401


def test_health_is(guarded):
    assert guarded.ask("/health").json == {"status": "ok"}


@pytest.mark.parametrize("given", [f"Bearer {TOKEN}", f"bearer  {TOKEN} ", basic(TOKEN), basic(TOKEN, "anybody")])
def test_the_token_opens_the_page_and_the_api(guarded, given):
    for path in ("/", TEXT, "/api/info", "/static/page.js"):
        assert guarded.ask(path, Authorization=given).status == 200
