"""Times the protocol of a benchmark without encoding: 10 languages, each with 1,000 captions of the same 1,000 images.

    OMP_NUM_THREADS=1 python benchmarks/benchmark_ranking.py

Embeddings are random, and are given instead of computed; everything else is what `babelens evaluate --benchmark xtd`
does: reading the published files, ranks in both directions, recalls, means, and the figures of papers beside them.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from babelens.evaluation import load_benchmark

_FOLDERS = {"de": "MIC", "en": "MIC", "fr": "MIC"}
LANGUAGES = ("de", "en", "es", "fr", "it", "ko", "pl", "ru", "tr", "zh")


class GivenEmbeddings:
    """Random embeddings of unit length, in the place of an embedder."""

    def __init__(self, width: int) -> None:
        self._width, self._rng = width, np.random.default_rng(0)

    def encode_image(self, images: object, **_: object) -> np.ndarray:
        return self._rows(len(images))  # type: ignore[arg-type]

    def encode_text(self, texts: list[str], **_: object) -> np.ndarray:
        return self._rows(len(texts))

    def _rows(self, count: int) -> np.ndarray:
        rows = self._rng.normal(size=(count, self._width)).astype(np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def write_xtd(root: Path, images: int) -> None:
    """Files in XTD's layout; the images are empty files, since none is opened."""
    names = [f"COCO_val2014_{index:012}.jpg" for index in range(images)]
    for folder in ("XTD10", "MIC", "val2014"):
        (root / folder).mkdir()
    (root / "XTD10/test_image_names.txt").write_text("".join(f"{name}\n" for name in names))
    for language in LANGUAGES:
        path = root / _FOLDERS.get(language, "XTD10") / f"test_1kcaptions_{language}.txt"
        path.write_text("".join(f"caption {index} in {language}\n" for index in range(images)))
    for name in names:
        (root / "val2014" / name).touch()


def main() -> None:
    """Prints the seconds of reading and of the evaluation."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--width", type=int, default=512)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_xtd(Path(folder), options.images)
        started = time.perf_counter()
        benchmark = load_benchmark("xtd", folder, LANGUAGES)
        read = time.perf_counter()
        report = benchmark.evaluate(GivenEmbeddings(options.width))  # type: ignore[arg-type]
        done = time.perf_counter()
    counts = {(part["n_images"], part["n_texts"]) for part in report["results"]["xtd"].values()}
    print(f"{len(LANGUAGES)} languages, (images, captions) of each: {counts}, {torch.get_num_threads()} thread")
    print(f"reading {read - started:.2f} s, evaluation {done - read:.2f} s", file=sys.stdout)


if __name__ == "__main__":
    main()
