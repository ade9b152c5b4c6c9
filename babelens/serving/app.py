"""The application: the page, the JSON API that it asks, and the images.

Everything that the page and the description of the API need is in `static/`; no request leaves the machine.
"""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.resources import files
from typing import Annotated, Any, BinaryIO

import numpy as np

from ..configuration.errors import BabelensError, ImageError, MissingExtraError, ServerBusyError
from ..configuration.languages import normalize_language
from ..processing.text_inputs import UNDETERMINED, default_language
from .gate import UPLOAD_PATH, Application, Gate, cookie_of, is_token
from .image_files import content_type, version_of
from .service import ImageService

try:
    import python_multipart as python_multipart  # FastAPI imports it when it reads a form
    from fastapi import FastAPI, Form, HTTPException, Query, Request
    from fastapi.exceptions import RequestValidationError
    from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
    from pydantic import BaseModel, Field
    from pydantic.json_schema import SkipJsonSchema
    from starlette.datastructures import UploadFile
    from starlette.exceptions import HTTPException as AnyHTTPException
except ModuleNotFoundError as error:
    raise MissingExtraError(
        "FastAPI is not installed, by which images are served: pip install fastapi python-multipart uvicorn"
    ) from error

_TYPES = {".css": "text/css", ".html": "text/html", ".js": "text/javascript", ".svg": "image/svg+xml"}
_NO_SUCH_IMAGE = "there is no image of this id"
_CHUNK = 1 << 18
# A response with the content of others, such as an image file, may do nothing.
_INERT = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox"}
_NOT_KEPT = {"cache-control": "no-store"}
_FILE = {
    "type": "string",
    "contentMediaType": "application/octet-stream",
    "description": "An image file: JPEG, PNG, WebP, AVIF, GIF, BMP or TIFF.",
}
_FORM = {"type": "object", "required": ["file"], "properties": {"file": _FILE}}
_UPLOAD = {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": _FORM}}}}


class Refusal(BaseModel):
    """Why there is no answer."""

    error: str = Field(description="A sentence that says what is wrong.")


class Listed(BaseModel):
    """An image of the folder."""

    id: str = Field(description="The id of the image.")
    file: str = Field(description="Its path in the folder.")
    image: str = Field(description="The address of the image file, relative to the address of the server.")
    thumbnail: str = Field(description="The address of a small WebP image.")


class Listing(BaseModel):
    """Images of the folder to look at, in an order that stays the same."""

    results: list[Listed]


class Result(Listed):
    """An image that was found."""

    score: float = Field(description="The cosine of its embedding and that of the query, at most 1.")
    copies: int = Field(description="The number of other files of the folder with the same content.")


class Results(BaseModel):
    """The images that fit a query best, best first."""

    results: list[Result]


class TextResults(Results):
    """The images that fit a text best, best first."""

    query: str
    language: str | None = Field(
        description="The language in which the query was read, as a BCP-47 tag in its canonical spelling."
    )


class Info(BaseModel):
    """What is searched, and with what."""

    model: str = Field(description="The name of the model.")
    fingerprint: str = Field(description="A digest of its weights and settings.")
    images: int = Field(description="The number of images.")
    skipped: int = Field(description="The number of images that could not be read.")
    title: str | None = Field(description="The title of the page, where it has one of its own.")
    languages: list[str] = Field(
        description="The languages that are offered: those of the model, where they are known."
    )
    default_language: str | None = Field(description="The language of queries that state none, where one is set.")
    takes_any_language: bool = Field(description="Whether it takes queries in other languages too.")
    needs_language: bool = Field(description="Whether its embeddings depend on the language that a query states.")
    query_characters: int = Field(description="The length of the longest query.")
    upload_bytes: int = Field(description="The size of the largest image file to search with.")
    top: int = Field(description="The largest number of results.")


def create_app(
    service: ImageService,
    *,
    host: str = "127.0.0.1",
    token: str | None = None,
) -> Application:
    """The ASGI application of a folder of images.

    Args:
        service: what is searched.
        host: the host that the server is bound to. On loopback, requests must name it in their Host header.
        token: what requests need as `Authorization: Bearer TOKEN`; a browser is asked for it once. Without it, every
            request is answered.

    Raises:
        MissingExtraError: without FastAPI.
    """
    static = _static_files()
    app = FastAPI(
        title="babelens",
        description="Search of a folder of images by texts in many languages, and by images.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses={"4XX": {"model": Refusal, "description": "A request that cannot be answered"}},
    )
    _add_pages(app, static, token)
    _add_searches(app, service)
    _add_images(app, service)
    app.add_exception_handler(BabelensError, _refused)
    app.add_exception_handler(RequestValidationError, _not_valid)
    app.add_exception_handler(AnyHTTPException, _no_answer)
    return Gate(app, host=host, token=token, login_page=static["login.html"], limits=service.limits)


def _static_files() -> dict[str, bytes]:
    """The files of the page by name, read once: a request cannot name any other file."""
    folder = files(__package__).joinpath("static")
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


def _add_pages(app: Any, static: dict[str, bytes], token: str | None) -> None:
    """The page, the description of the API, their files, and the login."""

    @app.get("/", include_in_schema=False)
    async def page() -> HTMLResponse:
        return HTMLResponse(static["page.html"], headers=_NOT_KEPT)

    @app.get("/static/{name}", include_in_schema=False)
    async def static_file(name: str) -> Response:
        if name not in static:
            raise HTTPException(404, "there is no such file")
        kind = _TYPES[name[name.rindex(".") :]]
        return Response(static[name], media_type=kind, headers={"cache-control": "no-cache"})

    @app.get("/health", summary="Whether the server answers")
    async def health() -> dict[str, str]:
        """Needs no token."""
        return {"status": "ok"}

    @app.get("/login", include_in_schema=False)
    async def after_login() -> Response:
        return RedirectResponse("./", 303)  # the address of the page after a wrong token, when it is opened again

    @app.post("/login", include_in_schema=False)
    async def login(request: Request, given: Annotated[str, Form(alias="token")] = "") -> Response:
        if not token or not is_token(given.encode(), token):
            wrong = static["login.html"].replace(b"hidden", b"", 1)
            return HTMLResponse(wrong, 401, headers=_NOT_KEPT)
        answer = RedirectResponse("./", 303)
        secure = request.url.scheme == "https"
        name, value = cookie_of(token)
        answer.set_cookie(name, value, httponly=True, samesite="strict", secure=secure)
        return answer


def _add_searches(app: Any, service: ImageService) -> None:
    """What is found by a text, by an image, and by an image of the folder."""
    limits = service.limits
    decoding = ThreadPoolExecutor(2, "decode")
    uploads = asyncio.Semaphore(limits.uploads)  # a file of few bytes can be an image of many megabytes
    Top = Annotated[int, Query(ge=1, le=limits.top, description="The number of results.")]

    def found(images: list[Any]) -> list[Result]:
        return [
            Result(**vars(image), image=f"images/{image.id}", thumbnail=f"thumbnails/{image.id}") for image in images
        ]

    async def nearest(embedding: np.ndarray, top: int) -> list[Result]:
        return found(await asyncio.to_thread(service.found, embedding, top))

    @app.get("/api/info", summary="What is searched", response_model=Info)
    async def info() -> Info:
        return Info(
            model=service.model.rstrip("/").rpartition("/")[2],
            fingerprint=service.fingerprint,
            images=len(service),
            skipped=len(service.index.skipped),
            title=service.title,
            languages=service.offered,
            default_language=service.default_language,
            takes_any_language=service.takes_any_language and not service.limited,
            needs_language=service.needs_language,
            query_characters=limits.query_characters,
            upload_bytes=limits.upload_bytes,
            top=limits.top,
        )

    @app.get("/api/search", summary="Search by a text", response_model=TextResults)
    async def search(
        q: Annotated[str, Query(max_length=limits.query_characters, description="A description of the images.")],
        language: Annotated[
            str | SkipJsonSchema[None],
            Query(
                max_length=64,
                description="Its language, as a BCP-47 tag such as `de`; without it, the default language of the "
                "server, or the model's native one, or the model must be one for which it does not matter.",
            ),
        ] = None,
        top: Top = 24,
    ) -> TextResults:
        """The language is never guessed; a model that has learned certain languages refuses others by name."""
        if not q.strip():
            raise HTTPException(400, "q: the description is empty: every image would fit it as well")
        stated = language or service.default_language
        tag = normalize_language(stated) if stated else default_language(service.embedder.processor)
        results = await nearest(await service.text_embedding(q, tag), top)
        return TextResults(query=q, language=tag if stated or tag != UNDETERMINED else None, results=results)

    @app.post(UPLOAD_PATH, summary="Search by an image", response_model=Results, openapi_extra=_UPLOAD)
    async def search_by_image(
        request: Request,
        top: Top = 24,
    ) -> Results:
        """The image is not kept."""
        # As a parameter, the file would be received before this function is called, however many others wait.
        async with uploads:
            data = await _file_of(request)
            if len(data) > limits.upload_bytes:
                raise HTTPException(413, f"the file is too large: {limits.upload_bytes >> 20} MiB are allowed")
            image = await _in_thread(decoding, service.opened_upload, data)
            embedding = await service.image_embedding(image)
        return Results(results=await nearest(embedding, top))

    @app.get("/api/images", summary="Images to look at", response_model=Listing)
    async def images(top: Top = 24) -> Listing:
        return Listing(
            results=[
                Listed(id=id, file=file, image=f"images/{id}", thumbnail=f"thumbnails/{id}")
                for id, file in service.listed(top)
            ]
        )

    @app.get("/api/similar/{id}", summary="Images that resemble one of the folder", response_model=Results)
    async def similar(id: str, top: Top = 24) -> Results:
        try:
            return Results(results=found(await asyncio.to_thread(service.similar, id, top)))
        except KeyError as error:
            raise HTTPException(404, _NO_SUCH_IMAGE) from error


def _add_images(app: Any, service: ImageService) -> None:
    """The image files and their thumbnails, by id."""
    decoding = ThreadPoolExecutor(2, "thumbnail")

    @app.get("/images/{id}", summary="An image file", response_class=Response)
    async def image(id: str, request: Request) -> Response:
        try:
            file = await asyncio.to_thread(service.open, id)
        except (KeyError, OSError) as error:
            raise HTTPException(404, _NO_SUCH_IMAGE) from error
        headers = _INERT | {"etag": version_of(file), "cache-control": "private, no-cache"}
        if _is_known(request, headers["etag"]):
            file.close()
            return Response(status_code=304, headers=headers)
        length = file.seek(0, 2)
        headers["content-length"] = str(length)
        file.seek(0)
        return StreamingResponse(_chunks(file, length), media_type=content_type(service.path(id)), headers=headers)

    @app.get("/thumbnails/{id}", summary="A small WebP image", response_class=Response)
    async def thumbnail(id: str, request: Request) -> Response:
        try:
            data, version = await _in_thread(decoding, service.thumbnail, id)
        except (KeyError, OSError, ImageError) as error:
            raise HTTPException(404, _NO_SUCH_IMAGE) from error
        headers = _INERT | {"etag": version, "cache-control": "private, no-cache"}
        if _is_known(request, version):
            return Response(status_code=304, headers=headers)
        return Response(data, media_type="image/webp", headers=headers)


async def _file_of(request: Request) -> bytes:
    """The bytes of the file of a form."""
    try:
        async with request.form(max_files=1) as form:
            file = form.get("file")
            if isinstance(file, UploadFile):
                return await file.read()
    except (AnyHTTPException, BabelensError):
        raise
    except Exception as error:  # what the parser of forms raises, and a client that is gone
        raise HTTPException(400, "the form cannot be read") from error
    raise HTTPException(400, "file: an image file is required, in a form")


async def _in_thread(executor: ThreadPoolExecutor, function: Any, *arguments: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(executor, partial(function, *arguments))


def _is_known(request: Request, version: str) -> bool:
    """Whether the client, or a proxy before it, has this version already. A proxy that compresses answers marks their
    versions as weak (`W/"…"`)."""
    known = [each.strip() for each in request.headers.get("if-none-match", "").split(",")]
    return known == ["*"] or version in (each.removeprefix("W/") for each in known)


def _chunks(file: BinaryIO, length: int) -> Iterator[bytes]:
    """The first bytes of a file, which may grow meanwhile."""
    with file:
        while length and (chunk := file.read(min(_CHUNK, length))):
            length -= len(chunk)
            yield chunk


def _error(request: Request, status: int, sentence: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": sentence}, status, headers=headers or _NOT_KEPT)


async def _refused(request: Request, error: Exception) -> JSONResponse:
    """An error that the caller can mend, as a sentence."""
    if isinstance(error, ServerBusyError):
        return _error(request, 503, str(error), {"retry-after": "1"})
    return _error(request, 400, str(error))


async def _not_valid(request: Request, error: Exception) -> JSONResponse:
    """What FastAPI finds wrong with the parameters; what was sent is not sent back."""
    problems: list[dict[str, Any]] = getattr(error, "errors", list)()
    return _error(request, 400, "; ".join(f"{problem['loc'][-1]}: {problem['msg']}" for problem in problems))


async def _no_answer(request: Request, error: Exception) -> JSONResponse:
    """Statuses of HTTP, such as 404 for an unknown address, with a sentence."""
    status, detail = getattr(error, "status_code", 500), getattr(error, "detail", "")
    return _error(request, status, detail, _NOT_KEPT | (getattr(error, "headers", None) or {}))
