import io
import struct
import zlib
from contextlib import suppress
from urllib.parse import quote

import pytest
from PIL import Image

pytestmark = pytest.mark.slow

TEXT = "/api/search?q=ein%20rotes%20Quadrat&language=de&top=3"
FORM = "multipart/form-data; boundary=x"


@pytest.fixture(autouse=True)
def still_answers(server):
    yield
    assert server.ask(TEXT).status == 200


def encodings(name):
    up = ["../", "..%2f", "%2e%2e/", "%2e%2e%2f", "..%252f", "..\\", "..%5c", "..%c0%af", "....//", "/", "%2f", "//"]
    return [f"{each * depth}{name}" for each in up for depth in (1, 2, 6)] + [f"{name}%00.png", f"../{name}%00.png"]


@pytest.mark.parametrize("room", ["images", "thumbnails", "static", "api/similar"])
def test_no_path_leads_out_of_the_folder(server, folder, room):
    (folder.parent / (secret := "secret.txt")).write_text("the secret")
    absolute = [quote(str(folder.parent / secret)), str(folder.parent / secret), "/etc/passwd", "file:///etc/passwd"]
    inside = [quote(folder.joinpath("image 00.png").as_posix()), "image%2000.png"]
    for name in [*encodings(secret), *encodings("etc/passwd"), *absolute, *inside]:
        answer = server.ask(f"/{room}/{name}")
        assert answer.status in (400, 404), name
        assert b"the secret" not in answer.body and b"root:" not in answer.body, name


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example:80", "127.0.0.1.evil.example", "localhost.", "", "[::1", "evil@localhost", "[::1]evil"),
        *("localhost:80@evil.com", "localhost:80:80", "localhost/evil"),
    ],
)
def test_other_hosts_are_refused(server, host):
    for path in ("/", TEXT, "/health", "/images/x"):
        assert server.ask(path, Host=host).status in (400, 421)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1234", "127.0.0.1", "[::1]:7860"])
def test_names_of_this_machine_are_not(server, host):
    assert server.ask("/health", Host=host).status == 200


def bomb(width, height):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(1 << 16))) + chunk(b"IEND", b"")


def test_bombs_are_refused_before_they_are_decoded(server):
    for size in ((30_000, 30_000), (2_000_000, 1), (8193, 8192), (0, 5)):
        assert server.upload(bomb(*size)).status == 400, size
    many = io.BytesIO()
    frame = Image.new("P", (1000, 1000))
    frame.save(many, "GIF", save_all=True, append_images=[Image.new("P", (1000, 1000), n) for n in range(50)])
    assert server.upload(many.getvalue()).status == 200  # of an animation, the first frame


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no image",
        b"<svg xmlns='http://www.w3.org/2000/svg'><image href='file:///etc/passwd'/></svg>",
        b"%!PS-Adobe-3.0 EPSF-3.0\n(/etc/passwd) run",
    ],
)
def test_what_is_no_image(server, data):
    answer = server.upload(data)
    assert answer.status == 400 and answer.json["error"] and b"Traceback" not in answer.body


def test_a_body_that_is_announced_as_too_large_is_refused_unread(server):
    with server.connect() as connection:
        head = f"POST /api/search-by-image HTTP/1.1\r\nHost: localhost\r\nContent-Type: {FORM}\r\n"
        connection.sendall(f"{head}Content-Length: 1000000000000\r\n\r\n".encode())
        answer = connection.recv(4096)
        assert b" 413 " in answer.partition(b"\r\n")[0] and b"connection: close" in answer.lower()


def test_a_body_without_an_end_is_refused(server, monkeypatch):
    monkeypatch.setattr("babelens.serving.app.UPLOAD_BYTES", 1 << 20)
    path = "/api/search-by-image"
    sent = 0
    with server.connect() as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {FORM}\r\nTransfer-Encoding: chunked\r\n\r\n"
        part = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
        connection.sendall(head.encode() + b"%x\r\n%s\r\n" % (len(part), part))
        with suppress(OSError):
            for _ in range(400):
                connection.sendall(b"10000\r\n" + bytes(65536) + b"\r\n")
                sent += 65536
    assert sent < 20 << 20


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (FORM, b""),
        (FORM, b"--x"),
        (FORM, b'--x\r\nContent-Disposition: form-data; name="file"\r\n\r\ntext\r\n--x--\r\n'),
        (FORM, b'--x\r\nContent-Disposition: form-data; name="other"; filename="a"\r\n\r\na\r\n--x--\r\n'),
        ("multipart/form-data", b"--x--"),
        ("application/json", b'{"file": '),
        ("application/json", b"[" * 100_000),
        ("text/plain", b"file"),
    ],
)
def test_malformed_forms(server, kind, body):
    answer = server.ask("/api/search-by-image", "POST", body, Content_Type=kind)
    assert answer.status == 400 and answer.json["error"]


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "POST", "TRACE", "CONNECT"])
def test_nothing_can_be_written(server, method):
    for path in ("/", "/images/x", "/api/search"):
        assert server.ask(path, method).status in (404, 405)
