"""A hook of MkDocs: links from the documentation to other files of the repository work on the site as well.

A page may link to `../../benchmarks/RESULTS.md`, which is how one links in a repository. MkDocs reads docs/ alone.
This hook adds every file that a page links to, below `repository/`, and points the links there; pages that are added
in this way may link to further ones.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ADDED = "repository"
# The target of a Markdown link or image, without its anchor.
_TARGET = re.compile(r"(?<=\]\()[^)\s#]+")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the files outside of docs/ that pages link to."""
    pages = list(files.documentation_pages())
    while pages:
        page = pages.pop()
        for target in _TARGET.findall(Path(str(page.abs_src_path)).read_text(encoding="utf-8")):
            path = _linked(page, target, config)
            if path is None or files.get_file_from_path(_address(path, config)) is not None:
                continue
            added = File.generated(config, _address(path, config), abs_src_path=str(path))
            files.append(added)
            if added.is_documentation_page():
                pages.append(added)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Points links to where the files are on the site."""

    def address(match: re.Match[str]) -> str:
        path = _linked(page.file, match[0], config)
        return (
            match[0]
            if path is None
            else posixpath.relpath(_address(path, config), posixpath.dirname(page.file.src_uri))
        )

    return _TARGET.sub(address, markdown)


def _linked(page: File, target: str, config: MkDocsConfig) -> Path | None:
    """The file of the repository that a link names."""
    path = (Path(str(page.abs_src_path)).parent / target).resolve()
    return path if path.is_file() and path.is_relative_to(_root(config)) else None


def _address(path: Path, config: MkDocsConfig) -> str:
    """Where the site has a file, as MkDocs calls it."""
    documents = Path(config.docs_dir).resolve()
    if path.is_relative_to(documents):
        return path.relative_to(documents).as_posix()
    return f"{ADDED}/{path.relative_to(_root(config)).as_posix()}"


def _root(config: MkDocsConfig) -> Path:
    return Path(config.config_file_path).resolve().parent
