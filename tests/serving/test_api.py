import io
import re
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from importlib.resources import files

import numpy as np
import pytest
from PIL import Image
from starlette.formparsers import MultiPartParser

from babelens.serving.service import ImageService
from babelens.utils.errors import LanguageTagError
from tests.support.served import TOKEN, serving

TEXT = "/api/search?q=ein%20rotes%20Quadrat&language=de"


def test_a_text_finds_what_the_index_finds(server, service, embedder):
    answer = server.ask(f"{TEXT}&top=5")
    assert answer.status == 200 and answer.json["language"] == "de" and answer.json["query"] == "ein rotes Quadrat"
    best = service.index.search(embedder.encode_text("ein rotes Quadrat", language="de")[0], 5)
    assert [each["file"] for each in answer.json["results"]] == [
        each.path.relative_to(service.folder).as_posix() for each in best
    ]
    np.testing.assert_allclose(
        [each["score"] for each in answer.json["results"]], [each.score for each in best], atol=1e-6
    )


def test_an_image_of_the_folder_finds_itself_first_and_similar_leaves_it_out(server, service):
    path = service.index.paths[7]
    first, second = server.upload(path.read_bytes(), "/api/search-by-image?top=2").json["results"]
    assert first["file"] == path.name and first["score"] == pytest.approx(1, abs=1e-5)
    (similar,) = server.ask(f"/api/similar/{first['id']}?top=1").json["results"]
    assert similar == second | {"score": similar["score"]}
    assert len(server.ask(f"/api/similar/{first['id']}?top=200").json["results"]) == len(service) - 1


def test_images_and_thumbnails_are_served_by_id(server, service):
    for found in server.ask(f"{TEXT}&top=200").json["results"]:
        whole = server.ask("/" + found["image"])
        assert whole.body == (service.folder / found["file"]).read_bytes()
        assert whole.headers["content-type"] == "image/png" and "sandbox" in whole.headers["content-security-policy"]
    assert Image.open(io.BytesIO(server.ask("/" + found["thumbnail"]).body)).format == "WEBP"
    large = server.ask(f"/{found['thumbnail']}?size=large")
    assert Image.open(io.BytesIO(large.body)).size == Image.open(service.folder / found["file"]).size
    assert server.ask(f"/{found['thumbnail']}?size=huge").status == 400


def test_head_is_answered_as_get_without_the_body(server):
    """Monitors send HEAD."""
    found = server.ask(f"{TEXT}&top=1").json["results"][0]
    pages = ("/", "/health", "/api/info", f"{TEXT}&top=1", "/static/page.js", "/images/none")
    for path in (*pages, "/" + found["image"], "/" + found["thumbnail"]):
        head, whole = server.ask(path, "HEAD"), server.ask(path)
        assert (head.status, head.body) == (whole.status, b""), path
        kept = ("content-type", "content-length", "content-security-policy")
        assert all(head.headers.get(name) == whole.headers.get(name) for name in kept), path
    assert server.ask("/api/search-by-image", "HEAD").status == 405


def test_every_answer_has_the_headers_of_security(server):
    for path in ("/", "/static/page.js", "/health", "/api/info", "/api/nothing", "/images/none"):
        headers = server.ask(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'self'" in policy and "frame-ancestors 'none'" in policy, path
        assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in headers and "server" not in headers


@pytest.mark.parametrize(
    ("site", "origin"), [("cross-site", "https://example.org"), ("same-site", "http://localhost:3000")]
)
def test_pages_of_other_sites_and_ports_are_not_answered(server, site, origin):
    """They could not read an answer, but would keep the server at work. Browsers name the site in these headers."""
    asking = {"Origin": origin, "Sec_Fetch_Site": site}
    for path in (TEXT, "/", "/health", "/images/none", "/api/info"):
        for kind in ("empty", "image", "script", "iframe"):
            assert server.ask(path, Sec_Fetch_Dest=kind, **asking).status == 403, (path, kind)
    for kind in ("empty", "document"):  # by a script, and by a form
        answer = server.ask("/api/search-by-image", "POST", b"", Sec_Fetch_Dest=kind, **asking)
        assert answer.status == 403 and "pages of other sites" in answer.json["error"]
    assert server.ask("/?q=a&language=de", Sec_Fetch_Dest="document", **asking).status == 200  # a link


def test_the_pages_name_no_other_address():
    for file in files("babelens.serving").joinpath("static").iterdir():
        named = set(re.findall(r"https?://[^\s\"'<]+", file.read_text("utf-8")))
        assert named <= {"http://www.w3.org/2000/svg"}, file.name


def test_images_are_listed_in_an_order_that_stays(server, service):
    first, all_of_them = (server.ask(f"/api/images?top={top}").json["results"] for top in (5, 100))
    assert first == all_of_them[:5] and len({each["id"] for each in all_of_them}) == len(service)
    assert {each["file"] for each in all_of_them} == set(map(service.name, service.index.paths))


def test_queries_without_a_language_are_read_in_the_default_one(embedder, folder):
    with serving(ImageService(embedder, folder, model="m", language="DE")) as server:
        stated, default = (server.ask(f"/api/search?q=gris{more}").json for more in ("&language=de", ""))
        assert stated == default and default["language"] == "de"


def test_info(server, service):
    info = server.ask("/api/info").json
    assert info["images"] == len(service) == 40 and info["model"] == "tiny" and info["language"] is None
    assert info["languages"][0] == "en" and "de" in info["languages"] and not info["takes_any_language"]
    assert "/api/search" in server.ask("/openapi.json").json["paths"]


def test_a_language_that_the_model_does_not_read_is_refused_before_images_are_read(embedder, tmp_path):
    with pytest.raises(LanguageTagError, match="'sw'"):
        ImageService(embedder, tmp_path / "nothing", model="m", language="sw")


def test_many_clients_at_once_get_the_answers_of_one(server):
    queries = [f"/api/search?q={text}&language={tag}&top=3" for text in ("gris", "rot") for tag in ("de", "en", "fr")]
    alone = [server.ask(query).json for query in queries]
    with ThreadPoolExecutor(12) as clients:
        assert list(clients.map(lambda query: server.ask(query).json, 4 * queries)) == 4 * alone


def test_few_uploads_are_received_at_a_time(server, service, monkeypatch):
    """Others wait before they take memory or disk; each may be large."""
    receiving, most = set(), []
    parse = MultiPartParser.parse

    async def counted(parser):
        receiving.add(parser)
        most.append(len(receiving))
        try:
            return await parse(parser)
        finally:
            receiving.remove(parser)

    monkeypatch.setattr(MultiPartParser, "parse", counted)
    part = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    body, end = part + service.index.paths[0].read_bytes(), b"\r\n--x--\r\n"
    head = "POST /api/search-by-image HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=x\r\n"
    with ExitStack() as stack:
        clients = [stack.enter_context(server.connect()) for _ in range(12)]
        for client in clients:
            client.sendall(f"{head}Content-Length: {len(body + end)}\r\n\r\n".encode() + body)
        while len(receiving) < 4:
            assert server.ask("/health").status == 200
        for client in clients:
            client.sendall(end)
        assert all(b" 200 " in client.recv(4096).partition(b"\r\n")[0] for client in clients)
    assert len(most) == len(clients) and max(most) == 4


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
