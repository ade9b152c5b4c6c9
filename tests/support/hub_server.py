"""A test double of the Hub: the part of its protocol that `huggingface_hub` 2.4 speaks, as a real HTTP server.

Large files go to and come from another origin than the API, as on the Hub, by addresses that are signed; a client
that sends its token there is refused. Xet is not spoken: clients set `HF_HUB_DISABLE_XET`.

https://huggingface.co/docs/hub/api and https://github.com/git-lfs/git-lfs/blob/main/docs/api/batch.md
"""

import base64
import hashlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
import yaml
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from huggingface_hub.repocard import REGEX_YAML_BLOCK

from tests.support.hub_storage import KINDS, Storage, add_storage, bearer, ranged
from tests.support.hub_store import Refusal, Repository, Store, check_card, checked_path, is_large


class HubServer:
    """A running double.

    Attributes:
        store: the repositories.
        requests: method and path of all requests so far.
        storage: the large files.
        faults: functions of a request that may return an answer, or raise, in the place of the server.
    """

    def __init__(self, port: int) -> None:
        self.store = Store()
        self.requests: list[str] = []
        self.faults: list[Callable[[Request], Response | None]] = []
        self.endpoint = f"http://127.0.0.1:{port}"
        self.storage = Storage(self.store, self.endpoint, f"http://localhost:{port}")

    def environment(self, home: Any, token: str | None = None) -> dict[str, str]:
        """Variables of a process that takes this server for the Hub, with its cache in a folder."""
        found = {"HF_ENDPOINT": self.endpoint, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1"}
        found |= {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_OFFLINE": "0"}
        return found | ({"HF_TOKEN": token} if token else {})

    def repository(self, id: str, kind: str = "model") -> Repository:
        return self.store.repositories[kind, id]

    def file(self, id: str, path: str, *, kind: str = "model", revision: str = "main") -> bytes:
        """The content of a file of a repository."""
        return self.store.content(self.repository(id, kind).at(revision).files[path])

    def count(self, part: str) -> int:
        """How many requests had this in their method and path."""
        return sum(part in request for request in self.requests)


def application(hub: HubServer) -> FastAPI:
    app = FastAPI()

    @app.exception_handler(Refusal)
    async def refuse(request: Request, refusal: Refusal) -> Response:
        headers = {"X-Error-Message": refusal.message.splitlines()[0]}
        if refusal.code:
            headers["X-Error-Code"] = refusal.code
        return JSONResponse({"error": refusal.message}, refusal.status, headers=headers)

    @app.middleware("http")
    async def watch(request: Request, call_next: Any) -> Response:
        hub.requests.append(f"{request.method} {request.url.path}")
        for fault in hub.faults:
            if (answer := fault(request)) is not None:
                return answer
        return await call_next(request)

    _add_settings(app, hub)
    _add_commits(app, hub)
    add_storage(app, hub.storage)
    _add_files(app, hub)
    return app


def _add_settings(app: FastAPI, hub: HubServer) -> None:
    """Who somebody is, and repositories with their branches and tags."""
    store = hub.store

    @app.get("/api/whoami-v2")
    async def whoami(request: Request) -> Any:
        user = store.user(bearer(request))
        if user is None:
            raise Refusal(401, "Invalid username or password.")
        role = "read" if bearer(request) in store.read_only else "write"
        return {"type": "user", "name": user, "orgs": [], "auth": {"accessToken": {"role": role}}}

    @app.post("/api/validate-yaml")
    async def validate(request: Request) -> Any:
        body = await request.json()
        try:
            warnings = check_card(body["content"], body["repoType"])
        except Refusal as refusal:
            return JSONResponse({"errors": [{"message": refusal.message}], "warnings": []}, 400)
        return {"errors": [], "warnings": [{"message": warning} for warning in warnings]}

    @app.post("/api/repos/create")
    async def create(request: Request) -> Any:
        made, is_new = store.create(await request.json(), bearer(request))
        prefix = "" if made.kind == "model" else f"{made.kind}s/"
        facts = {"url": f"{hub.endpoint}/{prefix}{made.id}", "name": made.id}
        error = {"error": f"You already created this {made.kind} repo: {made.id}"}
        return facts if is_new else JSONResponse(facts | error, 409)

    @app.get("/api/{kind}/{owner}/{name}/refs")
    async def refs(request: Request, kind: str, owner: str, name: str) -> Any:
        found = store.readable(KINDS[kind], f"{owner}/{name}", bearer(request))
        branches = [{"name": n, "ref": f"refs/heads/{n}", "targetCommit": c} for n, c in found.branches.items()]
        tags = [{"name": n, "ref": f"refs/tags/{n}", "targetCommit": c} for n, c in found.tags.items()]
        return {"branches": branches, "tags": tags, "converts": []}

    @app.post("/api/{kind}/{owner}/{name}/branch/{ref}")
    async def add_branch(request: Request, kind: str, owner: str, name: str, ref: str) -> Any:
        found = store.writable(KINDS[kind], f"{owner}/{name}", bearer(request))
        if ref in found.branches:
            raise Refusal(409, f"Reference {ref} already exists")
        body = await request.body()
        found.branches[ref] = found.at((json.loads(body) if body else {}).get("startingPoint", "main")).oid
        return {}

    @app.post("/api/{kind}/{owner}/{name}/tag/{ref}")
    async def add_tag(request: Request, kind: str, owner: str, name: str, ref: str) -> Any:
        found = store.writable(KINDS[kind], f"{owner}/{name}", bearer(request))
        found.tags[(await request.json())["tag"]] = found.at(ref).oid
        return {}


def _upload_modes(repository: Repository, revision: str, asked: dict[str, Any]) -> dict[str, Any]:
    present = repository.at(revision).files
    files = []
    for file in asked["files"]:
        path = checked_path(file["path"])
        large = is_large(path, file["size"], base64.b64decode(file["sample"]))
        answer = {"path": path, "uploadMode": "lfs" if large else "regular", "shouldIgnore": False}
        files.append(answer | ({"oid": present[path].etag} if path in present else {}))
    return {"files": files}


def _add_commits(app: FastAPI, hub: HubServer) -> None:
    """Commits, and what a client asks before it makes one."""
    store = hub.store

    @app.post("/api/{kind}/{owner}/{name}/preupload/{revision}")
    async def preupload(request: Request, kind: str, owner: str, name: str, revision: str) -> Any:
        found = store.writable(KINDS[kind], f"{owner}/{name}", bearer(request))
        return _upload_modes(found, revision, await request.json())

    @app.post("/api/{kind}/{owner}/{name}/commit/{branch}")
    async def commit(request: Request, kind: str, owner: str, name: str, branch: str) -> Any:
        found = store.writable(KINDS[kind], f"{owner}/{name}", bearer(request))
        if request.headers["content-type"] != "application/x-ndjson":
            raise Refusal(400, "A commit is sent as application/x-ndjson")
        lines = [json.loads(line) for line in (await request.body()).splitlines()]
        with store.lock:
            made = store.commit(found, branch, lines)
        prefix = "" if found.kind == "model" else f"{kind}/"
        return {
            "success": True,
            "commitOid": made.oid,
            "commitUrl": f"{hub.endpoint}/{prefix}{found.id}/commit/{made.oid}",
        }

    @app.post("/api/{kind}/{owner}/{name}/paths-info/{revision}")
    async def paths_info(request: Request, kind: str, owner: str, name: str, revision: str) -> Any:
        files = store.readable(KINDS[kind], f"{owner}/{name}", bearer(request)).at(revision).files
        asked = (await request.form()).getlist("paths")
        return [entry for entry in _entries(files, recursive=True) if entry["path"] in asked]


def _entries(files: dict[str, Any], *, under: str = "", recursive: bool) -> list[dict[str, Any]]:
    """The files and folders of a commit, below one of its folders."""
    below = {path: file for path, file in files.items() if path.startswith(under)}
    found: dict[str, dict[str, Any]] = {}
    for path, file in below.items():
        steps = path[len(under) :].split("/")
        for depth in range(1, len(steps) if recursive else min(2, len(steps))):
            folder = under + "/".join(steps[:depth])
            found[folder] = {
                "type": "directory",
                "path": folder,
                "oid": hashlib.sha1(folder.encode()).hexdigest(),
                "size": 0,
            }
        if recursive or len(steps) == 1:
            found[path] = file.entry(path)
    return list(found.values())


def _add_files(app: FastAPI, hub: HubServer) -> None:
    """What a repository holds: facts about it, its files, and their contents."""
    store = hub.store

    def info(request: Request, kind: str, id: str, revision: str) -> Any:
        found = store.readable(KINDS[kind], id, bearer(request))
        commit = found.at(revision)
        card = (
            REGEX_YAML_BLOCK.search(store.content(commit.files["README.md"]).decode())
            if "README.md" in commit.files
            else None
        )
        metadata = (yaml.safe_load(card.group(2)) if card else None) or {}
        facts = {
            "_id": id,
            "id": id,
            "modelId": id,
            "sha": commit.oid,
            "private": found.private,
            "gated": False,
            "disabled": False,
        }
        facts |= {
            "siblings": [{"rfilename": path} for path in sorted(commit.files)],
            "tags": metadata.get("tags") or [],
        }
        return (
            facts
            | {key: metadata[key] for key in ("pipeline_tag", "library_name") if key in metadata}
            | {"cardData": metadata}
        )

    @app.get("/api/{kind}/{owner}/{name}")
    async def newest(request: Request, kind: str, owner: str, name: str) -> Any:
        return info(request, kind, f"{owner}/{name}", "main")

    @app.get("/api/{kind}/{owner}/{name}/revision/{revision}")
    async def at_revision(request: Request, kind: str, owner: str, name: str, revision: str) -> Any:
        return info(request, kind, f"{owner}/{name}", revision)

    @app.get("/api/{kind}/{owner}/{name}/tree/{revision}")
    @app.get("/api/{kind}/{owner}/{name}/tree/{revision}/{path:path}")
    async def tree(request: Request, kind: str, owner: str, name: str, revision: str, path: str = "") -> Any:
        files = store.readable(KINDS[kind], f"{owner}/{name}", bearer(request)).at(revision).files
        recursive = request.query_params.get("recursive", "false").lower() in ("true", "1")
        entries = _entries(files, under=f"{path}/" if path else "", recursive=recursive)
        if path and not entries:
            raise Refusal(404, f"{path} does not exist on {revision!r}", "EntryNotFound")
        return entries

    def resolve(request: Request, kind: str, id: str, revision: str, path: str) -> Response:
        commit = store.readable(kind, id, bearer(request)).at(revision)
        if path not in commit.files:
            headers = {
                "X-Error-Code": "EntryNotFound",
                "X-Error-Message": "Entry not found",
                "X-Repo-Commit": commit.oid,
            }
            return PlainTextResponse("Entry not found", 404, headers=headers)
        file = commit.files[path]
        headers = {"X-Repo-Commit": commit.oid, "Accept-Ranges": "bytes"}
        if file.sha256 is None:
            answer = ranged(request, store.content(file), file.etag)
            answer.headers.update(headers)
            return answer
        headers |= {"X-Linked-Size": str(file.size), "X-Linked-Etag": f'"{file.etag}"'}
        place = hub.storage.address(file.sha256)
        return RedirectResponse(place, 302, headers=headers)

    @app.api_route("/{owner}/{name}/resolve/{revision}/{path:path}", methods=["GET", "HEAD"])
    async def of_model(request: Request, owner: str, name: str, revision: str, path: str) -> Response:
        return resolve(request, "model", f"{owner}/{name}", revision, path)

    @app.api_route("/{kind}/{owner}/{name}/resolve/{revision}/{path:path}", methods=["GET", "HEAD"])
    async def of_others(request: Request, kind: str, owner: str, name: str, revision: str, path: str) -> Response:
        return resolve(request, KINDS[kind], f"{owner}/{name}", revision, path)


@contextmanager
def running_hub() -> Iterator[HubServer]:
    """A double of the Hub that answers on a free port."""
    listener = socket.create_server(("127.0.0.1", 0))
    hub = HubServer(listener.getsockname()[1])
    config = uvicorn.Config(application(hub), log_level="critical", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield hub
    finally:
        server.should_exit = True
        thread.join(10)
        listener.close()
