"""Published benchmarks on a few rows, file by file in exactly the published layout."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.support.published_layouts import (
    coco_name,
    write_flickr30k,
    write_flickr_images,
    write_image,
    write_mscoco,
    write_multi30k,
)
from tests.support.published_rc3 import write_text

# COCO's test images in these files, and images of other splits.
TEST = (391895, 60623, 483108, 384213)
COCO = {"test": TEST, "val": (386164, 223648), "train": (57870,), "restval": (522418,)}
FLICKR = ("1007129816.jpg", "1009434119.jpg")
XTD_LANGUAGES = {
    "XTD10": ("es", "it", "ko", "pl", "ru", "tr", "zh"),
    "MIC": ("de", "en", "fr"),
    "STAIR": ("jp",),
}


mscoco = partial(write_mscoco, images=COCO, count=2)


def multi30k(root: Path) -> None:
    write_multi30k(root / "data", FLICKR)
    write_flickr_images(root / "flickr30k-images", FLICKR)


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
    mscoco(root)
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


WRITERS: dict[str, Callable[[Path], None]] = {
    **dict.fromkeys(("coco-1k", "coco-5k", "coco-ko", "stair-1k", "stair-5k"), mscoco),
    "coco-cn": coco_cn,
    "cxc": crisscrossed,
    "flickr30k": partial(write_flickr30k, images={"test": FLICKR, "train": ["1000092795.jpg"]}),
    **dict.fromkeys(("multi30k", "multi30k-task1"), multi30k),
    "xtd": xtd,
}
