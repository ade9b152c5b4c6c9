"""Encodes texts with an exported folder, by numpy, tokenizers and onnxruntime alone.

torch and transformers take seconds to import; this module needs neither, so that a query is answered in well under a
second. It reads texts exactly as the model's processor does: whoever writes a folder has compared both on texts in
many scripts (`text_reading`). Where the reading cannot be expressed by a `tokenizer.json`, the folder says so, and
`QueryTexts` refuses it; `Embedder.from_pretrained(folder, backend="onnx")` takes every folder.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from tokenizers import Tokenizer

from ...configuration.errors import ModelFolderError, ModelKindError, NonFiniteError
from ...configuration.languages import language_for_each, language_id
from ...processing.text_inputs import as_texts, counting_cut_texts, note_cut_texts
from .graph_folder import (
    GRAPH_FOLDER,
    SETTINGS_FILE,
    TOWERS,
    GraphSettings,
    TextReading,
    TokenizerSettings,
    graph_file,
    open_graph,
)

_BATCH = 64
_LEAST_NORM = 1e-12  # as torch.nn.functional.normalize has it


class TextReader:
    """Turns texts into the inputs of a text tower.

    Args:
        folder: the exported folder, which holds the tokenizers.
        reading: how texts are read.
        names: the inputs of the text tower.

    Raises:
        ModelFolderError: if a tokenizer is missing or damaged.
    """

    def __init__(self, folder: Path, reading: TextReading, names: Sequence[str]) -> None:
        self.reading, self.names = reading, list(names)
        self._tokenizers = [_tokenizer(folder, each) for each in reading.tokenizers]

    def __call__(self, texts: list[str], languages: list[str]) -> dict[str, np.ndarray]:
        """Returns the inputs of texts.

        Args:
            texts: the texts.
            languages: the canonical tag of each.

        Raises:
            UnknownLanguageError: if the model has not learned a language.
        """
        ids = [self._language_id(language) for language in languages]
        several = len(self._tokenizers) > 1
        of_row = [min(index, 1) if several else 0 for index in ids]
        rows: list[list[int]] = [[]] * len(texts)
        segments: list[list[int]] = [[]] * len(texts)
        for which, (tokenizer, settings) in enumerate(zip(self._tokenizers, self.reading.tokenizers, strict=True)):
            mine = [row for row, own in enumerate(of_row) if own == which]
            found = tokenizer.encode_batch([settings.prompt + texts[row] for row in mine]) if mine else []
            for row, encoding in zip(mine, found, strict=True):
                if encoding.overflowing:
                    note_cut_texts([texts[row]], f"{settings.max_length} tokens")
                filler = [settings.padding_id] * ((settings.padded_length or 0) - len(encoding.ids))
                rows[row], segments[row] = encoding.ids + filler, encoding.type_ids + [0] * len(filler)
        made = {
            "input_ids": self._padded(rows, [self.reading.tokenizers[own].padding_id for own in of_row]),
            "token_type_ids": self._padded(segments, [0] * len(texts)),
            "attention_mask": self._padded([[1] * len(row) for row in rows], [0] * len(texts)),
            "language_ids": np.asarray(ids, dtype=np.int64),
        }
        return {name: made[name] for name in self.names}

    def _language_id(self, language: str) -> int:
        if self.reading.native_language is not None:
            return int(language != self.reading.native_language)
        return language_id(language, list(self.reading.languages)) if self.reading.languages else 0

    def _padded(self, rows: list[list[int]], padding: list[int]) -> np.ndarray:
        """Pads rows to one length, each with its own padding. -> [N, T]"""
        length = self.reading.padded_length or max(map(len, rows))
        padded = np.empty((len(rows), length), dtype=np.int64)
        for index, (row, filler) in enumerate(zip(rows, padding, strict=True)):
            padded[index] = filler
            begin = length - len(row) if self.reading.padding_side == "left" else 0
            padded[index, begin : begin + len(row)] = row
        return padded


class QueryTexts:
    """Encodes texts with the text tower of an exported folder, as `Embedder.encode_text` does.

    Args:
        reader: reads the texts.
        session: the text tower, opened by onnxruntime.
        settings: what the folder states.

    Examples:
        >>> queries = QueryTexts.from_folder("clip-de-onnx")
        >>> queries.encode_text("ein rotes Auto", language="de")  # [1, 512]
    """

    def __init__(self, reader: TextReader, session: Any, settings: GraphSettings) -> None:
        self.reader, self.settings = reader, settings
        self._session = session

    @classmethod
    def from_folder(cls, folder: str | Path, *, precision: str | None = None) -> Self:
        """Opens an exported folder, or a model's folder with graphs in it.

        Args:
            folder: the folder.
            precision: `fp32`, `fp16` or `int8`; by default the most exact that the folder has.

        Raises:
            ArgumentError: if it has no graphs of this precision.
            MissingExtraError: without onnxruntime.
            ModelFolderError: if the folder has no graphs, or a damaged file.
            ModelKindError: if the reading of its texts cannot be expressed without the processor.
        """
        folder = Path(folder)
        settings = GraphSettings.from_file(folder / GRAPH_FOLDER / SETTINGS_FILE, str(folder))
        precision = settings.chosen_precision(precision, str(folder))
        if settings.reading is None:
            raise ModelKindError(
                f"{folder}: its texts can be read by its processor alone ({settings.no_reading}): "
                'Embedder.from_pretrained(…, backend="onnx") does so'
            )
        reader = TextReader(folder, settings.reading, list(settings.inputs["text"]))
        return cls(reader, open_graph(folder / GRAPH_FOLDER / graph_file("text", precision)), settings)

    def encode_text(self, texts: str | Sequence[str], *, language: str | Sequence[str]) -> np.ndarray:
        """Returns embeddings of unit length, float32 [N, d]; arguments and errors are those of `Embedder`."""
        texts = as_texts(texts, "texts", none_is_fine=True)
        languages = language_for_each(language, len(texts))
        found = np.empty((len(texts), self.settings.width if texts else 0), dtype=np.float32)
        with counting_cut_texts() as cut:
            for start in range(0, len(texts), _BATCH):
                rows = slice(start, start + _BATCH)
                inputs = self.reader(texts[rows], languages[rows])
                (found[rows],) = self._session.run([TOWERS["text"][1]], inputs)
        cut.warn(texts)
        if bad := np.flatnonzero(~np.isfinite(found).all(axis=-1)).tolist():
            raise NonFiniteError(f"{texts[bad[0]]!r}: the graph computes an embedding of it with NaN or infinity")
        return found / np.maximum(np.linalg.norm(found, axis=-1, keepdims=True), _LEAST_NORM)


def _tokenizer(folder: Path, settings: TokenizerSettings) -> Tokenizer:
    path = folder / settings.file
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises the bare class for any error
        raise ModelFolderError(f"{path} is missing, or is no tokenizer ({error}): export the model again") from error
    tokenizer.no_padding()
    tokenizer.enable_truncation(settings.max_length, direction=settings.cut_side)
    return tokenizer
