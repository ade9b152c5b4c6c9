"""The application: the page, the JSON API that it asks, and the images. No request leaves the machine."""

import asyncio
import hashlib
import hmac
from base64 import b64decode
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import PIL.Image
import python_multipart as python_multipart  # FastAPI imports it when it reads a form
import uvicorn
from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

from ..utils.errors import BabelensError, ImageError
from .binding import is_loopback
from .service import LARGE, THUMBNAIL, ImageService

Message = MutableMapping[str, Any]
Application = Callable[[Message, Any, Any], Awaitable[None]]

QUERY_CHARACTERS = 500
UPLOAD_BYTES = 20 << 20
TOP = 200
_UPLOADS = 4  # files that are received at a time; others wait
_FORM_BYTES = 64 << 10  # of a form, without its file
_STATIC = Path(__file__).parent / "static"
_HEADERS = {
    b"content-security-policy": b"default-src 'self'; img-src 'self' blob:; object-src 'none'; base-uri 'none'; "
    b"form-action 'self'; frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
}
# A response with the content of others, such as an image file, may do nothing.
_INERT = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
    "cache-control": "private, max-age=600",
}
_Top = Annotated[int, Query(ge=1, le=TOP)]


def create_app(service: ImageService, *, host: str = "127.0.0.1", token: str | None = None) -> FastAPI:
    """The ASGI application of a folder of images, for a server that is bound to `host`. Requests need the `token` as
    `Authorization: Bearer TOKEN`; a browser asks for it as a password."""
    app = FastAPI(title="babelens", docs_url=None, redoc_url=None, redirect_slashes=False)
    _add_searches(app, service)
    _add_files(app, service)
    app.add_exception_handler(BabelensError, lambda _, error: _refusal(400, str(error)))
    app.add_exception_handler(RequestValidationError, _not_valid)
    app.add_exception_handler(AnyHTTPException, lambda _, e: _refusal(e.status_code, e.detail, e.headers))
    app.add_middleware(Guard, token=token)
    if is_loopback(host):  # or a page of another site could reach it through a name that it controls (DNS rebinding)
        names = ["localhost", "127.0.0.1", "[::1]", f"[{host}]" if ":" in host else host]
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=names, www_redirect=False)
    return app


def make_server(app: FastAPI) -> uvicorn.Server:
    """A server; `run(sockets=[…])` serves until SIGINT or SIGTERM."""
    quiet: dict[str, Any] = {"log_config": None, "log_level": "warning", "access_log": False, "server_header": False}
    bare: dict[str, Any] = {"ws": "none", "lifespan": "off", "proxy_headers": False}
    return uvicorn.Server(uvicorn.Config(app, limit_concurrency=500, timeout_graceful_shutdown=5, **quiet, **bare))


def _add_searches(app: FastAPI, service: ImageService) -> None:
    uploads = asyncio.Semaphore(_UPLOADS)

    @app.get("/api/info")
    async def info() -> dict[str, Any]:
        return {
            "model": service.model.rstrip("/").rpartition("/")[2],
            "images": len(service),
            "skipped": len(service.index.skipped),
            "languages": service.languages,
            "language": service.language,
            "takes_any_language": service.takes_any_language,
            "needs_language": service.needs_language,
            "query_characters": QUERY_CHARACTERS,
            "upload_bytes": UPLOAD_BYTES,
            "top": TOP,
        }

    @app.get("/api/search")
    def search(
        q: Annotated[str, Query(max_length=QUERY_CHARACTERS)],
        language: Annotated[str | None, Query(max_length=64)] = None,
        top: _Top = 24,
    ) -> dict[str, Any]:
        """Reads a text without a language in the server's language, or else in the model's own."""
        if not q.strip():
            raise HTTPException(400, "q: the query is empty")
        found, read_as = service.by_text(q, language, top)
        return {"query": q, "language": read_as, "results": found}

    @app.post("/api/search-by-image")
    async def search_by_image(request: Request, top: _Top = 24) -> dict[str, Any]:
        """A form with a `file`, which is not kept."""
        async with uploads:  # as a parameter, the file would be received before this function is called
            data = await _file_of(request)
            return {"results": await run_in_threadpool(service.by_image, data, top)}

    @app.get("/api/images")
    def images(top: _Top = 24) -> dict[str, Any]:
        return {"results": service.listed(top)}

    @app.get("/api/similar/{image_id}")
    def similar(image_id: str, top: _Top = 24) -> dict[str, Any]:
        with _existing():
            return {"results": service.similar(image_id, top)}


def _add_files(app: FastAPI, service: ImageService) -> None:
    app.mount("/static", StaticFiles(directory=_STATIC))

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return FileResponse(_STATIC / "page.html", headers={"cache-control": "no-store"})

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/images/{image_id}")
    def image(image_id: str) -> Response:
        with _existing():
            path = service.path(image_id)
            kind = PIL.Image.MIME.get(PIL.Image.registered_extensions().get(path.suffix.lower(), ""))
            return FileResponse(path, media_type=kind or "application/octet-stream", headers=_INERT)

    @app.get("/thumbnails/{image_id}")
    def thumbnail(image_id: str, size: Literal["small", "large"] = "small") -> Response:
        with _existing():
            data = service.thumbnail(image_id, THUMBNAIL if size == "small" else LARGE)
            return Response(data, media_type="image/webp", headers=_INERT)


@contextmanager
def _existing() -> Iterator[None]:
    """Turns the errors of an image that is unknown or gone into status 404."""
    try:
        yield
    except KeyError as error:
        raise HTTPException(404, "there is no image of this id") from error
    except (OSError, ImageError) as error:
        raise HTTPException(404, "this image is gone, or cannot be read any more") from error


async def _file_of(request: Request) -> bytes:
    try:
        async with request.form(max_files=1) as form:
            if isinstance(file := form.get("file"), UploadFile):
                if len(data := await file.read()) > UPLOAD_BYTES:
                    raise _too_large()
                return data
    except AnyHTTPException:
        raise
    except Exception as error:  # errors of the form parser, and a client that is gone
        raise HTTPException(400, "the form cannot be read") from error
    raise HTTPException(400, "file: an image file is required, in a form")


class Guard:
    """Refuses other sites' pages, requests without the token and large bodies; adds headers against other sites."""

    def __init__(self, app: Application, token: str | None) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        headers = dict(scope["headers"])
        read = 0

        async def bounded() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > UPLOAD_BYTES + _FORM_BYTES:
                raise _too_large()
            return message

        async def own(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = [*message.get("headers", ())]
                given += [each for each in _HEADERS.items() if each[0] not in {name for name, _ in given}]
                message["headers"] = given
            await send(message)

        if (refusal := self._refusal(scope, headers)) is not None:
            return await refusal(scope, receive, own)
        # HEAD is answered as GET, whose body the server leaves out.
        scope = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
        return await self._app(scope, bounded, own)

    def _refusal(self, scope: Message, headers: dict[bytes, bytes]) -> Response | None:
        """Refuses a request from a page of another site or port, as browsers state it, unless it follows a link."""
        is_link = scope["method"] == "GET" and headers.get(b"sec-fetch-dest") == b"document"
        if headers.get(b"sec-fetch-site", b"none") not in (b"same-origin", b"none") and not is_link:
            return _refusal(403, "this server does not answer to pages of other sites")
        if self._token and scope["path"] != "/health" and not _has_token(headers, self._token):
            asking = {"www-authenticate": 'Basic realm="babelens: the token is the password"'}
            return _refusal(401, "this server needs its token: Authorization: Bearer TOKEN", asking)
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length[:20]) > UPLOAD_BYTES + _FORM_BYTES:
            return _refusal(413, _too_large().detail, {"connection": "close"})
        return None


def _has_token(headers: dict[bytes, bytes], token: str) -> bool:
    """Checks the token, given as a bearer or a password, in constant time."""
    scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
    given = given.strip()
    if scheme.lower() == b"basic":
        try:
            given = b64decode(given, validate=True).partition(b":")[2]
        except ValueError:
            return False
    elif scheme.lower() != b"bearer":
        return False
    return hmac.compare_digest(*(hashlib.sha256(each).digest() for each in (given, token.encode())))


def _too_large() -> HTTPException:
    return HTTPException(413, f"the file is too large: {UPLOAD_BYTES >> 20} MiB are allowed", {"connection": "close"})


def _refusal(status: int, sentence: str, headers: Any = None) -> JSONResponse:
    return JSONResponse({"error": sentence}, status, headers={"cache-control": "no-store"} | dict(headers or {}))


def _not_valid(request: Request, error: Any) -> JSONResponse:
    """Answers with the errors in the parameters, without repeating their values."""
    return _refusal(400, "; ".join(f"{problem['loc'][-1]}: {problem['msg']}" for problem in error.errors()))
