"""What a page without a server finds beside its model, how large it is, and how long a query takes in Chromium.

    python benchmarks/offline_page.py MODEL PHOTOS --translations HELD_OUT.tsv

MODEL is one of `babelens acquire` without a text encoder, PHOTOS captioned images that it was not solved with, and
HELD_OUT.tsv sentences of its languages that it was not solved with, beside the native ones: there, texts search the
embeddings of the native sentences, in languages for which there are no captions. Both are R@10 in percent.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer

from babelens import Embedder
from babelens.data import load_captions, load_translations
from babelens.data.corpus.corpus import languages_of
from babelens.data.corpus.text_files import read_texts
from babelens.serving.offline_page import _basis, export_offline

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))

from browser import Browser, browser

# Milliseconds of each query: from its text to the images that are drawn.
TIMED = """(async () => {
  const taken = [];
  choose(TAG);
  await mapOf(TAG);
  for (const text of TEXTS) {
    query.value = text;
    const start = performance.now();
    await ask();
    await new Promise(requestAnimationFrame);
    taken.push(performance.now() - start);
  }
  return taken;
})()"""


def found(scores: np.ndarray, first: int = 10) -> float:
    """R@10 in percent of scores [n, n] whose right ones are on the diagonal; or that at another number."""
    return 100 * float(((scores >= np.diag(scores)[:, None]).sum(1) <= first).mean())


def embedded(page: Browser, texts: list[str], tag: str) -> np.ndarray:
    """Embeddings [n, width] by the page."""
    code = f"mapOf({json.dumps(tag)}).then(map => {json.dumps(texts)}.map(text => [...read(text, map)]))"
    return np.array(page.run(code), dtype=np.float32)


def main(
    model: str,
    photos: str,
    translations: Annotated[Path | None, typer.Option(help="Held-out sentences.")] = None,
    texts: Annotated[Path | None, typer.Option(help="Native sentences, as of `babelens export`.")] = None,
    width: Annotated[int, typer.Option(help="Values of an embedding.")] = 128,
) -> None:
    """Print a table of R@10 by the model and by the page, the size of the page, and times of queries."""
    corpus = load_captions(photos)
    embedder = Embedder.from_pretrained(model, device="cpu")
    maps, native = embedder.model.maps, embedder.processor.native_language
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "photos").mkdir()
        for number, row in enumerate(corpus):
            row["image"].convert("RGB").save(folder / "photos" / f"{number:06}.webp", quality=90)
        given = read_texts(texts) if texts else []
        written = export_offline(model, folder / "page", folder / "photos", native_texts=given, width=width)
        parts = {"languages": 0, "images": 0, "the rest": 0}
        for file in filter(Path.is_file, (folder / "page").rglob("*")):
            parts[file.parent.name if file.parent.name in parts else "the rest"] += file.stat().st_size
        typer.echo(f"{written.images} images, {len(written.languages)} languages, {written.bytes / 1e6:.1f} MB")
        typer.echo(", ".join(f"{name} {size / 1e6:.2f}" for name, size in parts.items()))
        basis = _basis(maps, width).numpy()
        with browser(folder / "profile") as page:
            page.open((folder / "page" / "index.html").as_uri())
            page.wait_for("document.body.dataset.ready")
            images = embedder.encode_image(sorted((folder / "photos").iterdir()))
            for tag in [each for each in languages_of(corpus) if each in written.languages]:
                texts = [next(c["text"] for c in row["captions"] if c["language"] == tag) for row in corpus]
                full = found(embedder.encode_text(texts, language=tag) @ images.T)
                ranked = page.run(
                    f"Promise.all({json.dumps(texts)}.map(async (text) => (await search(text, {json.dumps(tag)}))"
                    ".slice(0, 10).map(([position]) => position)))"
                )
                own = 100 * np.mean([position in best for position, best in enumerate(ranked)])
                taken = page.run(TIMED.replace("TAG", json.dumps(tag)).replace("TEXTS", json.dumps(texts)))
                times = f"{np.median(taken):.1f} ms a query, at most {max(taken):.1f}"
                typer.echo(f"photographs {tag}: model {full:.1f}, page {own:.1f} ({own / full:.3f}); {times}")
            if translations is not None:
                rows = load_translations(translations)
                results = {}
                for tag in written.languages:
                    pairs = [{each["language"]: each["text"] for each in row["captions"]} for row in rows]
                    pairs = [row for row in pairs if tag in row and native in row]
                    targets = embedder.encode_text([row[native] for row in pairs], language=native)
                    texts = [row[tag] for row in pairs]
                    full = embedder.encode_text(texts, language=tag) @ targets.T
                    own = embedded(page, texts, tag) @ (targets @ basis.T).T
                    results[tag] = [found(full), found(own), found(full, 1), found(own, 1)]
                    ten, one = "model {:.1f}, page {:.1f}".format(*results[tag]), results[tag][2:]
                    typer.echo(f"sentences {tag}: {ten}; R@1 {one[0]:.1f}, {one[1]:.1f}")
                for name, (model_at, page_at) in {"R@10": (0, 1), "R@1": (2, 3)}.items():
                    ratios = {tag: each[page_at] / max(each[model_at], 1e-9) for tag, each in results.items()}
                    worst = min(ratios, key=lambda tag: ratios[tag])
                    mean = np.mean(list(results.values()), axis=0)
                    typer.echo(
                        f"{name} of sentences in {len(results)} languages: model {mean[model_at]:.1f}, page "
                        f"{mean[page_at]:.1f} ({mean[page_at] / mean[model_at]:.3f}); lowest ratio "
                        f"{ratios[worst]:.3f} ({worst})"
                    )


if __name__ == "__main__":
    torch.set_num_threads(2)
    typer.run(main)
