"""The data of the repository's recipes on a few rows, in exactly their published layouts, in the current folder."""

import json
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from datasets import Dataset

from babelens.data.emoji.benchmark import published_manifest
from babelens.data.emoji.build import FEATURES
from tests.support.image_sources import add_member, drawn
from tests.support.published_rc3 import (
    FLICKR as IMAGES,
    write_cc3m,
    write_gzip,
    write_json,
    write_marvl,
    write_text,
    write_wikimatrix,
    write_wit_dogs,
    write_xflickrco,
    write_xgqa,
    write_xvnli,
)

SMALR_LANGUAGES = ("en", "de", "fr", "cs", "zh", "ja", "ar", "af", "ko", "ru")
PHOTO_LANGUAGES = ("en", "de", "fr", "cs")
RC3_PAIRS = ("cs-en", "de-en", "de-fr", "en-fr", "en-id", "en-ja", "en-zh")
FLICKR = [f"{each}.jpg" for each in IMAGES]
FLICKR_SPLITS = ("train", "train", "val", "test")
COCO_IMAGES = {"train": (9, 25, 30, 34, 49, 61), "restval": (42, 73), "val": (74, 133), "test": (136, 139)}


def coco_name(image_id: int, folder: str = "val2014") -> str:
    return f"COCO_{folder}_{image_id:012}.jpg"


def write_image(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(drawn(seed, (16, 16)))


def caption(language: str, number: int, kind: int = 0) -> str:
    return f"{language} {kind} {number} a red dog on grass"


def write_flickr_images(folder: Path) -> None:
    for seed, name in enumerate(FLICKR):
        write_image(folder / name, seed)


def write_multi30k(root: Path) -> None:
    for split in ("train", "val", "test_2016_flickr", "test_2017_flickr"):
        write_text(root / f"task1/image_splits/{split}.txt", *FLICKR)
        for language in PHOTO_LANGUAGES:
            lines = [caption(language, number) for number in range(len(FLICKR))]
            write_gzip(root / f"task1/raw/{split}.{language}.gz", lines)
    for split in ("train", "val", "test_2016"):
        write_text(root / f"task2/image_splits/{split}_images.txt", *reversed(FLICKR))  # in an order of its own
        for kind, language in product(range(1, 6), ("en", "de")):
            lines = [caption(language, number, kind) for number in reversed(range(len(FLICKR)))]
            write_gzip(root / f"task2/raw/{split}.{kind}.{language}.gz", lines)


def write_karpathy(root: Path, dataset: str, images: Iterable[dict[str, Any]], count: int) -> None:
    records = []
    for imgid, image in enumerate(images):
        texts = [caption("en", image["number"], kind) for kind in range(count)]
        about = [{"raw": f"{text} ", "tokens": text.split(), "imgid": imgid} for text in texts]
        sentences = [each | {"sentid": 10 * imgid + kind} for kind, each in enumerate(about)]
        ids = {"imgid": imgid, "sentids": [each["sentid"] for each in sentences]}
        records.append(image | ids | {"sentences": sentences})
    write_json(root / f"dataset_{dataset}.json", {"images": records, "dataset": dataset})


def write_flickr30k(root: Path) -> None:
    facts = [{"number": n, "filename": name, "split": FLICKR_SPLITS[n]} for n, name in enumerate(FLICKR)]
    write_karpathy(root, "flickr30k", facts, 5)
    write_flickr_images(root / "flickr30k-images")


def annotations(captions: Mapping[int, list[str]]) -> dict[str, Any]:
    return {
        "info": {"year": 2014},
        "licenses": [],
        "images": [{"id": image_id, "file_name": coco_name(image_id), "license": 2} for image_id in captions],
        "annotations": [
            {"id": 10 * image_id + index, "image_id": image_id, "caption": text, "tokenized_caption": text}
            for image_id, texts in captions.items()
            for index, text in enumerate(texts)
        ],
    }


def write_mscoco(root: Path, images: Mapping[str, Iterable[int]] = COCO_IMAGES, count: int = 5) -> None:
    facts = []
    for split, numbers in images.items():
        folder = "train2014" if split == "train" else "val2014"
        for number in numbers:
            write_image(root / folder / coco_name(number, folder), number)
            about = {"filename": coco_name(number, folder), "filepath": folder, "split": split, "cocoid": number}
            facts.append(about | {"number": number})
    write_karpathy(root, "coco", facts, count)
    for part in ("train", "val"):
        numbers = [each["number"] for each in facts if each["filepath"] == f"{part}2014"]
        japanese = {number: [caption("ja", number, kind) for kind in range(count)] for number in numbers}
        write_json(root / f"stair_captions_v1.2_{part}.json", annotations(japanese))
    korean = [
        {
            "file_path": f"{each['filepath']}/{each['filename']}",
            "captions": ["A thing.", "Another."],
            "id": each["number"],
            "caption_ko": [caption("ko", each["number"]), ""],
        }
        for each in facts
    ]
    write_json(root / "MSCOCO_train_val_Korean.json", korean)


def write_mscoco_with_chinese(root: Path) -> None:
    """COCO with YJ Captions and COCO-CN, whose test images may be among Karpathy's training images."""
    write_mscoco(root)
    japanese = {number: [caption("ja", number, 9)] for number in COCO_IMAGES["train"]}
    write_json(root / "yjcaptions26k_clean.json", annotations(japanese))
    of_train = {"train": (9, 30, 61), "val": (34,), "test": (25, 49)}
    chinese = {part: [coco_name(number, "train2014") for number in numbers] for part, numbers in of_train.items()}
    for part in ("val", "test"):
        chinese[part].append(coco_name(COCO_IMAGES[part][0]))
    for split, names in chinese.items():
        write_text(root / f"coco-cn_{split}.txt", *(name[:-4] for name in names))
    lines = [f"{name[:-4]}#0\t{caption('zh', 0)}" for names in chinese.values() for name in names]
    write_text(root / "imageid.human-written-caption.txt", *lines)


def write_cc12m() -> None:
    urls = [f"https://example.com/{number}.jpg" for number in range(8)]
    write_text(Path("data/cc12m.tsv"), *(f"{url}\t{caption('en', n)}" for n, url in enumerate(urls)))
    Path("data/cc12m").mkdir()
    for shard in range(2):
        with tarfile.open(f"data/cc12m/{shard:05}.tar", "w") as tar:
            for number in range(4 * shard, 4 * shard + 4):
                record = {"caption": caption("en", number), "url": urls[number], "key": f"{number:09}"}
                record |= {"status": "success", "error_message": None, "width": 16, "height": 16, "exif": "{}"}
                add_member(tar, f"{number:09}.jpg", drawn(number, (16, 16)))
                add_member(tar, f"{number:09}.json", json.dumps(record).encode())
                add_member(tar, f"{number:09}.txt", caption("en", number).encode())


def write_cc300k() -> None:
    """MLA's annotations, with one image more than CC300K has, and CC69L; one image could not be fetched."""
    names = [f"{number:08}.jpg" for number in range(7)]
    others = ("en", "ar", "bg", "da", "el", "et", "id", "ja", "ko", "tr", "vi")
    for folder, languages in (("cc300k", ("en", "de", "fr", "cs", "zh", "ja")), ("cc69l", others)):
        for language in languages:
            captions = {name: [caption(language, number)] for number, name in enumerate(names)}
            write_json(Path(f"data/{folder}/annotation/uc2_6langs/jsons/ref_captions_{language}.json"), captions)
        for seed, name in enumerate(names[:5]):
            write_image(Path(f"data/{folder}/images", name), seed)
    write_json(Path("data/cc300k/cc300k.json"), names[:6])


def write_opus(folder: str, languages: Iterable[str]) -> None:
    Path(folder).mkdir(parents=True)
    for language in languages:
        first, second = sorted(("en", language))
        with zipfile.ZipFile(f"{folder}/{first}-{second}.txt.zip", "w") as archive:
            for side in (first, second):
                text = "".join(f"{caption(side, number)}\n" for number in range(4))
                archive.writestr(f"CCMatrix.{first}-{second}.{side}", text)
            archive.writestr("README", "OPUS")


def write_vectors() -> None:
    rng = np.random.default_rng(0)
    for tag in SMALR_LANGUAGES:
        words = [tag, "a", "red", "dog", "on", "grass", *map(str, range(12))]
        lines = [f"{word} {' '.join(map(str, rng.standard_normal(300).round(3)))}" for word in words]
        write_text(Path(f"vectors/wiki.{tag}.vec"), f"{len(words)} 300", *lines)
    write_text(Path("de-en.txt"), "de en", "grass grass")  # one of MUSE's dictionaries


def write_photos() -> None:
    for folder, numbers in (("photos", range(8)), ("more-photos", range(8, 12))):
        lines = []
        for number in numbers:
            write_image(Path(folder, f"{number}.png"), number)
            captions = {tag: [caption(tag, number)] for tag in PHOTO_LANGUAGES}
            lines.append(json.dumps({"file_name": f"{number}.png", "captions": captions}))
        write_text(Path(folder, "metadata.jsonl"), *lines)
    rows = [{tag: caption(tag, number) for tag in PHOTO_LANGUAGES} for number in range(8)]
    write_text(Path("translations.jsonl"), *map(json.dumps, rows))
    write_text(Path("translations.tsv"), "\t".join(PHOTO_LANGUAGES), *("\t".join(row.values()) for row in rows))


def write_published() -> None:
    write_xvnli()
    write_xgqa()
    write_marvl()
    write_xflickrco()
    write_cc3m(6)
    for number in range(6):  # as VOLTA names the images
        write_image(Path("data/cc3m/images", str(zlib.crc32(f"http://images.com/{number}.jpg".encode()))), number)
    write_wit_dogs(16)
    write_wikimatrix(*RC3_PAIRS)
    for folder in ("flickr30k-images", "flickr30k", "flickr30k/images"):
        write_flickr_images(Path("data", folder))
    write_multi30k(Path("data/multi30k"))
    write_flickr30k(Path("data/flickr30k-karpathy"))
    write_mscoco_with_chinese(Path("data/mscoco"))
    write_cc12m()
    write_cc300k()
    write_vectors()
    write_photos()
    write_text(Path("data/task-texts.txt"), "there is a dog")


def write_emoji(path: Path) -> Path:
    languages = published_manifest()["languages"]
    rows = []
    for vendor in ("twemoji", "openmoji", "fluent", "noto"):
        for concept in range(40):
            dogs = {tag: "собака" if tag == "uk" else f"{tag} dog" for tag in languages}
            texts = [{"language": tag, "text": f"{dog} {concept}"} for tag, dog in dogs.items()]
            rows.append(
                {
                    "image": {"bytes": drawn(concept, (64, 64)), "path": None},
                    "image_id": f"1f6{concept:02x}",
                    "captions": texts,
                    "split": ("train", "train", "validation", "test")[concept % 4],
                    "vendor": vendor,
                    "emoji": chr(0x1F600 + concept) if concept else "❤️",
                    "category": "Flags" if concept % 5 == 4 else "Smileys & Emotion",
                    "keywords": [{**each, "text": f"{each['text']}, red, grass"} for each in texts],
                }
            )
    pq.write_table(Dataset.from_list(rows, features=FEATURES).with_format("arrow")[:], path)
    return path


# COCO's test images in these files, and images of other splits.
TEST = (391895, 60623, 483108, 384213)
BENCHMARK_IMAGES = {"test": TEST, "val": (386164, 223648), "train": (57870,), "restval": (522418,)}
karpathys_test = partial(write_mscoco, images=BENCHMARK_IMAGES, count=2)


def multi30k(root: Path) -> None:
    write_multi30k(root / "data")
    write_flickr_images(root / "flickr30k-images")


def coco_cn(root: Path) -> None:
    folder = root / "coco-cn-version1805v1.1"
    names = [coco_name(TEST[0])[:-4], coco_name(TEST[1], "train2014")[:-4]]
    write_text(folder / "coco-cn_test.txt", *names)
    write_text(
        folder / "imageid.human-written-caption.txt",
        f"{names[0]}#0\t一只狗",
        f"{names[1]}#0\t两只猫",
        f"{names[1]}#1\t猫在睡觉",
        "COCO_train2014_000000000009#0\t三只鸟",
    )
    for name in names:
        write_image(root / name.split("_")[1] / f"{name}.jpg", len(name))


def xtd(root: Path) -> None:
    names = [coco_name(TEST[0], "train2014"), coco_name(TEST[1])]
    write_text(root / "XTD10/test_image_names.txt", *names)
    for folder, languages in {"XTD10": "es it ko pl ru tr zh", "MIC": "de en fr", "STAIR": "jp"}.items():
        for language in languages.split():
            write_text(root / folder / f"test_1kcaptions_{language}.txt", f"{language} one", f"{language} two")
    for seed, name in enumerate(names):
        write_image(root / name.split("_")[1] / name, seed)


def crisscrossed(root: Path) -> None:
    """Captions 0 and 1 are of the first image, 10 and 11 of the second, and so on."""
    karpathys_test(root)
    sentence = "COCO_val2014:sentid:{}".format
    names = [coco_name(each) for each in TEST]
    write_text(
        root / "data/sts_test.csv",
        "caption1,caption2,agg_score,sampling_method",
        f"{sentence(0)},{sentence(1)},4.8,c2c_cocaption",
        f"{sentence(0)},{sentence(10)},3.0,c2c_isim",
        f"{sentence(20)},{sentence(31)},2.99,c2c_isim",
        f"{sentence(11)},{sentence(30)},1.2,c2c_isim",
        f"{sentence(30)},{sentence(21)},0.5,c2c_isim",
    )
    write_text(
        root / "data/sis_test.csv",
        "image1,image2,agg_score,sampling_method",
        f"{names[0]},{names[2]},2.5,i2i_csim",
        f"{names[1]},{names[3]},2.49,i2i_csim",
        f"{names[2]},{names[3]},0.0,i2i_csim",
        f"{names[3]},{names[0]},0.4,i2i_csim",
    )
    write_text(
        root / "data/sits_test.csv",
        "caption,image,agg_score,sampling_method",
        f"{sentence(0)},{names[0]},5.0,c2i_original",
        f"{sentence(0)},{names[1]},2.6,c2i_intrasim",
        f"{sentence(10)},{names[2]},2.4,c2i_intrasim",
        f"{sentence(31)},{names[0]},1.0,c2i_intrasim",
        f"{sentence(20)},{names[1]},0.3,c2i_intrasim",
    )


BENCHMARKS: dict[str, Callable[[Path], None]] = {
    **dict.fromkeys(("coco-1k", "coco-5k", "coco-ko", "stair-1k", "stair-5k"), karpathys_test),
    "coco-cn": coco_cn,
    "cxc": crisscrossed,
    "flickr30k": write_flickr30k,
    **dict.fromkeys(("multi30k", "multi30k-task1"), multi30k),
    "xtd": xtd,
}
