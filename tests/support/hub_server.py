"""A small double of the Hub over HTTP: repositories, commits of small files, and their download.

Tokens are `hf_NAME` of their owner. https://huggingface.co/docs/hub/api
"""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_REPOSITORY = r"/api/(?P<kind>models|datasets|spaces)/(?P<id>[^/]+/[^/]+)"


@dataclass
class Repository:
    """A repository with the files of its newest commit."""

    private: bool
    oid: str = "0" * 40
    files: dict[str, bytes] = field(default_factory=dict)


class Hub:
    """A running double: its repositories by kind (`models`, `spaces`) and name, and what it was asked."""

    def __init__(self) -> None:
        self.repositories: dict[tuple[str, str], Repository] = {}
        self.requests: list[str] = []
        self.refused_cards = ""  # the error of every card, if it is not empty
        self.endpoint = ""

    def environment(self, home: Path) -> dict[str, str]:
        """Variables of a process that takes this server for the Hub, with its cache in a folder."""
        found = {"HF_ENDPOINT": self.endpoint, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1"}
        return found | {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_OFFLINE": "0"}

    def answer(self, method: str, path: str, user: str, body: bytes) -> tuple[int, Any, dict[str, str]]:
        """The status, the content and the headers of an answer."""
        self.requests.append(f"{method} {path}")
        if path == "/api/whoami-v2":
            return 200, {"name": user, "type": "user", "orgs": []}, {}
        if path == "/api/validate-yaml":
            errors = [{"message": self.refused_cards}] if self.refused_cards else []
            return (400 if errors else 200), {"errors": errors, "warnings": []}, {}
        if path == "/api/repos/create":
            return self._create(json.loads(body), user)
        if match := re.fullmatch(_REPOSITORY + r"/(?P<what>preupload|commit)/main", path):
            return self._write(match, user, body)
        if match := re.fullmatch(_REPOSITORY + r"(?:/revision/\w+)?(?P<tree>/tree/\w+)?(?P<below>/.+)?", path):
            return self._facts(match)
        if match := re.fullmatch(r"/(?:(?P<kind>spaces)/)?(?P<id>[^/]+/[^/]+)/resolve/\w+/(?P<file>.+)", path):
            found = self.repositories.get((match["kind"] or "models", match["id"]))
            return self._file(found, match["file"])
        return 404, {"error": path}, {"X-Error-Code": "RepoNotFound"}

    def _create(self, asked: dict[str, Any], user: str) -> tuple[int, Any, dict[str, str]]:
        kind, name = f"{asked.get('type') or 'model'}s", asked["name"]
        id = f"{asked.get('organization') or user}/{name}"
        if not user:
            return 401, {"error": "Invalid username or password."}, {}
        if not id.startswith(f"{user}/"):
            return 403, {"error": "You do not have the rights"}, {}
        is_new = (kind, id) not in self.repositories
        self.repositories.setdefault((kind, id), Repository(asked.get("visibility") == "private"))
        return (200 if is_new else 409), {"url": f"{self.endpoint}/{id}", "name": id}, {}

    def _write(self, match: re.Match[str], user: str, body: bytes) -> tuple[int, Any, dict[str, str]]:
        found = self.repositories[match["kind"], match["id"]]
        if match["what"] == "preupload":
            modes = []
            for file in json.loads(body)["files"]:
                own = found.files.get(file["path"])
                known = {} if own is None else {"oid": _git_digest(own)}
                modes.append({"path": file["path"], "uploadMode": "regular", "shouldIgnore": False} | known)
            return 200, {"files": modes}, {}
        lines = [json.loads(line) for line in body.splitlines()]
        if lines[0]["value"].get("parentCommit") not in (None, found.oid):
            return 412, {"error": "A commit has happened since."}, {}
        for line in lines[1:]:
            path = line["value"]["path"]
            if line["key"] == "file":
                found.files[path] = base64.b64decode(line["value"]["content"])
            elif line["key"] == "deletedFile":
                del found.files[path]
        found.oid = hashlib.sha1(body + found.oid.encode()).hexdigest()
        prefix = "" if match["kind"] == "models" else f"{match['kind']}/"
        address = f"{self.endpoint}/{prefix}{match['id']}/commit/{found.oid}"
        return 200, {"success": True, "commitOid": found.oid, "commitUrl": address}, {}

    def _facts(self, match: re.Match[str]) -> tuple[int, Any, dict[str, str]]:
        found = self.repositories.get((match["kind"], match["id"]))
        if found is None:
            return 404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"}
        if match["tree"] and match["below"]:
            return 404, {"error": "Entry not found"}, {"X-Error-Code": "EntryNotFound"}
        if match["tree"]:
            entries = [
                {"type": "file", "path": path, "size": len(content), "oid": _git_digest(content)}
                for path, content in found.files.items()
            ]
            return 200, entries, {}
        names = [{"rfilename": path} for path in sorted(found.files)]
        facts = {"id": match["id"], "modelId": match["id"], "sha": found.oid, "siblings": names, "tags": []}
        return 200, facts | {"private": found.private, "gated": False, "disabled": False}, {}

    def _file(self, found: Repository | None, path: str) -> tuple[int, Any, dict[str, str]]:
        if found is None:
            return 404, b"", {"X-Error-Code": "RepoNotFound"}
        if path not in found.files:
            return 404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": found.oid}
        return 200, found.files[path], {"X-Repo-Commit": found.oid, "ETag": f'"{_git_digest(found.files[path])}"'}


def _git_digest(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@contextmanager
def running_hub() -> Iterator[Hub]:
    """A double of the Hub that answers on a free port."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            user = self.headers.get("Authorization", "").removeprefix("Bearer ").removeprefix("hf_")
            status, content, headers = hub.answer(self.command, self.path.partition("?")[0], user, body)
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            for name, value in (headers | {"Content-Length": str(len(data))}).items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        do_GET = do_HEAD = do_POST = _answer

        def log_message(self, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
