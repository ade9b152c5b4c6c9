"""Building and opening indexes, by the names of their engines."""

from importlib import import_module
from pathlib import Path
from typing import Literal

from ..configuration.errors import SearchIndexError
from .index_folder import read_manifest
from .lance_index import is_remote
from .sources import VectorSource
from .vector_index import DEFAULT_PARAMETERS, IndexParameters, VectorIndex

EngineName = Literal["exact", "hnsw", "ivf-pq", "lance"]

_CLASSES = {
    "exact": ("exact", "ExactIndex"),
    "hnsw": ("faiss_index", "HnswIndex"),
    "ivf-pq": ("faiss_index", "IvfPqIndex"),
    "lance": ("lance_index", "LanceIndex"),
}


def engine_class(engine: str) -> type[VectorIndex]:
    """The class of an engine.

    Raises:
        SearchIndexError: for an unknown engine.
    """
    if engine not in _CLASSES:
        raise SearchIndexError(f"there is no engine {engine!r}; there are {', '.join(_CLASSES)}")
    module, name = _CLASSES[engine]
    return getattr(import_module(f".{module}", __package__), name)


def build_index(
    address: str | Path,
    source: VectorSource,
    engine: EngineName = "exact",
    parameters: IndexParameters = DEFAULT_PARAMETERS,
) -> VectorIndex:
    """Makes an index; arguments and errors are those of `VectorIndex.build`.

    Examples:
        >>> index = build_index("photos.index", embeddings_source(Path("photos-embedded")), "hnsw")
    """
    if is_remote(address) and engine != "lance":
        raise SearchIndexError(f"the engine {engine} takes a folder, and {address} is an address: choose `lance`")
    return engine_class(engine).build(address, source, parameters)


def open_index(address: str | Path) -> VectorIndex:
    """Opens the index in a folder, or at an address that LanceDB takes.

    Raises:
        SearchIndexError: when there is none, or a damaged one.
        MissingExtraError: without the library of its engine.
    """
    engine = "lance" if is_remote(address) else read_manifest(Path(address)).engine
    return engine_class(engine).open(address)
