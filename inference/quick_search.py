"""Searching a folder again without loading the model: for the command line, where loading takes most of the time.

A search of a folder leaves two things in the cache: the embeddings of its images (`image_store`) and, where the extra
`babelens[onnx]` is installed, the text tower of the model as an ONNX graph. A later search needs nothing else: it
reads the query and computes its embedding by tokenizers and onnxruntime, in a fraction of the second that `import
torch` takes. Whatever has changed since, in the model's folder or among the images, is left to a full search.
"""

import hashlib
import json
import logging
import os
import shutil
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..configuration.cache import cache_folder
from ..configuration.errors import BabelensError, ModelFolderError, SaveError
from ..configuration.files import atomic_file
from .exact_scan import best_first
from .file_states import FileStates, model_states
from .image_store import ImageStore, image_cache, image_keys

if TYPE_CHECKING:
    from .embedder import Embedder

logger = logging.getLogger(__name__)

_TOWERS = "query_texts"
_FACTS = "model.json"
_FORMAT = 1


def quick_search(
    model: str, folder: Path, query: str, language: str, top: int
) -> tuple[list[tuple[Path, float]], int] | None:
    """The `top` images of a folder for a query with their scores, best first, and the number of images searched.

    Args:
        model: the folder of the model.
        folder: the folder of images.
        query, language: the text, and its BCP-47 tag.
        top: how many images to find.

    Returns:
        None when a full search is needed: the first one of this folder or model, after a change, with an image that
        could not be read, or for a query that the model refuses, so that the full search gives the reason.
    """
    from .onnx.query_texts import QueryTexts

    tower = _tower_of(model)
    try:
        facts = json.loads((tower / _FACTS).read_text("utf-8"))
        if facts != _facts(model_states(model), facts["fingerprint"], facts["draft"]):
            return None
        keys = image_keys(folder)
        known = ImageStore(image_cache(), facts["fingerprint"], folder, facts["draft"]).load()
        if not keys or not known.keys() >= set(keys.values()):
            return None
        try:
            texts = QueryTexts.from_folder(tower)
        except ModelFolderError:  # it is damaged: the full search writes it again
            (tower / _FACTS).unlink(missing_ok=True)
            return None
        embedding = texts.encode_text(query, language=language)[0]
    except (BabelensError, OSError, ValueError, KeyError, TypeError):
        return None
    scores = np.array([known[key] for key in keys.values()]) @ embedding
    names = [*keys]
    return [(folder / names[best], float(scores[best])) for best in best_first(scores, top)], len(names)


def remember_model(model: str, embedder: "Embedder", fingerprint: str, states: FileStates) -> bool:
    """Keeps the text tower of a model for later searches.

    Nothing is kept of a model on the Hub or of an adapter, whose files may change elsewhere, of a model that is not in
    float32 on the processor, and without the extra.

    Args:
        model: the folder of the model.
        embedder: the model.
        fingerprint: its fingerprint (`image_fingerprint`).
        states: those of its files before it was loaded (`model_states`). They may have changed since, while the
            images were encoded; a later search then finds other ones, and loads the model.

    Returns:
        Whether the tower is kept now and was not before.
    """
    is_plain = (Path(model) / "config.json").is_file() and not (Path(model) / "adapter_config.json").is_file()
    weights = embedder.model
    if not is_plain or weights.device.type != "cpu" or str(weights.dtype) != "torch.float32":
        return False
    if not all(find_spec(name) for name in ("onnx", "onnxruntime", "onnxscript")):
        return False
    tower, facts = _tower_of(model), _facts(states, fingerprint, embedder.draft)
    with suppress(OSError, ValueError):
        if json.loads((tower / _FACTS).read_text("utf-8")) == facts:
            return False
    from .onnx.export import export_query_texts

    try:
        shutil.rmtree(tower, ignore_errors=True)
        export_query_texts(embedder, tower)
        with atomic_file(tower / _FACTS) as path:
            path.write_text(json.dumps(facts), encoding="utf-8")
    except SaveError as error:
        logger.warning("the next search will load the model again: %s", error)
        return False
    except BabelensError as error:  # of a kind that has no such graph
        logger.info("the next search will load the model again: %s", error)
        return False
    return True


def _tower_of(model: str) -> Path:
    name = hashlib.blake2b(os.fsencode(os.path.realpath(model)), digest_size=12).hexdigest()
    return cache_folder() / _TOWERS / name


def _facts(states: FileStates, fingerprint: str, draft: int | None) -> dict[str, object]:
    """What was exported, in the form in which JSON gives it back."""
    listed = {name: list(state) for name, state in states.items()}
    return {"format": _FORMAT, "fingerprint": fingerprint, "draft": draft, "states": listed}
