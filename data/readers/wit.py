"""WIT, images of Wikipedia with captions in many languages (Srinivasan et al. 2021), as weakly aligned texts.
Wikimedia publishes it as `wikimedia/wit_base` on the Hub: parquet files whose rows are images of 300 pixels with the
texts of all pages that show them, joined as in appendix A of RC3 (Zhou et al. 2023)."""

from collections.abc import Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

import datasets
import numpy as np
from datasets import Dataset, Features, Image, IterableDataset, Value

from ...utils.errors import CorpusError, LanguageTagError
from ...utils.languages import normalize_language
from ..batching.views import CaptionIndex
from ..corpus.corpus import CAPTIONS, MAX_CHARACTERS, PLACE, RowCount, tags_of, with_captions
from ..corpus.files import files_matching
from ..corpus.loading import SkippedImage, load_captions

_TEXTS = {"reference": "caption_reference_description", "page": "context_page_description"}

# ---- Splits ----
# MURAL's authors divide WIT's training images (Jain et al. 2021, section 2.3, appendix A.3): in each language 5,000,
# 3,000 or 1,000 images for validation and as many for the test, without overlap. They did not publish their splits.
# Two choices are ours: a language has the largest of these sizes that is at most a fifth of its images, or a fifth if
# it has fewer than 5,000; and an image is in the same split in all of its languages. Images are drawn by a hash of
# their address, rare languages first.

WitSplit = Literal["train", "validation", "test"]
_SIZES = (5_000, 3_000, 1_000)
_PARTS = {"train": 0, "validation": 1, "test": 2}


def wit_split(corpus: Dataset, split: WitSplit) -> Dataset:
    """Returns the images of a split, from a corpus of all of them with `image_id` and `captions`."""
    index = CaptionIndex(corpus)
    digests = [blake2b(name.encode(), digest_size=8).digest() for name in corpus["image_id"]]
    drawn = np.array([int.from_bytes(digest) for digest in digests], np.uint64)  # images are drawn in this order
    rows_of = {language: np.unique(index.rows[index.captions_in(language)]) for language in index.languages}
    part_of = np.zeros(len(corpus), dtype=np.int8)
    for language, rows in sorted(rows_of.items(), key=lambda item: (len(item[1]), item[0])):
        rows_of[language] = rows = rows[np.argsort(drawn[rows], kind="stable")]
        for part in (_PARTS["validation"], _PARTS["test"]):
            missing = _size(len(rows)) - int((part_of[rows] == part).sum())
            part_of[rows[part_of[rows] == 0][: max(0, missing)]] = part
    part = _PARTS[split]
    chosen = np.flatnonzero(part_of == part)
    if not len(chosen):
        raise CorpusError(f"WIT's split {split} has no image: there are {len(corpus):,} images in all")
    found = corpus.select(chosen)
    if not part:
        return found
    # An image that is here for a rare language is not counted among those of a frequent one.
    kept = {tag: {*rows[part_of[rows] == part][: _size(len(rows))].tolist()} for tag, rows in rows_of.items()}
    own = zip(chosen, found["captions"], strict=True)
    captions = [[each for each in texts if row in kept[each["language"]]] for row, texts in own]
    return with_captions(found, captions).select(np.flatnonzero([bool(each) for each in captions]))


def _size(images: int) -> int:
    """Returns the number of images of a language for validation, and for the test."""
    return next((size for size in _SIZES if 5 * size <= images), -(-images // 5))


def load_wit(
    files: str | Path,
    languages: str | list[str] | tuple[str, ...] | None = None,
    *,
    texts: list[str] | tuple[str, ...] = ("reference", "page"),
    min_languages: int = 2,
    split: WitSplit | None = None,
    check_images: bool = True,
    on_bad_image: Literal["error", "skip"] = "error",
    skipped: list[SkippedImage] | None = None,
    streaming: bool = True,
) -> Dataset | IterableDataset:
    """Loads a caption corpus of WIT for `weak_pairs`: `image`, `image_id` (the address of the image) and `captions`,
    all of its texts, without repetitions, texts in unknown languages, and texts of more than 10,000 characters.
    `files` are a folder or a pattern, such as `wit_base/data/train-*.parquet`. `texts` are `reference` (under the
    image on the page) and `page` (the beginning of the page). A `split` is drawn as MURAL's authors divide WIT's
    images (`wit_split`)."""
    if split is not None and streaming:
        raise CorpusError("WIT is divided into splits by all of its images at once: give streaming=False")
    if unknown := [name for name in texts if name not in _TEXTS]:
        raise CorpusError(f"WIT has no texts called {', '.join(unknown)}; there are {', '.join(_TEXTS)}")
    found = [str(file) for file in files_matching(files) if file.suffix == ".parquet"]
    if not found:
        raise CorpusError(f"{files}: no such file, or none that ends in .parquet, as those of wikimedia/wit_base")
    columns = ["image", "image_url", "wit_features"]
    data = datasets.load_dataset("parquet", data_files=found, split="train", streaming=streaming, columns=columns)
    wanted = tags_of(languages)
    count = RowCount("WIT")
    captions = partial(_captions, wanted=wanted, kinds=tuple(texts), least=min_languages, count=count)
    names = {PLACE: Value("string"), "image_id": Value("string")}
    features = Features({"image": Image(decode=False)} | names | {"captions": CAPTIONS})
    corpus = data.cast_column("image", Image(decode=False)).rename_column("image_url", "image_id")
    # The counts are not in the cache.
    options: dict[str, Any] = {} if streaming else {"load_from_cache_file": False, "batch_size": 100}
    corpus = corpus.map(captions, features=features, remove_columns="wit_features", batched=True, **options)
    if not streaming:
        count.report()
    if split is not None:
        corpus = wit_split(corpus, split)
    return load_captions(corpus, check_images=check_images, on_bad_image=on_bad_image, skipped=skipped)


def _captions(
    batch: dict[str, list[Any]], wanted: Sequence[str] | None, kinds: Sequence[str], least: int, count: RowCount
) -> dict[str, list[Any]]:
    rows = []
    for image, image_id, pages in zip(*(batch[name] for name in batch), strict=True):
        found: dict[tuple[str, str], None] = {}
        for page, tag in enumerate(pages["language"]):
            try:
                language = normalize_language(tag)
            except LanguageTagError:
                continue
            own = (" ".join((pages[_TEXTS[name]][page] or "").split()) for name in kinds)
            if wanted is None or language in wanted:
                found |= {(language, text): None for text in own if 0 < len(text) <= MAX_CHARACTERS}
        if len({language for language, _ in found}) < least:
            count.leave_out(f"with texts in fewer than {least} languages")
            continue
        count.read += 1
        captions = [{"language": language, "text": text} for language, text in found]
        rows.append((image, f"WIT {image_id}", image_id, captions))
    return {name: [row[k] for row in rows] for k, name in enumerate(("image", PLACE, "image_id", "captions"))}
