"""What a test double of the Hub keeps: repositories with their commits, branches and tags, and large files by digest.

It refuses what the Hub refuses: paths that leave the repository, large files that were not uploaded, binary content
in the place of text, and metadata that the Hub cannot read.
"""

import base64
import binascii
import hashlib
import json
import re
import threading
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import yaml
from huggingface_hub.errors import HFValidationError
from huggingface_hub.repocard import REGEX_YAML_BLOCK
from huggingface_hub.repocard_data import model_index_to_eval_results
from huggingface_hub.utils import validate_repo_id

LFS_SUFFIXES = (".safetensors", ".bin", ".parquet", ".npy", ".zip")
LFS_FROM = 10 * 2**20  # bytes
GIT_ATTRIBUTES = "".join(f"*{suffix} filter=lfs diff=lfs merge=lfs -text\n" for suffix in LFS_SUFFIXES).encode()
_COLORS = {"red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"}
_SDKS = {"gradio", "docker", "static", "streamlit"}


class Refusal(Exception):
    """An answer of the Hub that is an error, with the code in `X-Error-Code` by which clients tell errors apart."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.code = status, message, code


@dataclass(frozen=True)
class File:
    """A file of a commit: its git object, and the digest of a large file, of which git has a pointer only."""

    oid: str
    size: int
    sha256: str | None = None

    @property
    def etag(self) -> str:
        return self.sha256 or self.oid

    def entry(self, path: str) -> dict[str, Any]:
        """As the Hub lists it."""
        large = {"oid": self.sha256, "size": self.size, "pointerSize": 128}
        return {"type": "file", "path": path, "oid": self.oid, "size": self.size} | (
            {"lfs": large} if self.sha256 else {}
        )


@dataclass(frozen=True)
class Commit:
    oid: str
    message: str
    files: dict[str, File]


@dataclass
class Repository:
    """A model, a dataset or a Space; `branches` and `tags` name commits."""

    id: str
    kind: str
    private: bool
    commits: dict[str, Commit] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)

    def at(self, revision: str) -> Commit:
        """The commit of a branch, a tag or a digest."""
        oid = self.branches.get(revision) or self.tags.get(revision) or revision
        if oid not in self.commits:
            raise Refusal(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return self.commits[oid]

    def add_commit(self, branch: str, message: str, files: dict[str, File]) -> Commit:
        parent = self.branches.get(branch, "")
        listing = json.dumps([parent, message, len(self.commits), sorted((p, f.oid) for p, f in files.items())])
        commit = Commit(hashlib.sha1(listing.encode()).hexdigest(), message, files)
        self.commits[commit.oid] = commit
        self.branches[branch] = commit.oid
        return commit


class Store:
    """All repositories, and the contents of files by digest; `users` has the user of each token that may write."""

    def __init__(self) -> None:
        self.users = {"hf_ada": "ada", "hf_bo": "bo"}
        self.read_only = {"hf_ada_reads": "ada"}
        self.repositories: dict[tuple[str, str], Repository] = {}
        self.large: dict[str, bytes] = {}  # by SHA-256
        self.small: dict[str, bytes] = {}  # by git's digest
        self.lock = threading.RLock()

    # ---- Who may do what ----

    def user(self, token: str | None, *, writes: bool = False) -> str | None:
        if token is None:
            return None
        if token in self.users:
            return self.users[token]
        if token not in self.read_only:
            raise Refusal(401, "Invalid credentials in Authorization header")
        if writes:
            raise Refusal(403, "This token has no write access")
        return self.read_only[token]

    def readable(self, kind: str, id: str, token: str | None) -> Repository:
        """A repository that a token may read; one that it may not read is not there."""
        found, user = self.repositories.get((kind, id)), self.user(token)
        if found is None or (found.private and user != id.partition("/")[0]):
            raise Refusal(401 if user is None else 404, "Repository not found", "RepoNotFound")
        return found

    def writable(self, kind: str, id: str, token: str | None) -> Repository:
        found, user = self.readable(kind, id, token), self.user(token, writes=True)
        if user is None:
            raise Refusal(401, "Invalid username or password.")
        if user != id.partition("/")[0]:
            raise Refusal(403, "You don't have the rights to write to this repository")
        return found

    def create(self, settings: dict[str, Any], token: str | None) -> tuple[Repository, bool]:
        """A repository, and whether it is a new one."""
        user = self.user(token, writes=True)
        if user is None:
            raise Refusal(401, "Invalid username or password.")
        owner, kind = settings.get("organization") or user, settings.get("type", "model")
        if owner != user:
            raise Refusal(403, f"You don't have the rights to create a {kind} under the namespace {owner!r}")
        if kind == "space" and settings.get("sdk") not in _SDKS:
            raise Refusal(400, "Invalid sdk")
        id = f"{owner}/{settings['name']}"
        try:
            validate_repo_id(id)
        except HFValidationError as error:
            raise Refusal(400, str(error)) from error
        if (kind, id) in self.repositories:
            return self.repositories[kind, id], False
        repository = Repository(id, kind, settings.get("visibility") == "private")
        repository.add_commit("main", "initial commit", {".gitattributes": self.keep(GIT_ATTRIBUTES)})
        self.repositories[kind, id] = repository
        return repository, True

    # ---- Contents ----

    def keep(self, content: bytes) -> File:
        oid = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        self.small[oid] = content
        return File(oid, len(content))

    def keep_large(self, sha256: str, size: int) -> File:
        pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode()
        return File(self.keep(pointer).oid, size, sha256)

    def upload(self, sha256: str, content: bytes) -> None:
        """Keeps a large file whose digest is the one that was promised."""
        if hashlib.sha256(content).hexdigest() != sha256:
            raise Refusal(400, f"The content does not have the SHA-256 {sha256}")
        self.large[sha256] = content

    def content(self, file: File) -> bytes:
        return self.large[file.sha256] if file.sha256 else self.small[file.oid]

    # ---- Commits ----

    def commit(self, repository: Repository, branch: str, lines: list[dict[str, Any]]) -> Commit:
        if branch not in repository.branches:
            raise Refusal(404, f"Invalid rev id: {branch}", "RevisionNotFound")
        if not lines or lines[0]["key"] != "header":
            raise Refusal(400, "The first line of a commit is its header")
        head = repository.branches[branch]
        if lines[0]["value"].get("parentCommit", head) != head:
            raise Refusal(412, "A commit has happened since. Please refresh and try again.")
        files = dict(repository.commits[head].files)
        for line in lines[1:]:
            self._apply(repository, files, line["key"], line["value"])
        return repository.add_commit(branch, lines[0]["value"]["summary"], files)

    def _apply(self, repository: Repository, files: dict[str, File], key: str, value: dict[str, Any]) -> None:
        path = checked_path(value["path"])
        if key == "file":
            try:
                content = base64.b64decode(value["content"], validate=True)
            except binascii.Error as error:
                raise Refusal(400, f"{path} is not in base64") from error
            if is_large(path, len(content), content):
                raise Refusal(400, f"Your push was rejected because it contains binary files: {path}")
            if path == "README.md":
                check_card(content.decode(), repository.kind)
            files[path] = self.keep(content)
        elif key == "lfsFile":
            if len(self.large.get(value["oid"], b"")) != value["size"] or value["algo"] != "sha256":
                raise Refusal(400, f"{path}: the large file {value['oid']} was not uploaded")
            files[path] = self.keep_large(value["oid"], value["size"])
        elif key == "deletedFile":
            if path not in files:
                raise Refusal(404, "A file with this name doesn't exist", "EntryNotFound")
            del files[path]
        else:
            raise Refusal(400, f"unknown operation {key}")


def checked_path(path: str) -> str:
    parts = PurePosixPath(path).parts
    if not path or path.startswith("/") or "\\" in path or {"..", ".git"} & set(parts) or "/".join(parts) != path:
        raise Refusal(400, f"Invalid path in repository: {path!r}")
    return path


def is_large(path: str, size: int, sample: bytes) -> bool:
    """Whether git has a pointer only: of files with such names, of large ones, and of those that are no text."""
    return size > 0 and (path.endswith(LFS_SUFFIXES) or size > LFS_FROM or b"\0" in sample[:512])


# ---- The metadata of cards ----


def check_card(text: str, kind: str) -> list[str]:
    """The warnings about a card.

    Raises:
        Refusal: for metadata that the Hub refuses.
    """
    match = REGEX_YAML_BLOCK.search(text)
    if match is None:
        return ["empty or missing yaml metadata in repo card"]
    try:
        _refuse_twice(yaml.compose(match.group(2), yaml.SafeLoader))
        metadata = yaml.safe_load(match.group(2))
    except yaml.YAMLError as error:
        raise Refusal(400, f"Invalid YAML: {error}") from error
    if not isinstance(metadata, dict):
        raise Refusal(400, "The metadata are no mapping")
    problems = list(_space_problems(metadata) if kind == "space" else _problems(metadata))
    if problems:
        raise Refusal(400, "; ".join(problems))
    return []


def _refuse_twice(node: Any) -> None:
    if isinstance(node, yaml.MappingNode):
        keys = [key.value for key, _ in node.value]
        if twice := [key for key in keys if keys.count(key) > 1]:
            raise yaml.YAMLError(f"duplicated mapping key {twice[0]}")
    for each in node.value if isinstance(node, yaml.CollectionNode) else ():
        _refuse_twice(each[1] if isinstance(each, tuple) else each)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _problems(metadata: dict[str, Any]) -> Any:
    for language in _listed(metadata.get("language")):
        if not re.fullmatch(r"[a-z]{2,3}|code|multilingual", str(language)):
            yield f'"language" must only contain lowercase characters, not {language!r}'
    if "license" in metadata and not re.fullmatch(r"[a-z0-9.+-]+", str(metadata["license"])):
        yield '"license" must be one of the identifiers of the Hub'
    for key in ("pipeline_tag", "library_name"):
        if not isinstance(metadata.get(key, ""), str):
            yield f'"{key}" must be a string'
    for key in ("base_model", "datasets"):
        for name in _listed(metadata.get(key)):
            try:
                validate_repo_id(name)
            except HFValidationError:
                yield f'"{key}" with value {name!r} is not valid. Use a repo id'
    if "model-index" in metadata:
        try:
            model_index_to_eval_results(metadata["model-index"])
        except (KeyError, TypeError, ValueError) as error:
            yield f'"model-index" is not valid: {error!r}'


def _space_problems(metadata: dict[str, Any]) -> Any:
    for key in ("colorFrom", "colorTo"):
        if metadata.get(key, "red") not in _COLORS:
            yield f'"{key}" must be one of {sorted(_COLORS)}'
    if metadata.get("sdk") not in _SDKS:
        yield f'"sdk" must be one of {sorted(_SDKS)}'
    if len(metadata.get("short_description", "")) > 60:
        yield '"short_description" length must be less than or equal to 60 characters long'
    if metadata.get("sdk") == "gradio" and not re.fullmatch(r"\d+\.\d+\.\d+", str(metadata.get("sdk_version"))):
        yield '"sdk_version" is no version'
