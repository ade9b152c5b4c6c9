"""The Hub in memory: it keeps what `HfApi` creates and commits, which can be loaded from a cache."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from huggingface_hub import CommitInfo, CommitOperationDelete, HfApi, RepoUrl
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import httpx


@dataclass
class Repository:
    private: bool
    sha: str = "0" * 40
    files: dict[str, bytes] = field(default_factory=dict)


class HubDouble(HfApi):
    """A client of an empty Hub, with the token of `user` or none; `repositories` are by kind and name."""

    def __init__(self, user: str = "ada") -> None:
        super().__init__(endpoint="https://hub.example", token=f"hf_{user}")
        self.user = user
        self.repositories: dict[tuple[str, str], Repository] = {}

    def create_repo(self, repo_id: str, *, repo_type: str | None = None, private: bool = False, **_: Any) -> RepoUrl:
        if not self.user or not repo_id.startswith(f"{self.user}/"):
            raise _refused(403 if self.user else 401)
        self.repositories.setdefault((repo_type or "model", repo_id), Repository(private))
        return RepoUrl(self._address(repo_id, repo_type), endpoint=self.endpoint)

    def repo_info(self, repo_id: str, *, repo_type: str | None = None, **_: Any) -> Any:
        return SimpleNamespace(**vars(self.repositories[repo_type or "model", repo_id]))

    def list_repo_files(self, repo_id: str, *, repo_type: str | None = None, **_: Any) -> list[str]:
        return [*self.repositories[repo_type or "model", repo_id].files]

    def create_commit(
        self,
        repo_id: str,
        operations: Iterable[Any],
        *,
        commit_message: str,
        repo_type: str | None = None,
        parent_commit: str | None = None,
        **_: Any,
    ) -> CommitInfo:
        found = self.repositories[repo_type or "model", repo_id]
        if parent_commit not in (None, found.sha):
            raise _refused(412)
        before = dict(found.files)
        for operation in operations:
            if isinstance(operation, CommitOperationDelete):
                del found.files[operation.path_in_repo]
            else:
                with operation.as_file() as file:
                    found.files[operation.path_in_repo] = file.read()
        if found.files != before:  # the Hub makes no empty commits
            found.sha = hashlib.sha1(repr(found.files).encode() + found.sha.encode()).hexdigest()
        address = f"{self._address(repo_id, repo_type)}/commit/{found.sha}"
        return CommitInfo(address, commit_message, "", found.sha, _endpoint=self.endpoint)

    def _validate_yaml(self, **_: Any) -> None:
        """Takes every card, without asking over the network."""

    def _address(self, repo_id: str, repo_type: str | None) -> str:
        return f"{self.endpoint}/{repo_id if repo_type in (None, 'model') else f'{repo_type}s/{repo_id}'}"

    def fill_cache(self, repo_id: str, home: Path) -> dict[str, str]:
        """Writes a model into the cache below `home` as a download does; returns variables that name the cache."""
        found, folder = self.repositories["model", repo_id], home / "hub" / f"models--{repo_id.replace('/', '--')}"
        write_files(folder / "snapshots" / found.sha, found.files)
        write_files(folder / "refs", {"main": found.sha.encode()})
        return {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}


def write_files(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def _refused(status: int) -> HfHubHTTPError:
    request = httpx.Request("POST", "https://hub.example/api")
    return HfHubHTTPError(f"status {status}", response=httpx.Response(status, request=request))
