"""Requests to the server of images are answered, or refused with a sentence.

None raises an exception, and no status is above 499 but 503, which means that too many queries wait.
"""

import asyncio
import json
from typing import Any
from urllib.parse import quote, urlencode

import numpy as np
import pytest
from hypothesis import given, strategies as st
from PIL import Image

from babelens.inference import Embedder
from babelens.serving.app import create_app
from babelens.serving.service import ImageService
from tests.fuzz.strategies import ANY_TEXT, JSON, image_files
from tests.support.served import TOKEN

BYTES = st.binary(max_size=30)
# Pillow warns of files that it can read all the same.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:PIL")
PATHS = [
    *("", "health", "openapi.json", "api/info", "api/search", "api/search-by-image", "api/similar/", "images/"),
    *("thumbnails/", "static/", "static/page.html", "none"),
]
HEADERS = ["host", "authorization", "cookie", "content-length", "content-type", "if-none-match", "range", "accept"]
VALUES = [
    *("localhost", "127.0.0.1:80", "[::1]", f"Bearer {TOKEN}", "Bearer", "babelens=x", "-1", "0", "9" * 30, "*", "a;b")
]


@pytest.fixture(scope="module")
def service(make_mla, tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    colors = np.random.default_rng(0).integers(0, 256, (6, 4, 4, 3), dtype=np.uint8)
    for number, color in enumerate(colors):
        Image.fromarray(color).resize((40, 30)).save(folder / f"{number}.png")
    return ImageService.of_folder(Embedder(*make_mla()), folder, model="tiny")


@pytest.fixture(scope="module")
def loop():
    """One loop for all requests, as a server has it: batches of queries belong to it."""
    with asyncio.Runner() as runner:
        yield runner.get_loop()


@pytest.fixture(scope="module")
def open_server(service):
    return create_app(service)


@pytest.fixture(scope="module")
def guarded_server(service):
    return create_app(service, host="0.0.0.0", token=TOKEN)


@pytest.fixture(scope="module", params=["open_server", "guarded_server"])
def application(request):
    return request.getfixturevalue(request.param)


async def _answered(application: Any, scope: dict[str, Any], body: list[bytes]) -> tuple[int, bytes]:
    """The status and the body of the answer to a request whose body comes in parts."""
    parts = [{"type": "http.request", "body": part, "more_body": True} for part in body]
    parts.append({"type": "http.request", "body": b"", "more_body": False})
    sent: list[Any] = []

    async def receive() -> Any:
        return parts.pop(0) if parts else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await application(scope, receive, send)
    starts = [message for message in sent if message["type"] == "http.response.start"]
    assert len(starts) == 1
    return starts[0]["status"], b"".join(message.get("body", b"") for message in sent)


def ask(loop, application, method, path, query=b"", headers=(), body=()):
    """Asks as a server would that has read any bytes: nothing but the application may refuse them."""
    given = dict(headers)
    if b"host" not in given:
        headers = [*headers, (b"host", b"localhost")]
    where = {"path": path, "raw_path": quote(path, errors="surrogatepass").encode(), "query_string": query}
    scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http"}
    scope |= where | {"root_path": "", "headers": list(headers)}
    scope |= {"client": ("127.0.0.1", 5000), "server": ("127.0.0.1", 7860)}
    status, answer = loop.run_until_complete(_answered(application, scope, list(body)))
    assert status < 500 or status == 503, answer
    if status >= 400 and answer.startswith(b"{"):
        assert json.loads(answer)["error"]
    return status


HEADER = st.tuples(
    st.one_of(st.sampled_from(HEADERS).map(str.encode), BYTES.map(bytes.lower)),
    st.one_of(st.sampled_from(VALUES).map(str.encode), BYTES),
)


@given(
    method=st.sampled_from(["GET", "GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "odd"]),
    start=st.sampled_from(PATHS),
    rest=st.one_of(st.just(""), st.sampled_from(["../../etc/passwd", "%00", "a" * 300, "\x00", "a/b"]), ANY_TEXT),
    query=st.one_of(BYTES, st.dictionaries(ANY_TEXT, ANY_TEXT, max_size=3).map(lambda given: _encoded(given))),
    headers=st.lists(HEADER, max_size=4),
    body=st.lists(st.one_of(BYTES, JSON.map(lambda value: json.dumps(value).encode())), max_size=2),
)
def test_any_request_is_answered_or_refused(loop, application, method, start, rest, query, headers, body):
    path = "/" + start + rest.encode("utf-8", "ignore").decode()  # a server has decoded the path
    ask(loop, application, method, path, query, headers, body)


@given(
    data=image_files(),
    name=st.one_of(st.just("file"), ANY_TEXT),
    kind=st.one_of(st.just(b"image/png"), BYTES),
    cut=st.integers(0, 400),
)
def test_any_upload_finds_or_is_refused(loop, open_server, data, name, kind, cut):
    head = b'--x\r\nContent-Disposition: form-data; name="file"; filename="'
    head += name.encode("utf-8", "ignore") + b'"\r\nContent-Type: ' + kind + b"\r\n\r\n"
    body = head + data + b"\r\n--x--\r\n"
    parts = [body[:cut], body[cut:]]
    headers = [(b"content-type", b"multipart/form-data; boundary=x"), (b"content-length", str(len(body)).encode())]
    status = ask(loop, open_server, "POST", "/api/search-by-image", b"", headers, parts)
    assert status in (200, 400)


def _encoded(query):
    return urlencode(query, errors="surrogatepass").encode()
