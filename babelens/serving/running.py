"""How `babelens search` finds a server that runs with the same model on the same folder, and asks it.

A server writes a file with its address and a secret, which only its user can read. Who finds the file asks the server
at that address for its identity, by the secret: another program that has taken the port cannot give it. Nothing here
imports torch, so that the answer of a server is there at once.
"""

import hashlib
import json
import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from ..configuration.cache import cache_folder
from ..configuration.files import atomic_file

logger = logging.getLogger(__name__)

_SECONDS = 10


def record_path(model: str, folder: Path) -> Path:
    """Where a server with this model on this folder is written down, in the cache of `datasets`."""
    names = "\0".join((os.path.realpath(model), os.path.realpath(folder)))
    return cache_folder() / "servers" / f"{hashlib.blake2b(os.fsencode(names), digest_size=12).hexdigest()}.json"


def identity_of(model: str, folder: Path, fingerprint: str, secret: str) -> dict[str, Any]:
    """What a server is known by: its model's folder and fingerprint, its images' folder, and a secret."""
    return {
        "model": os.path.realpath(model),
        "folder": os.path.realpath(folder),
        "fingerprint": fingerprint,
        "secret": secret,
    }


@contextmanager
def written_down(identity: dict[str, Any], host: str, port: int) -> Iterator[None]:
    """Within the block, other programs of the same user find the server; afterwards no more.

    Where the cache cannot be written, nobody finds it, which a warning says.
    """
    path = record_path(identity["model"], Path(identity["folder"]))
    record = identity | {"host": {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), "port": port}
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with atomic_file(path) as unfinished:
            unfinished.touch(mode=0o600)
            unfinished.write_text(json.dumps(record), encoding="utf-8")
    except OSError as error:
        logger.warning("`babelens search` will not find this server: %s", error)
    try:
        yield
    finally:
        with suppress(OSError, ValueError):  # a later server may have taken its place
            if json.loads(path.read_text("utf-8"))["secret"] == identity["secret"]:
                path.unlink()


class RunningServer:
    """A server of this user that searches a folder with a model; made by `find_server`.

    Attributes:
        address: its address.
        skipped: the images that it could not read, by their path in the folder, each with the reason.
        images: the number of its images.
    """

    def __init__(self, record: dict[str, Any]) -> None:
        self._record = record
        host = record["host"]
        self.address = f"http://{f'[{host}]' if ':' in host else host}:{record['port']}"
        self.skipped: dict[str, str] = {}
        self.images = 0

    def search(self, query: str, language: str, top: int) -> list[dict[str, Any]] | None:
        """The `top` images for a query, as `/api/search` answers them; None when it does not answer."""
        answer = self._get("/api/search", q=query, language=language, top=top)
        return None if answer is None else answer["results"]

    def is_same(self) -> bool:
        """Whether it is the server that was written down, and its images and model are as they are on disk now."""
        answer = self._get("/api/identity")
        if answer is None or not answer.get("is_current"):
            return False
        if any(answer.get(name) != self._record[name] for name in ("model", "folder", "fingerprint")):
            return False
        self.skipped, self.images = answer["skipped"], answer["images"]
        return True

    def _get(self, path: str, **parameters: Any) -> dict[str, Any] | None:
        """The JSON that it answers; None for anything but a mapping with status 200."""
        connection = HTTPConnection(self._record["host"], self._record["port"], timeout=_SECONDS)
        try:
            asked = f"{path}?{urlencode(parameters)}"
            connection.request("GET", asked, headers={"Authorization": f"Bearer {self._record['secret']}"})
            answer = connection.getresponse()
            content = json.loads(answer.read()) if answer.status == 200 else None
            return content if isinstance(content, dict) else None
        except (OSError, HTTPException, ValueError):
            return None
        finally:
            connection.close()


def find_server(model: str, folder: Path) -> RunningServer | None:
    """The running server of this user that searches a folder with a model, if there is one.

    It must have the images and the model as they are on disk now. A model on the Hub is not looked for, as there may
    be a newer version of it.
    """
    if not Path(model).is_dir():
        return None
    try:
        path = record_path(model, folder)
        facts = path.stat()
        # On Windows, the user's own folders are closed to others.
        if hasattr(os, "getuid") and (facts.st_uid != os.getuid() or stat.S_IMODE(facts.st_mode) & 0o077):
            return None  # another user could have written it
        server = RunningServer(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return server if server.is_same() else None
