"""Benchmarks on the images of Wikipedia, and Crossmodal-3600.

WIT's own test split and IGLUE's part of it name images by their addresses. The images are in a folder `images`, at the
paths of their addresses, as `readers.wit` describes it.
"""

from datasets import Dataset, IterableDataset

from ...configuration.errors import BenchmarkError, CorpusError
from ...configuration.languages import normalize_language
from ..corpus.captions import CaptionRules, normalize_captions
from ..corpus.corpus import as_caption_corpus
from ..corpus.images import ImageRules
from ..corpus.text_files import read_json_lines
from ..readers.task_files import identifier_of, image_path, text_of
from ..readers.wit import addressed_images, load_wit
from .layout import Layout, captions_in

_WIT_FILES = "wit_v1.test.all-*-of-*.tsv"


def read_wit(layout: Layout, languages: tuple[str, ...]) -> Dataset | IterableDataset:
    """WIT's test split with reference captions. Rows and images that cannot be used are left out, with warnings that
    count and name them."""
    found = [pattern for pattern in (_WIT_FILES, f"{_WIT_FILES}.gz") if any(layout.root.glob(pattern))]
    if not found:
        raise layout.error(f"there is no file {_WIT_FILES}.gz")
    return load_wit(
        layout.root / found[0],
        layout.folder("images"),
        list(languages),
        texts=("reference",),
        min_languages=1,
        on_bad_row="skip",
        on_bad_image="skip",
        streaming=False,
    )


def read_iglue_wit(layout: Layout, languages: tuple[str, ...]) -> Dataset:
    """IGLUE's test images of WIT with reference captions, in one language or in several. Images that cannot be read
    are left out, with a warning that counts and names them."""
    images = addressed_images(layout.folder("images"))
    captions: dict[str, dict[str, list[str]]] = {}
    addresses: dict[str, str] = {}
    for language in languages:
        file = layout.file(f"annotations/test_{language}.jsonl")
        for line, record in read_json_lines(file):
            place = f"{file} line {line}"
            if normalize_language(identifier_of(record, "language", place)) != language:
                raise BenchmarkError(f"{place}: the language is {record['language']!r} in a file of {language}")
            name = identifier_of(record, "wit_ix", place)
            addresses.setdefault(name, identifier_of(record, "image_url", place))
            text = " ".join(text_of(record, "caption_reference_description", place).split())
            captions.setdefault(name, {}).setdefault(language, []).append(text)
    names = list(addresses)
    corpus = layout.corpus(
        {"image": images[addresses[name]], "image_id": name, "captions": captions_in(captions[name])} for name in names
    )
    return as_caption_corpus(
        corpus, images=ImageRules(skip=True), place=lambda row: f"IGLUE's WIT, image {names[row]}"
    )


def read_xm3600(layout: Layout, languages: tuple[str, ...]) -> Dataset:
    """Crossmodal-3600: 3,600 images with captions in 36 languages."""
    file = layout.file("captions.jsonl")
    images = layout.folder("images")
    rows = []
    for line, record in read_json_lines(file):
        place = f"{file} line {line}"
        name = identifier_of(record, "image/key", place)
        captions = []
        for language in languages:
            of_language = record.get(language)
            if not isinstance(of_language, dict):
                raise BenchmarkError(f"{place}: there is no object {language!r} with captions")
            try:
                captions += normalize_captions(of_language.get("caption"), CaptionRules(language=language))
            except CorpusError as error:
                raise type(error)(f"{place}, {language!r}: {error}") from None
        image = image_path(images, f"{name}.jpg", place)
        rows.append({"image": image, "image_id": name, "captions": captions})
    return layout.corpus(rows)
