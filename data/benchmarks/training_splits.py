"""The training and validation splits of the data sets whose test splits are benchmarks: MSCOCO with captions in
several languages, and Flickr30K. Their folders are those of the benchmarks, with all images.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast, get_args

from datasets import Dataset

from ...configuration.errors import CorpusError
from ..readers.task_files import identifier_of
from .catalog import find_benchmark
from .coco import (
    annotations_by_image,
    coco_cn_captions,
    coco_cn_split,
    karpathy_captions,
    karpathy_images,
    korean_captions,
)
from .flickr import flickr30k_split
from .layout import Layout, captions_in

CocoTexts: TypeAlias = Literal["coco", "stair", "coco-cn", "korean", "yj"]
Split: TypeAlias = Literal["train", "val", "validation", "test"]

_KARPATHY = "dataset_coco.json"
# Karpathy's `restval` are the images of COCO's validation split that he left for training; papers train on both.
_PARTS = {"train": ("train", "restval"), "val": ("val",), "test": ("test",)}
_LANGUAGES = {"coco": "en", "stair": "ja", "coco-cn": "zh", "korean": "ko", "yj": "ja"}


def load_coco(folder: str | Path, split: Split = "train", *, captions: list[CocoTexts] | None = None) -> Dataset:
    """MSCOCO's images of 2014 with captions in one language or in several.

    Columns: `image`, `image_id` (the file name), `captions`. An image has the captions of those of `captions` that
    describe it, and is left out without any.

    Args:
        folder: the folder, with `train2014`, `val2014` and the files of `captions`.
        split: Karpathy's split (Karpathy & Fei-Fei 2015): `train`, which has his `restval` as well, `val`, also named
            `validation`, or `test`. COCO-CN has a split
            of its own, which chooses its captions; given alone, it needs no file of Karpathy's.
        captions: the captions, by default `["coco"]`:

            - `coco`: English, `dataset_coco.json`;
            - `stair`: Japanese, `stair_captions_v1.2_train.json` and `…_val.json`;
            - `coco-cn`: Chinese, `imageid.human-written-caption.txt` and `coco-cn_train.txt` (`val`, `test`);
            - `korean`: Korean, `MSCOCO_train_val_Korean.json`, of AI-Hub;
            - `yj`: Japanese, `yjcaptions26k_clean.json`, on 26,500 of the images.

    Raises:
        BenchmarkError: for a folder that is not in the published layout; the message says what is in it.
        CorpusError: for what is wrong in a file, with its place.

    Examples:
        >>> corpus = load_coco("mscoco", "train", captions=["coco", "stair"])
    """
    chosen = list(dict.fromkeys(captions or ["coco"]))
    if unknown := [name for name in chosen if name not in _LANGUAGES]:
        raise CorpusError(f"captions: {', '.join(unknown)} is none of {', '.join(get_args(CocoTexts))}")
    split = _known(split)
    layout = Layout(find_benchmark("coco-5k"), Path(folder))
    if chosen == ["coco-cn"]:
        return coco_cn_split(layout, split)
    texts = [(_LANGUAGES[name], _texts(layout, name, split)) for name in chosen if name != "coco"]
    return layout.corpus(_rows(layout, split, texts, english="coco" in chosen))


def load_flickr30k(folder: str | Path, split: Split = "train") -> Dataset:
    """Flickr30K's images with five English captions each.

    Columns: `image`, `image_id` (the file name), `captions`.

    Args:
        folder: the folder, with `dataset_flickr30k.json` and the images in `flickr30k-images`.
        split: Karpathy's split, as in `load_coco`.

    Raises:
        BenchmarkError: for a folder that is not in the published layout; the message says what is in it.
        BadImageError: for an image that is not in the folder.
    """
    return flickr30k_split(Layout(find_benchmark("flickr30k"), Path(folder)), _known(split))


def _known(split: str) -> Split:
    if split not in get_args(Split):
        raise CorpusError(f"there is no split {split!r}; there are {', '.join(_PARTS)}")
    return "val" if split == "validation" else cast(Split, split)


def _texts(layout: Layout, name: str, split: str) -> dict[str, list[str]]:
    """The captions of a file by the id of the image."""
    if name == "stair":
        # All of Karpathy's images but those of `train` are among COCO's validation images.
        found: dict[str, list[str]] = {}
        for part in ("train", "val") if split == "train" else ("val",):
            file = f"stair_captions_v1.2_{part}.json"
            found |= annotations_by_image(layout.file(file, f"stair_captions_v1.2/{file}"))
        return found
    if name == "korean":
        return korean_captions(layout)[0]
    if name == "yj":
        return annotations_by_image(layout.file("yjcaptions26k_clean.json", "yjcaptions26k/yjcaptions26k_clean.json"))
    names, captions, _ = coco_cn_captions(layout, split)
    return {str(int(image.rpartition("_")[2])): captions[image] for image in names}


def _rows(
    layout: Layout, split: str, texts: list[tuple[str, dict[str, list[str]]]], *, english: bool
) -> Iterator[dict[str, Any]]:
    for part in _PARTS[split]:
        for place, record in karpathy_images(layout.file(_KARPATHY), part):
            image_id, name = identifier_of(record, "cocoid", place), identifier_of(record, "filename", place)
            of_image: dict[str, list[str]] = {"en": karpathy_captions(record, place)} if english else {}
            for language, by_image in texts:
                if image_id in by_image:
                    of_image.setdefault(language, []).extend(by_image[image_id])
            if of_image:
                image = layout.coco_image(name, place)
                yield {"image": image, "image_id": name, "captions": captions_in(of_image)}
