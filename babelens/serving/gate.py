"""What every request passes before the application sees it: its Host, its token, the size of its body and the time
that the body takes. Every response gets the headers that keep the page closed to other sites.
"""

import asyncio
import hashlib
import hmac
import json
import re
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any, NoReturn

from ..configuration.errors import BabelensError
from ..processing.images import MAX_PIXELS
from .binding import LOOPBACK, is_loopback

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

COOKIE = "babelens-"  # how the names of all our cookies begin
# What the login page needs, and what a monitor asks.
_PUBLIC = ("/health", "/login", "/static/")
# A name, an IPv4 address, or an IPv6 address in brackets; then a port, and nothing else.
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(:[0-9]{1,5})?")
UPLOAD_PATH = "/api/search-by-image"
# Beside the file, a form has its boundaries and the headers of its parts.
_FORM_BYTES = 64 << 10

_HEADERS = {
    "content-security-policy": "default-src 'self'; img-src 'self' blob:; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


@dataclass(frozen=True)
class ServingLimits:
    """What one request may cost the server. A request above a limit is refused with a sentence that names the limit.

    Args:
        query_characters: length of the longest query.
        upload_bytes: size of the largest image file that is searched with.
        upload_pixels: its largest number of pixels, which is checked before it is decoded.
        uploads: uploaded images that are in memory at a time; further ones wait.
        top: the largest number of results.
        batch_size: texts or images that are encoded at a time.
        batch_seconds: how long the first query waits for others that are encoded in the same batch.
        waiting: queries that may wait to be encoded; further ones are refused with status 503.
        thumbnail_pixels: the longer side of a thumbnail.
        thumbnail_bytes: memory for thumbnails that were made.
        header_seconds: time for the client to send the headers of a request.
        body_seconds: time for the client to send the body of a request.
        stalled_seconds: time for which the client may leave a response unread before the connection is closed.
        connections: open connections; requests on further ones are refused with status 503.
    """

    query_characters: int = 500
    upload_bytes: int = 20 << 20
    upload_pixels: int = MAX_PIXELS
    uploads: int = 4
    top: int = 200
    batch_size: int = 64
    batch_seconds: float = 0.004
    waiting: int = 512
    thumbnail_pixels: int = 320
    thumbnail_bytes: int = 64 << 20
    header_seconds: float = 10.0
    body_seconds: float = 30.0
    stalled_seconds: float = 30.0
    connections: int = 900


class RefusedError(BabelensError):
    """A request that is answered with a status and a sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


class Gate:
    """Lets requests through to an application, or refuses them.

    On loopback, the Host header must name this machine: otherwise a page of another site could reach the server
    through a name that it controls (DNS rebinding). What browsers ask on behalf of a page of another site, or of
    another port of this machine, is refused too, unless a person followed a link: the page could not read the answer,
    but keep the server at work.

    Args:
        application: the application.
        host: the host that the server is bound to.
        token: what a request needs; None when it needs none.
        login_page: what a browser without a token is shown.
        limits: the size and the time of a body.
    """

    def __init__(
        self, application: Application, *, host: str, token: str | None, login_page: bytes, limits: ServingLimits
    ) -> None:
        self._application, self._login_page, self._limits = application, login_page, limits
        self._hosts = {*LOOPBACK, host.lower()} if is_loopback(host) else None
        self._token = token

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        if scope["method"] == "HEAD":  # the answer to GET, whose body the server leaves out
            scope = {**scope, "method": "GET"}
        headers: dict[bytes, bytes] = dict(scope["headers"])
        body = _Body(headers, receive, self._limits, is_upload=scope["path"].startswith(UPLOAD_PATH))
        own = _with_headers(send, body)
        try:
            self._check_host(headers)
            _check_site(scope["method"], headers)
            if self._may_pass(scope["path"], headers):
                body.check_length()
                await self._application(scope, body.receive, own)
            else:
                await self._ask_for_token(scope["path"], own)
        except RefusedError as refused:
            body.refused = refused
        if body.refused and not body.is_answered:
            status, sentence = body.refused.status, body.refused.sentence
            await _answer(own, status, {"error": sentence})

    def _check_host(self, headers: dict[bytes, bytes]) -> None:
        if self._hosts is None:
            return
        match = _HOST.fullmatch(headers.get(b"host", b"").decode("latin-1").strip().lower())
        if match is None or match[1].strip("[]") not in self._hosts:
            raise RefusedError(421, "this server answers to localhost and 127.0.0.1 alone: name it so")

    def _may_pass(self, path: str, headers: dict[bytes, bytes]) -> bool:
        if not self._token or path.startswith(_PUBLIC):
            return True
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() == b"bearer" and is_token(given.strip(), self._token):
            return True
        own = "=".join(cookie_of(self._token))
        return any(is_token(cookie, own) for cookie in _cookies(headers))

    async def _ask_for_token(self, path: str, send: Send) -> None:
        asking = [(b"www-authenticate", b"Bearer"), (b"cache-control", b"no-store")]
        if path == "/":
            await _answer(send, 401, self._login_page, asking)
            return
        sentence = "this server needs its token, in a header `Authorization: Bearer TOKEN`"
        await _answer(send, 401, {"error": sentence}, asking)


def _check_site(method: str, headers: dict[bytes, bytes]) -> None:
    """Refuses what a browser says that a page of another site or port asks; other programs say nothing about it."""
    is_link = method == "GET" and headers.get(b"sec-fetch-dest") == b"document"
    if headers.get(b"sec-fetch-site", b"none") not in (b"same-origin", b"none") and not is_link:
        raise RefusedError(403, "this server does not answer to pages of other sites")


class _Body:
    """The body of a request, which is refused when it is too large, or does not come in time.

    The application may turn the error that it is given then into an answer of its own: `refused` is answered instead.

    Args:
        headers: the headers of the request.
        receive: reads the body.
        limits: its largest size, and its time, which begins when the application first reads it: an upload waits
            until others are done.
        is_upload: whether it may hold a file.
    """

    def __init__(
        self, headers: dict[bytes, bytes], receive: Receive, limits: ServingLimits, *, is_upload: bool
    ) -> None:
        self._receive, self._limits = receive, limits
        self._length = headers.get(b"content-length", b"0")
        self._most = _FORM_BYTES + (limits.upload_bytes if is_upload else 0)
        self._too_large = (
            f"the file is too large: {limits.upload_bytes >> 20} MiB are allowed"
            if is_upload
            else f"the body of the request is too large: {_FORM_BYTES >> 10} KiB are allowed"
        )
        self._deadline: float | None = None
        self._read = 0
        # Whether nothing of it is left to be read.
        self.is_whole = self._length == b"0" and b"transfer-encoding" not in headers
        self.is_answered = False
        self.refused: RefusedError | None = None

    def check_length(self) -> None:
        """Refuses a body that is announced as too large."""
        if not self._length.isdigit() or int(self._length[:20]) > self._most:
            self._refuse(413, self._too_large)

    async def receive(self) -> Message:
        """The next part of the body, and afterwards the news that the client is gone."""
        if self.is_whole:
            return await self._receive()
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().time() + self._limits.body_seconds
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            self._refuse(408, "the body of the request did not come in time")
        self._read += len(message.get("body", b""))
        self.is_whole = message["type"] == "http.request" and not message.get("more_body", False)
        if self._read > self._most:
            self._refuse(413, self._too_large)
        return message

    def _refuse(self, status: int, sentence: str) -> NoReturn:
        self.refused = RefusedError(status, sentence)
        raise self.refused


def _with_headers(send: Send, body: _Body) -> Send:
    """Sends an answer with the headers of security; it ends the connection when the body has not been read.

    What the application answers to a refused body is not sent.
    """
    is_from_application = False

    async def own(message: Message) -> None:
        nonlocal is_from_application
        if message["type"] == "http.response.start":
            is_from_application = body.refused is not None and message["status"] != body.refused.status
            if is_from_application:
                return
            body.is_answered = True
            given = {name.lower() for name, _ in message.get("headers", ())}
            added = [(name.encode(), value.encode()) for name, value in _HEADERS.items() if name.encode() not in given]
            if not body.is_whole:
                added.append((b"connection", b"close"))
            message["headers"] = [*message.get("headers", ()), *added]
        if not is_from_application:
            await send(message)

    return own


def is_token(given: bytes, token: str) -> bool:
    """Whether this is the token; the time does not depend on how much of it is right."""
    return hmac.compare_digest(*(hashlib.sha256(each).digest() for each in (given, token.encode())))


def _cookies(headers: dict[bytes, bytes]) -> Iterator[bytes]:
    """The cookies of this server and others of babelens, each as name=value. Programs at other ports of the host have
    theirs in the same header, and some of them are not written as the standard says."""
    for cookie in headers.get(b"cookie", b"").split(b";"):
        if cookie.strip().startswith(COOKIE.encode()):
            yield cookie.strip()


def cookie_of(token: str) -> tuple[str, str]:
    """The name and the value of the cookie of a browser that has been given the token, which cannot be read from them.

    A cookie belongs to a host, whatever the port: with one name for all, two servers would overwrite each other's.
    """
    name, value = (hmac.new(token.encode(), use, hashlib.sha256).hexdigest() for use in (b"name", b"babelens cookie"))
    return f"{COOKIE}{name[:12]}", value


async def _answer(
    send: Send, status: int, content: dict[str, Any] | bytes, headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    kind = b"text/html; charset=utf-8" if isinstance(content, bytes) else b"application/json"
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    fixed = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*fixed, *(headers or [])]})
    await send({"type": "http.response.body", "body": body})
