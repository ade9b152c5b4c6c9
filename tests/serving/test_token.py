"""A server with a token answers nothing without it, and a browser is asked for it once."""

import pytest
from served import TOKEN, serving

from babelens.serving.gate import COOKIE, cookie_of

TEXT = "/api/search?q=ein%20rotes%20Quadrat&language=de"


@pytest.fixture(scope="module")
def guarded(service):
    with serving(service, token=TOKEN) as server:
        yield server


@pytest.mark.parametrize("path", ["/", TEXT, "/api/info", "/openapi.json", "/images/x", "/thumbnails/x"])
def test_nothing_is_answered_without_it(guarded, path):
    assert guarded.ask(path).status == 401
    for wrong in ("Bearer no", "Bearer", "Basic YTpi", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}"):
        assert guarded.ask(path, Authorization=wrong).status == 401
    name, value = cookie_of(TOKEN)
    for wrong in (f"{name}={TOKEN}", f"{name}={value}x", f"{COOKIE}={value}", name):
        assert guarded.ask(path, Cookie=wrong).status == 401
    assert guarded.ask(path, Cookie="=;;\x01").status == 401


def test_health_is(guarded):
    assert guarded.ask("/health").json == {"status": "ok"}
    assert guarded.ask("/health", "HEAD").status == 200
    assert guarded.ask("/api/info", "HEAD").status == 401


def test_a_header_opens_the_api(guarded):
    assert guarded.ask(TEXT, Authorization=f"Bearer {TOKEN}").status == 200


@pytest.mark.parametrize(
    "other",
    [
        "a=1",
        'a={"b":1}',
        "a=b c",
        "a[b]=1",
        "a@b=1",
        'a="b',
        "a",
        "a/b=1",
        "=",
        f"{COOKIE}=old",
        "\xfc=1",
        "=".join(cookie_of("of another server")),
    ],
)
def test_cookies_of_other_programs_of_the_host_do_not_matter(guarded, other):
    """A browser sends them too: cookies belong to a host, whatever the port."""
    own = "=".join(cookie_of(TOKEN))
    for cookies in (f"{other}; {own}", f"{own}; {other}", f"{other};{own};{other}"):
        assert guarded.ask("/api/info", Cookie=cookies).status == 200
    assert guarded.ask("/api/info", Cookie=f"{other}; x{own}").status == 401


def test_a_browser_is_asked_once(guarded):
    assert b'name="token"' in guarded.ask("/").body
    form = {"Content_Type": "application/x-www-form-urlencoded"}
    assert guarded.ask("/login", "POST", "token=wrong", **form).status == 401
    opened_again = guarded.ask("/login")  # the address of the page that says that it was wrong
    assert opened_again.status == 303 and opened_again.headers["location"] == "./"
    answer = guarded.ask("/login", "POST", "token=" + TOKEN.replace(" ", "+"), **form)
    assert answer.status == 303 and answer.headers["location"] == "./"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie and TOKEN not in cookie
    assert guarded.ask("/", Cookie=cookie.partition(";")[0]).status == 200
