import asyncio
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from babelens.serving.app import create_app, make_server
from babelens.serving.binding import bound_socket
from babelens.serving.service import ImageService

TOKEN = "a token that is long enough"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Served:
    port: int
    service: ImageService

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def ask(self, path: str, method: str = "GET", body: Any = None, **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): text for name, text in headers.items()})
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def upload(self, data: bytes, path: str = "/api/search-by-image", name: str = "file") -> Answer:
        head = f'--x\r\nContent-Disposition: form-data; name="{name}"; filename="a.png"\r\n\r\n'.encode()
        return self.ask(path, "POST", head + data + b"\r\n--x--\r\n", Content_Type="multipart/form-data; boundary=x")

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)


@contextmanager
def serving(service: ImageService, **options: Any) -> Iterator[Served]:
    bound = bound_socket("127.0.0.1", 0)
    port = bound.getsockname()[1]
    server = make_server(create_app(service, **options))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[bound])))
    thread.start()
    try:
        yield Served(port, service)
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()
