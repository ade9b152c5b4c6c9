import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager

import pytest
from PIL import Image

from babelens.serving.binding import bound_socket, check_token
from babelens.utils.errors import BabelensError
from tests.support.served import TOKEN

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    for name in ("a", "b", "c"):
        Image.effect_noise((32, 32), 90).save(folder / f"{name}.png")
    return folder


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    return os.environ | {"HF_DATASETS_CACHE": str(tmp_path_factory.mktemp("cache")), "HF_HUB_OFFLINE": "1"}


@contextmanager
def started(clip_folder, images, environment, *options):
    """A server, as its process and its address; it is stopped as a terminal or systemd would stop it."""
    command = [sys.executable, "-m", "babelens", "serve", clip_folder, "--images", images, "--port", "0", *options]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        assert "can be searched at" in line, line + process.stderr.read()
        yield process, re.search(r"http://\S+(?=/)", line)[0]
    finally:
        process.kill()
        process.communicate(timeout=20)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_ends_at_a_signal(number, clip_folder, images, environment):
    with started(clip_folder, images, environment | {"BABELENS_TOKEN": TOKEN}, "--host", "0.0.0.0") as (process, _):
        process.send_signal(number)
        assert process.wait(20) in (0, -number) and "Traceback" not in process.stderr.read()


def test_a_port_that_is_taken_is_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(BabelensError, match=f"port {port} of 127.0.0.1 is taken"):
            bound_socket("127.0.0.1", port)
    with pytest.raises(BabelensError, match="cannot be served"):
        bound_socket("203.0.113.7", 0)
    for host in ("no-such-host.invalid", "two..dots", "a" * 64):
        with pytest.raises(BabelensError, match=f"^{host} is not a host of this machine: .*[a-z]"):
            bound_socket(host, 0)


def test_a_token_is_needed_where_others_can_reach_the_server():
    for host in ("127.0.0.1", "localhost", "::1", "127.0.0.2"):
        check_token(host, None)
    for host in ("0.0.0.0", "::", "192.168.1.4", "example.org"):
        with pytest.raises(BabelensError, match="give a token"):
            check_token(host, None)
        check_token(host, TOKEN)
    with pytest.raises(BabelensError, match="at least 16"):
        check_token("127.0.0.1", "short")
    for odd in (f"{TOKEN}\n", f" {TOKEN}", f"{TOKEN}\t", f"{TOKEN}\x00{TOKEN}", f"{TOKEN}\udcff"):
        with pytest.raises(BabelensError, match="nobody could give it"):
            check_token("127.0.0.1", odd)
