"""Runs the application on a port until it is stopped by SIGINT or SIGTERM.

uvicorn serves it. Its connections are closed when a client does not send the headers of a request, or does not read a
response, in time; the time of bodies is measured by `gate`.
"""

import asyncio
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn

from ..configuration.errors import MissingExtraError
from .app import create_app
from .gate import Application, ServingLimits
from .service import ImageService

try:
    import h11
    from uvicorn import Config, Server
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ModuleNotFoundError as error:
    raise MissingExtraError(
        "uvicorn is not installed, by which images are served: pip install fastapi python-multipart uvicorn"
    ) from error


def serve(
    service: ImageService,
    bound: socket.socket,
    *,
    host: str,
    token: str | None,
    on_start: Callable[[str], None],
) -> None:
    """Serves a folder of images until the process is told to stop by SIGINT or SIGTERM.

    Args:
        service: what is searched.
        bound: the socket, as `binding.bound_socket` returns it.
        host: the host that it is bound to.
        token: as in `create_app`.
        on_start: is called with the address when requests are answered.
    """
    port = bound.getsockname()[1]
    app = create_app(service, host=host, token=token)
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
    # uvicorn handles both signals, and raises them again when it has ended.
    before = {number: signal.signal(number, _stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with suppress(_Stopped):
            asyncio.run(make_server(app, service.limits, lambda: on_start(address)).serve(sockets=[bound]))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def make_server(app: Application, limits: ServingLimits, announce: Callable[[], None]) -> Server:
    """A server of uvicorn for an application.

    Args:
        app: the application, as `create_app` makes it.
        limits: the times after which connections are closed, and how many there may be.
        announce: is called when requests are answered.
    """
    config = Config(
        app,
        http=_protocol(limits),
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=limits.connections,
        timeout_graceful_shutdown=5,
    )
    return _AnnouncedServer(config, announce)


class _Stopped(BaseException):
    """A signal asked the server to stop."""


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    raise _Stopped


class _AnnouncedServer(Server):
    """A server that calls a function when it answers requests."""

    def __init__(self, config: Any, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._announce()


def _protocol(limits: ServingLimits) -> type:
    """uvicorn's protocol of HTTP/1.1, which closes connections of clients that take too long."""

    class TimedProtocol(H11Protocol):
        """Closes a connection whose client does not send headers, or does not read, in time."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self._of_headers: asyncio.TimerHandle | None = None
            self._of_reading: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._time_headers()

        def connection_lost(self, exc: Exception | None) -> None:
            for timer in (self._of_headers, self._of_reading):
                if timer:
                    timer.cancel()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._time_headers()

        def timeout_keep_alive_handler(self) -> None:
            super().timeout_keep_alive_handler()
            self._time_reading()  # closing waits until what was sent is read

        def pause_writing(self) -> None:
            super().pause_writing()
            self._time_reading()

        def resume_writing(self) -> None:
            super().resume_writing()
            if self._of_reading and not self.transport.is_closing():
                self._of_reading.cancel()
                self._of_reading = None

        def _time_headers(self) -> None:
            """Starts the time of headers where they are awaited, and ends it where they are there."""
            if self.conn.their_state is not h11.IDLE:
                if self._of_headers:
                    self._of_headers.cancel()
                    self._of_headers = None
            elif self._of_headers is None:
                self._of_headers = self.loop.call_later(limits.header_seconds, self.transport.abort)

        def _time_reading(self) -> None:
            if self._of_reading is None:
                self._of_reading = self.loop.call_later(limits.stalled_seconds, self.transport.abort)

    return TimedProtocol
