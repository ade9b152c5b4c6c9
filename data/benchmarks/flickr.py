"""Benchmarks on the images of Flickr30K, in the folder `flickr30k-images` of its archive: Flickr30K's test set with
five captions for each image, Multi30K's with captions in four languages, and xFlickr&CO."""

from datasets import Dataset

from ...configuration.errors import BenchmarkError
from ..readers.iglue import load_xflickrco
from ..readers.multi30k import load_multi30k
from ..readers.task_files import identifier_of, image_path
from .coco import karpathy_captions, karpathy_images
from .layout import Layout, captions_in

_IMAGES = "flickr30k-images"
# Multi30K has five descriptions of an image in these languages, and one translated sentence in the others.
_DESCRIBED = ("en", "de")


def read_flickr30k(layout: Layout, languages: tuple[str, ...]) -> Dataset:
    """Flickr30K's English captions on Karpathy's test images."""
    return flickr30k_split(layout, "test")


def flickr30k_split(layout: Layout, split: str) -> Dataset:
    """Flickr30K's English captions on the images of a split of Karpathy's.

    Raises:
        BenchmarkError: for files of another form.
        BadImageError: for an image that is not in the folder.
    """
    images = layout.folder(_IMAGES)
    rows = []
    for place, record in karpathy_images(layout.file("dataset_flickr30k.json"), split):
        name = identifier_of(record, "filename", place)
        captions = captions_in({"en": karpathy_captions(record, place)})
        rows.append({"image": image_path(images, name, place), "image_id": name, "captions": captions})
    return layout.corpus(rows)


def read_multi30k(layout: Layout, languages: tuple[str, ...]) -> Dataset:
    """Multi30K's test set of 2016: five descriptions of an image in English and in German (task 2), one sentence in
    French and in Czech (task 1)."""
    described = [language for language in languages if language in _DESCRIBED]
    return load_multi30k(
        layout.folder("data"), "test_2016_flickr", languages, described=described, images=layout.folder(_IMAGES)
    )


def read_multi30k_translations(layout: Layout, languages: tuple[str, ...]) -> Dataset:
    """Multi30K's test set of 2016 with one sentence in each language, translations of each other (task 1)."""
    return load_multi30k(layout.folder("data"), "test_2016_flickr", languages, images=layout.folder(_IMAGES))


def read_xflickrco(layout: Layout, languages: tuple[str, ...]) -> Dataset:
    """xFlickr&CO's test images of Flickr30K and of COCO; all languages have captions of the same images."""
    captions: dict[str, list[dict[str, str]]] = {}
    for language in languages:
        file = layout.file(f"annotations/{language}/test.jsonl")
        corpus = load_xflickrco(file, language=language)
        if captions and captions.keys() != set(corpus["image_id"]):
            raise BenchmarkError(f"{file} has captions of other images than annotations/{languages[0]}/test.jsonl")
        for row in corpus:
            captions.setdefault(row["image_id"], []).extend(row["captions"])
    return layout.corpus(
        {"image": _xflickrco_image(layout, name), "image_id": name, "captions": each}
        for name, each in captions.items()
    )


def _xflickrco_image(layout: Layout, name: str) -> str:
    place = f"xFlickr&CO, image {name}"
    if name.startswith("COCO_"):
        return layout.coco_image(name, place)
    return image_path(layout.folder(_IMAGES), name, place)
