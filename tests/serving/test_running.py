"""`babelens serve` as a process: its start and end, and the search from the terminal that asks it."""

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest
from PIL import Image
from served import TOKEN
from tiny_native import saved, tiny_clip
from typer.testing import CliRunner

from babelens.cli.main import app
from babelens.configuration.errors import BabelensError, ServingError
from babelens.data.emoji.benchmark import DEFAULT_CACHE
from babelens.serving.binding import bound_socket, check_token
from babelens.serving.running import RunningServer, find_server, identity_of, record_path, written_down

pytestmark = pytest.mark.live

SEARCH = """
import sys
sys.argv[0] = "/usr/bin/babelens"
from babelens.cli.main import main
try:
    main()
finally:
    print("torch" in sys.modules)
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return saved(tiny_clip(), tmp_path_factory.mktemp("model") / "clip")


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    for name in ("a", "b", "c"):
        Image.effect_noise((32, 32), 90).save(folder / f"{name}.png")
    return folder


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A place of its own for what is cached, and none of the session's settings for proxies."""
    return os.environ | {"HF_DATASETS_CACHE": str(tmp_path_factory.mktemp("cache")), "HF_HUB_OFFLINE": "1"}


@contextmanager
def started(model, images, environment, *options):
    """A server, as its process and its address; it is stopped as a terminal or systemd would stop it."""
    command = [sys.executable, "-m", "babelens", "serve", model, "--images", images, "--port", "0", *options]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        assert "are searched at" in line, line + process.stderr.read()
        yield process, re.search(r"http://\S+(?=/)", line)[0]
    finally:
        process.kill()
        process.communicate(timeout=20)


def search(model, images, environment, *options):
    """The results of `babelens search`, what it says beside them, and whether it loaded torch."""
    command = [sys.executable, "-c", SEARCH, "search", model, "a b", "--images", images, "--language", "en", "--json"]
    done = subprocess.run(
        [*map(str, command), *options], env=environment, capture_output=True, text=True, timeout=100, check=True
    )
    printed, _, torch = done.stdout.rstrip().rpartition("\n")
    return json.loads(printed), done.stderr, torch == "True"


def test_search_asks_the_server_and_answers_the_same_without_it(model, images, environment, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", environment["HF_DATASETS_CACHE"])
    record = record_path(str(model), images)
    with started(model, images, environment) as (process, address):
        assert stat.S_IMODE(record.stat().st_mode) == 0o600
        assert stat.S_IMODE(record.parent.stat().st_mode) == 0o700
        asked, told, loaded = search(model, images, environment, "--top", "2")
        assert f"asked the server at {address}" in told and not loaded
        record.chmod(0o644)  # another user could have read or written it
        assert find_server(str(model), images) is None
        record.chmod(0o600)
        assert find_server(str(model), images.parent) is None
        facts = json.loads(record.read_text())
        for name in ("fingerprint", "folder", "secret"):  # of another server at the same address
            record.write_text(json.dumps(facts | {name: "another"}))
            assert find_server(str(model), images) is None, name
        record.write_text(json.dumps(facts))
        Image.effect_noise((32, 32), 90).save(images / "new.png")
        assert find_server(str(model), images) is None
        (images / "new.png").unlink()
        assert find_server(str(model), images) is not None
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert not record.exists()
    words = ["search", model, "a b", "--images", images, "--language", "en", "--json", "--top", "2"]
    alone = json.loads(CliRunner().invoke(app, [*map(str, words)]).stdout)
    assert [each["file"] for each in asked["results"]] == [each["file"] for each in alone["results"]]
    assert [each["score"] for each in asked["results"]] == pytest.approx(
        [each["score"] for each in alone["results"]], abs=1e-5
    )


def test_a_server_with_a_token_is_found_and_ends_at_an_interrupt(model, images, environment, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", environment["HF_DATASETS_CACHE"])
    with started(model, images, environment | {"BABELENS_TOKEN": TOKEN}, "--host", "0.0.0.0") as (process, _):
        server = find_server(str(model), images)
        assert server is not None and len(server.search("a", "en", 2)) == 2
        assert server.search("a", "xx", 2) is None  # refused, which the search without a server explains
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0 and "Traceback" not in process.stderr.read()
    assert find_server(str(model), images) is None


def test_records_that_are_no_records_are_passed_over(model, images, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path))
    record = record_path(str(model), images)
    record.parent.mkdir(parents=True)
    for text in ("", "[]", "{}", '{"host": "127.0.0.1", "port": 1, "secret": "x"}'):
        record.write_text(text)
        record.chmod(0o600)
        assert find_server(str(model), images) is None
    assert find_server("openai/clip-vit-base-patch32", images) is None  # the Hub may have a newer one


@pytest.mark.parametrize("content", [b"[]", b"1", b'"x"', b"null", b"{}", b"\xff", b""])
def test_another_program_at_the_port_of_a_server_is_passed_over(content):
    with socket.create_server(("127.0.0.1", 0)) as other:
        facts = {"model": "m", "folder": "f", "fingerprint": "x"}
        server = RunningServer(facts | {"host": "127.0.0.1", "port": other.getsockname()[1], "secret": "s"})

        def answer():
            with other.accept()[0] as connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + content)

        answering = threading.Thread(target=answer)
        answering.start()
        assert not server.is_same()
        answering.join()


def test_a_query_that_is_no_text_is_left_to_the_search_without_a_server():
    assert RunningServer({"host": "127.0.0.1", "port": 9, "secret": "s"}).search("\udcff", "de", 1) is None


def test_a_cache_that_cannot_be_written_keeps_nobody_from_serving(tmp_path, monkeypatch, caplog):
    (tmp_path / "babelens").write_text("a file in the place of the folder")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path))
    with written_down(identity_of("m", tmp_path, "x", "s"), "127.0.0.1", 7860):
        assert "`babelens search` will not find this server" in caplog.text


def test_a_port_that_is_taken_is_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ServingError, match=f"port {port} of 127.0.0.1 is taken"):
            bound_socket("127.0.0.1", port)
    with pytest.raises(ServingError, match="cannot be served"):
        bound_socket("203.0.113.7", 0)
    for host in ("no-such-host.invalid", "two..dots", "a" * 64):
        with pytest.raises(ServingError, match=f"^{host} is no host of this machine: .*[a-z]"):
            bound_socket(host, 0)


def test_a_token_is_needed_where_others_can_reach_the_server():
    for host in ("127.0.0.1", "localhost", "::1", "127.0.0.2"):
        check_token(host, None)
    for host in ("0.0.0.0", "::", "192.168.1.4", "example.org"):
        with pytest.raises(ServingError, match="give a token"):
            check_token(host, None)
        check_token(host, TOKEN)
    with pytest.raises(ServingError, match="at least 16"):
        check_token("127.0.0.1", "short")
    for odd in (f"{TOKEN}\n", f" {TOKEN}", f"{TOKEN}\t", f"{TOKEN}\x00{TOKEN}", f"{TOKEN}\udcff"):
        with pytest.raises(ServingError, match="nobody could give it"):
            check_token("127.0.0.1", odd)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["MODEL", "--images", "IMAGES", "--host", "0.0.0.0"], "others can reach 0.0.0.0"),
        (["no/model", "--images", "IMAGES", "--port", "0"], "no/model"),
        (["MODEL", "--images", "EMPTY", "--port", "0"], "no images"),
    ],
)
def test_mistakes_are_one_sentence(options, sentence, model, images, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "empty").mkdir()
    named = {"MODEL": str(model), "IMAGES": str(images), "EMPTY": str(tmp_path / "empty")}
    words = ["serve", *(named.get(each, each) for each in options)]
    result = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
    assert sentence in f"{result.output} {result.exception}"
    assert isinstance(result.exception, SystemExit | BabelensError)


def test_the_record_is_in_the_cache_of_datasets(model, images):
    assert record_path(str(model), images).parent == DEFAULT_CACHE / "servers"
