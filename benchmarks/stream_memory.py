"""The memory of training from sentence pairs, against their number.

    python benchmarks/stream_memory.py 100000 1000000

Each measurement is a process of its own. It trains a vocabulary of 8,000 word pieces, of a stream on 100,000 of its
rows, and then takes batches of 512 examples until as many were taken as there are pairs, from a file in WikiMatrix's
form: as a stream, or, with --prepared, as the data set that is written to the disk first. Printed are the highest
resident memory and the time.
"""

import argparse
import gzip
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BATCH, SAMPLE = 512, 100_000


def write_pairs(file: Path, count: int) -> None:
    """Pairs of 12 words each, of 50,000 in each language, drawn as often as Zipf says."""
    draw = random.Random(0)
    weights = [1 / rank for rank in range(1, 50_001)]
    words = {tag: draw.choices([f"{tag}{number:x}" for number in range(50_000)], weights, k=1_000_000) for tag in "ab"}
    with gzip.open(file, "wt", encoding="utf-8", compresslevel=1) as lines:
        for number in range(count):
            start = draw.randrange(999_988)
            texts = "\t".join(f"{' '.join(words[tag][start : start + 12])} {number}" for tag in "ab")
            lines.write(f"1.2\t{texts}\n")


def measure(folder: Path, count: int, *, prepared: bool) -> dict[str, float]:
    """The memory and the time of one run."""
    from babelens.data.batching.streams import StreamMixture
    from babelens.data.batching.views import translation_pairs
    from babelens.data.readers.published import load_published
    from babelens.processing.tokenizer_training import train_wordpiece
    from babelens.workflows.data import RecipeData
    from babelens.workflows.loading import load_recipe

    recipe = folder / "recipe.json"
    options = {"files": str(folder / "*.tsv.gz"), "streaming": not prepared, "cache_dir": str(folder / "cache")}
    text_text = {"source": "wikimatrix", "options": options, "pairs": [["de", "en"]]}
    content = {"method": "mural", "model": {"preset": "mural-tiny"}, "train": {"text_text": text_text}, "training": {}}
    recipe.write_text(json.dumps(content))
    began = time.perf_counter()
    data = RecipeData(load_recipe(recipe))
    texts = data.texts(SAMPLE)
    train_wordpiece([text for each in texts.values() for text in each], 8_000)
    corpus = load_published("wikimatrix", **options)
    view = translation_pairs(corpus, [("de", "en")])
    taken = 0
    if prepared:
        for start in range(0, count, BATCH):
            taken += len(view.__getitems__(list(range(start, min(start + BATCH, count)))))
    else:
        for loaded in StreamMixture({"text_text": view}, BATCH, seed=0, block_size=10_000):
            taken += len(loaded.batch)
            if taken >= count:
                break
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"pairs": count, "mebibytes": round(memory), "seconds": round(time.perf_counter() - began, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("counts", nargs="+", type=int, help="numbers of pairs")
    parser.add_argument("--prepared", action="store_true", help="measure data sets on the disk, not streams")
    parser.add_argument("--folder", type=Path, help="measure in this process; the other processes are started so")
    given = parser.parse_args()
    if given.folder is not None:
        print(json.dumps(measure(given.folder, given.counts[0], prepared=given.prepared)))
        return
    for count in given.counts:
        with tempfile.TemporaryDirectory() as folder:
            write_pairs(Path(folder, "WikiMatrix.de-en.tsv.gz"), count)
            command = [sys.executable, __file__, str(count), "--folder", folder]
            done = subprocess.run([*command, *["--prepared"] * given.prepared], stdout=subprocess.PIPE, check=True)
            print(done.stdout.decode().splitlines()[-1], flush=True)


if __name__ == "__main__":
    main()
