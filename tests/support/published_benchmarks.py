"""Small synthetic copies of published benchmarks, file by file in exactly the published layout."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

# COCO's test images of these files, and those of other splits.
TEST = (391895, 60623, 483108, 384213)
VALIDATION = (386164, 223648)
FLICKR = ("1007129816.jpg", "1009434119.jpg")
XTD_LANGUAGES = {
    "XTD10": ("es", "it", "ko", "pl", "ru", "tr", "zh"),
    "MIC": ("de", "en", "fr"),
    "STAIR": ("jp",),
}


def coco_name(image_id: int, folder: str = "val2014") -> str:
    return f"COCO_{folder}_{image_id:012}.jpg"


def write_image(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    Image.fromarray(noise).save(path, "PNG")


def write_text(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def karpathy(root: Path) -> None:
    """`dataset_coco.json`, and the images of its test split and of its validation split."""
    images = []
    splits = dict.fromkeys(TEST, "test") | dict.fromkeys(VALIDATION, "val") | {57870: "train", 522418: "restval"}
    for number, (image_id, split) in enumerate(splits.items()):
        folder = "train2014" if split == "train" else "val2014"
        sentences = [
            {
                "tokens": ["a", "thing"],
                "raw": f"Thing {number} seen {'once' if index else 'again'}. ",
                "imgid": number,
                "sentid": 10 * number + index,
            }
            for index in range(2)
        ]
        images.append(
            {
                "filepath": folder,
                "sentids": [each["sentid"] for each in sentences],
                "filename": coco_name(image_id, folder),
                "imgid": number,
                "split": split,
                "sentences": sentences,
                "cocoid": image_id,
            }
        )
        if split in ("test", "val"):
            write_image(root / folder / coco_name(image_id), image_id)
    write_json(root / "dataset_coco.json", {"images": images, "dataset": "coco"})


def annotations(captions: dict[int, list[str]]) -> dict[str, Any]:
    """A file in COCO's format."""
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


def stair(root: Path) -> None:
    karpathy(root)
    captions = {image_id: [f"絵{image_id}", f"写真{image_id}"] for image_id in (*TEST, 522418)}
    write_json(root / "stair_captions_v1.2_val.json", annotations(captions))


def korean(root: Path) -> None:
    karpathy(root)
    records = [
        {
            "file_path": f"val2014/{coco_name(image_id)}",
            "captions": ["A thing.", "Another."],
            "id": image_id,
            "caption_ko": [f"물건 {image_id}", ""],
        }
        for image_id in TEST
    ]
    write_json(root / "MSCOCO_train_val_Korean.json", records)


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
    for folder, languages in XTD_LANGUAGES.items():
        for language in languages:
            write_text(root / folder / f"test_1kcaptions_{language}.txt", f"{language} one", f"{language} two")
    for seed, name in enumerate(names):
        write_image(root / name.split("_")[1] / name, seed)


def crisscrossed(root: Path) -> None:
    """Captions 0 and 1 are of the first image, 10 and 11 of the second, and so on."""
    karpathy(root)
    caption = "COCO_val2014:sentid:{}".format
    names = [coco_name(each) for each in TEST]
    write_text(
        root / "data/sts_test.csv",
        "caption1,caption2,agg_score,sampling_method",
        f"{caption(0)},{caption(1)},4.8,c2c_cocaption",
        f"{caption(0)},{caption(10)},3.0,c2c_isim",
        f"{caption(20)},{caption(31)},2.99,c2c_isim",
        f"{caption(11)},{caption(30)},1.2,c2c_isim",
        f"{caption(30)},{caption(21)},0.5,c2c_isim",
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
        f"{caption(0)},{names[0]},5.0,c2i_original",
        f"{caption(0)},{names[1]},2.6,c2i_intrasim",
        f"{caption(10)},{names[2]},2.4,c2i_intrasim",
        f"{caption(31)},{names[0]},1.0,c2i_intrasim",
        f"{caption(20)},{names[1]},0.3,c2i_intrasim",
    )


def flickr30k(root: Path) -> None:
    images = []
    for number, (name, split) in enumerate(zip((*FLICKR, "1000092795.jpg"), ("test", "test", "train"), strict=True)):
        raws = [f"Person {number} {action}." for action in ("runs", "sits", "eats", "naps", "sings")]
        sentences = [{"raw": raw, "sentid": 5 * number + index} for index, raw in enumerate(raws)]
        images.append({"filename": name, "split": split, "imgid": number, "sentences": sentences})
        if split == "test":
            write_image(root / "flickr30k-images" / name, number)
    write_json(root / "dataset_flickr30k.json", {"images": images, "dataset": "flickr30k"})


def multi30k(root: Path) -> None:
    for seed, name in enumerate(FLICKR):
        write_image(root / "flickr30k-images" / name, seed)

    def lines(path: str, *texts: str) -> None:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(gzip.compress("".join(text + "\n" for text in texts).encode()))

    write_text(root / "data/task1/image_splits/test_2016_flickr.txt", *FLICKR)
    write_text(root / "data/task2/image_splits/test_2016_images.txt", *reversed(FLICKR))
    for language in ("en", "de", "fr", "cs"):
        lines(f"data/task1/raw/test_2016_flickr.{language}.gz", f"{language} one", f"{language} two")
    for number in range(1, 6):
        for language in ("en", "de"):
            lines(
                f"data/task2/raw/test_2016.{number}.{language}.gz",
                f"{language} two {number}",
                f"{language} one {number}",
            )


WRITERS: dict[str, Callable[[Path], None]] = {
    "coco-1k": karpathy,
    "coco-5k": karpathy,
    "coco-cn": coco_cn,
    "coco-ko": korean,
    "cxc": crisscrossed,
    "flickr30k": flickr30k,
    "multi30k": multi30k,
    "multi30k-task1": multi30k,
    "stair-1k": stair,
    "stair-5k": stair,
    "xtd": xtd,
}
