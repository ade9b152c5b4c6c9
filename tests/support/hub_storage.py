"""The double's storage of large files: the protocol of git-lfs, at another origin than the API, by signed addresses.

https://github.com/git-lfs/git-lfs/blob/main/docs/api/batch.md
"""

import asyncio
import hashlib
from math import ceil
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from tests.support.hub_store import Refusal, Store

KINDS = {"models": "model", "datasets": "dataset", "spaces": "space"}


class Storage:
    """Large files on their way into a store.

    Args:
        store: where they are kept.
        api, origin: the addresses of the API and of the storage.

    Attributes:
        part_size: files with more bytes than this are uploaded in parts.
    """

    def __init__(self, store: Store, api: str, origin: str) -> None:
        self.store, self.api, self.origin = store, api, origin
        self.part_size = 5 * 2**20
        self._parts: dict[str, dict[int, bytes]] = {}

    def signature(self, text: str) -> str:
        return hashlib.sha256(f"{self.api} signs {text}".encode()).hexdigest()[:16]

    def address(self, oid: str) -> str:
        """Where a file is put and fetched."""
        return f"{self.origin}/storage/{oid}?signature={self.signature(oid)}"

    def actions(self, oid: str, size: int, verify: str) -> dict[str, Any]:
        """Where a client uploads a large file: at once, or in parts; nowhere if it is there already."""
        if len(self.store.large.get(oid, b"")) == size and oid in self.store.large:
            return {"oid": oid, "size": size}
        upload: dict[str, Any] = {"href": self.address(oid)}
        if size > self.part_size:
            parts = {str(n + 1): f"{upload['href']}&part={n + 1}" for n in range(ceil(size / self.part_size))}
            upload = {
                "href": f"{self.api}/complete/{oid}?signature={self.signature(oid)}",
                "header": {"chunk_size": str(self.part_size)} | parts,
            }
        return {"oid": oid, "size": size, "actions": {"upload": upload, "verify": {"href": verify}}}

    def receive(self, oid: str, part: str | None, content: bytes) -> str:
        if part is None:
            self.store.upload(oid, content)
        else:
            self._parts.setdefault(oid, {})[int(part)] = content
        return hashlib.md5(content).hexdigest()

    def complete(self, oid: str, parts: list[dict[str, Any]]) -> None:
        received = self._parts.get(oid, {})
        etags = [f'"{hashlib.md5(received[n]).hexdigest()}"' for n in sorted(received)]
        if [part["etag"] for part in sorted(parts, key=lambda each: each["partNumber"])] != etags:
            raise Refusal(400, "One or more of the specified parts could not be found")
        self.store.upload(oid, b"".join(received[n] for n in sorted(received)))


def bearer(request: Request) -> str | None:
    given = request.headers.get("authorization", "")
    return given.removeprefix("Bearer ") or None


def add_storage(app: FastAPI, storage: Storage) -> None:
    """The protocol of git-lfs, and the other origin where large files lie."""
    store = storage.store

    async def batch(request: Request, kind: str, owner: str, name: str) -> Any:
        store.writable(kind, f"{owner}/{name}", bearer(request))
        asked = await request.json()
        assert asked["operation"] == "upload" and asked["hash_algo"] == "sha256"
        verify = f"{storage.api}/verify/{owner}/{name}"
        objects = [storage.actions(each["oid"], each["size"], verify) for each in asked["objects"]]
        return JSONResponse({"transfer": "basic", "objects": objects}, media_type="application/vnd.git-lfs+json")

    @app.post("/{owner}/{name}.git/info/lfs/objects/batch")
    async def batch_of_model(request: Request, owner: str, name: str) -> Any:
        return await batch(request, "model", owner, name)

    @app.post("/{kind}/{owner}/{name}.git/info/lfs/objects/batch")
    async def batch_of_others(request: Request, kind: str, owner: str, name: str) -> Any:
        return await batch(request, KINDS[kind], owner, name)

    @app.post("/verify/{owner}/{name}")
    async def verify(request: Request, owner: str, name: str) -> Any:
        asked = await request.json()
        if len(store.large.get(asked["oid"], b"")) != asked["size"]:
            raise Refusal(404, f"{asked['oid']} was not uploaded")
        return {}

    def check_signature(request: Request, oid: str) -> None:
        if request.query_params.get("signature") != storage.signature(oid):
            raise Refusal(403, "SignatureDoesNotMatch")

    @app.put("/storage/{oid}")
    async def put(request: Request, oid: str) -> Any:
        check_signature(request, oid)
        if "authorization" in request.headers:
            raise Refusal(400, "Only one auth mechanism allowed")
        etag = storage.receive(oid, request.query_params.get("part"), await request.body())
        return Response(headers={"ETag": f'"{etag}"'})

    @app.post("/complete/{oid}")
    async def complete(request: Request, oid: str) -> Any:
        check_signature(request, oid)
        asked = await request.json()
        if asked["oid"] != oid:
            raise Refusal(400, "The address is of another file")
        storage.complete(oid, asked["parts"])
        return {}

    @app.get("/storage/{oid}")
    async def get(request: Request, oid: str) -> Response:
        check_signature(request, oid)
        if "authorization" in request.headers:
            raise Refusal(400, "Only one auth mechanism allowed")
        return ranged(request, store.large[oid], oid)


def ranged(request: Request, content: bytes, etag: str) -> Response:
    """The answer to a request of a file, or of the rest of it from some byte on."""
    headers = {"ETag": f'"{etag}"', "Accept-Ranges": "bytes"}
    asked = request.headers.get("range")
    if asked is None:
        return Response(content, headers=headers, media_type="application/octet-stream")
    start, _, end = asked.removeprefix("bytes=").partition("-")
    first, last = int(start), min(int(end or len(content)), len(content) - 1)
    if first >= len(content):
        return Response(status_code=416, headers=headers | {"Content-Range": f"bytes */{len(content)}"})
    headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
    return Response(content[first : last + 1], 206, headers, media_type="application/octet-stream")


def broken_off(content: bytes, after: int) -> Response:
    """An answer that ends after some bytes, though it promised all of them."""

    async def parts() -> Any:
        yield content[:after]
        await asyncio.sleep(0)
        raise ConnectionResetError("the connection breaks, as a test asked")

    return StreamingResponse(parts(), headers={"Content-Length": str(len(content))})
