"""Text-only bases, from which new languages learn: a table of vectors, or a sentence-transformers model."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from .inference.loading import load_sentence_transformer, needs_sentence_transformers
from .utils.errors import CorpusError, first_line

TEXT, VECTOR = "text", "vector"


class VectorTable:
    """Vectors of native texts: a Parquet file with the columns `text` and `vector`. Rows without a text or with a
    missing, zero or non-finite vector are skipped. Vectors are normalized."""

    reads_any = False  # only texts that are in the table

    def __init__(self, file: Path) -> None:
        self.name = file.name
        try:
            table = parquet.read_table(file, columns=[TEXT, VECTOR])
            texts, vectors = table[TEXT].cast(pa.string()).to_pylist(), table[VECTOR].to_pylist()
        except (pa.ArrowException, OSError, KeyError, ValueError) as error:
            told = f"{file} is not a Parquet file with the columns {TEXT!r} and {VECTOR!r}: {first_line(error)}"
            raise CorpusError(told) from error
        given = [(text, vector) for text, vector in zip(texts, vectors, strict=True) if text and vector is not None]
        widths = {len(vector) for _, vector in given}
        if len(widths) != 1:
            raise CorpusError(f"{file}: all vectors must have the same width; found {sorted(widths) or 'none'}")
        values = np.array([vector for _, vector in given], dtype=np.float32)  # None becomes nan
        lengths = np.linalg.norm(values, axis=1)
        usable = np.isfinite(lengths) & (lengths > 0)
        self.left_out = len(texts) - int(usable.sum())
        self._vectors = {
            text: vector / length
            for (text, _), vector, length, good in zip(given, values, lengths, usable, strict=True)
            if good
        }
        self.width = widths.pop()

    def __contains__(self, text: str) -> bool:
        return text in self._vectors

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Returns the vectors [n, d] of texts that are in the table."""
        return np.stack([self._vectors[text] for text in texts])


class SentenceTransformerBase:
    """A text or multimodal model that sentence-transformers loads."""

    reads_any = True

    def __init__(self, source: str, *, trust_remote_code: bool = False) -> None:
        self.model = load_sentence_transformer(source, trust_remote_code=trust_remote_code)
        self.name = Path(source).name if Path(source).is_dir() else source

    @cached_property
    def width(self) -> int:
        return int(self.encode(["a"]).shape[1])

    def __contains__(self, text: str) -> bool:
        return True

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Returns the vectors [n, d] of texts, of unit length."""
        found = self.model.encode(list(texts), normalize_embeddings=True, show_progress_bar=False)
        return np.asarray(found, dtype=np.float32)


TextBase = VectorTable | SentenceTransformerBase


def text_base(base: str, *, trust_remote_code: bool = False) -> TextBase | None:
    """Loads the text base that `base` names; None if it is a dual encoder of transformers or babelens."""
    path, code = Path(base), {"trust_remote_code": trust_remote_code}
    if path.suffix == ".parquet" and path.is_file():
        return VectorTable(path)
    try:
        is_sentences = needs_sentence_transformers(base, **code)
    except OSError:  # no such folder or repository; the loader of dual encoders reports it
        return None
    return SentenceTransformerBase(base, **code) if is_sentences else None
