"""RC3's data sets on a few rows in their published layouts, under `data`, and what its recipes begin with, under
`runs`. An image has regions of 36 x 2048 numbers, under the name that each file of IGLUE has for it."""

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
from datasets import Dataset, Features, Image, List, Value
from transformers import MBartConfig, MBartForConditionalGeneration

from babelens.processing.tokenizer_training import train_bpe
from tests.support.region_files import write_h5, write_serial
from tests.support.tiny_layers import encoder_decoder

PATCHES = {"image_size": 32, "patch_size": 16, "patch_width": 16}
FLICKR = ["1000092795", "10002456", "1000268201", "1000344755"]
COCO = ["COCO_val2014_000000042", "COCO_val2014_000000074"]


def write_regions(name: str, image_ids: list[str]) -> None:
    write_h5(Path("data", name), {image_id: {"features": features(image_id)} for image_id in image_ids})


def features(image_id: str) -> np.ndarray:
    return np.random.default_rng(zlib.crc32(image_id.encode())).random((36, 2048), dtype=np.float32)


def write_images(folder: str, names: list[str]) -> None:
    for name in names:
        path = Path("data", folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        PIL.Image.new("RGB", (40, 32)).save(path, "PNG" if path.suffix == ".png" else "JPEG")


def write_text(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")


def write_gzip(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))


def write_lines(name: str, records: list[dict]) -> None:
    write_text(Path("data", name), *map(json.dumps, records))


def sentences(image_id: str, label: str) -> dict[str, str]:
    return {
        "gold_label": label,
        "sentence1": "A dog runs.",
        "sentence2": "A dog is outside.",
        "captionID": f"{image_id}.jpg#1",
        "pairID": f"{image_id}.jpg#1r1e",
        "Flikr30kID": image_id,
    }


def write_captions(name: str, images: list[str], count: int) -> None:
    texts = {image: [f"A dog of {image} runs {number}." for number in range(count)] for image in images}
    write_lines(name, [{"sentences": texts[image], "id": image, "img_path": f"{image}.jpg"} for image in images])


def write_xvnli() -> None:
    labels = ["entailment", "neutral", "contradiction", "entailment"]
    records = [sentences(*pair) for pair in zip(FLICKR, labels, strict=True)]
    for name in ("en/train", "en/test", "fr/test"):
        write_lines(f"xvnli/{name}.jsonl", records)
    write_images("flickr30k", [f"{image_id}.jpg" for image_id in FLICKR])
    write_regions("flickr30k_boxes36.h5", FLICKR)


def write_xgqa() -> None:
    ids = ["n161313", "n406334", "2386621"]
    questions = {
        str(201307251 + number): {"question": "Is it overcast?", "answer": answer, "imageId": image_id, "groups": {}}
        for number, (image_id, answer) in enumerate(zip(ids, ("no", "yes", "pipe"), strict=True))
    }
    for tag in ("en", "de", "id", "zh"):
        write_json(Path("data/xgqa", tag, "testdev_balanced_questions.json"), questions)
    write_json(Path("data/xgqa/en/train_balanced_questions.json"), questions)
    write_json(Path("data/xgqa/trainval_ans2label.json"), {"yes": 0, "pipe": 1, "no": 2})
    write_images("gqa", [f"{image_id}.jpg" for image_id in ids])
    write_regions("vg-gqa_boxes36.h5", ids)


def write_marvl() -> None:
    names = []
    for split, directory in (("train", "7"), ("dev", None), ("test1", None)):
        pair = f"{split}-850-0"
        record = {"identifier": f"{pair}-0", "sentence": "There is a dog.", "label": "True"}
        write_lines(f"nlvr2/{split}.json", [record | ({"directory": 7} if directory else {})] * 2)
        images = [f"{pair}-img{side}" for side in (0, 1)]
        where = f"images/train/{directory}" if directory else split
        write_images(f"nlvr2/{where}", [f"{name}.png" for name in images])
        names += images
    write_regions("nlvr2_boxes36.h5", names)
    for tag in ("id", "zh"):  # whose images have the same names
        sides = {"left_img": "39-Panci/39-n-5.jpg", "right_img": "39-Panci/39-2.jpg"}
        about = {"concept": "39-Panci", "language": tag, "caption": "panci", "id": f"{tag}-0", "label": True}
        write_lines(f"marvl/marvl-{tag}.jsonl", [about | sides])
        write_images(f"marvl/{tag}/images", list(sides.values()))
        write_regions(f"marvl-{tag}_boxes36.h5", ["39-n-5", "39-2"])


def write_xflickrco() -> None:
    write_captions("flickr30k/train_ann.jsonl", FLICKR, 5)
    tested = [*FLICKR[:2], *COCO]
    for tag in ("en", "de", "ja", "zh"):
        write_captions(f"xflickrco/{tag}/test.jsonl", tested, 1)
    write_images("flickr30k/images", [f"{image}.jpg" for image in FLICKR])
    write_images("xflickrco/images", [f"{image}.jpg" for image in tested])
    write_regions("flickr30k_boxes36.h5", FLICKR)
    write_regions("xflickrco-test_boxes36.h5", [f"{image}.jpg" for image in tested])


def write_uc2(folder: Path, captions: Mapping[str, Mapping[str, str | None]]) -> None:
    """The captions of images by their addresses, as UC2 writes them; None could not be fetched."""
    folder.mkdir()
    for tag in dict.fromkeys(tag for texts in captions.values() for tag in texts):
        name = f"train_imageId2Ann{'' if tag == 'en' else f'_{tag}'}.tsv"
        lines = [
            [f"train_{number:08}", url, texts[tag] or "", "fail" if texts[tag] is None else "success"]
            for number, (url, texts) in enumerate(captions.items())
        ]
        with (folder / name).open("w", encoding="utf-8", newline="") as file:
            if tag == "en":
                file.writelines("\t".join(cells) + "\n" for cells in lines)
            else:
                csv.writer(file, delimiter="\t").writerows(lines)


def write_cc3m(count: int) -> None:
    tags = ("en", "cs", "de", "fr", "ja", "zh")
    urls = [f"http://images.com/{number}.jpg" for number in range(count)]
    write_uc2(Path("data/cc3m"), {url: {tag: f"{tag} dog {n}" for tag in tags} for n, url in enumerate(urls)})
    kept = [str(zlib.crc32(url.encode())) for url in urls[:-1]]
    Path("data/cc3m/caption_train.json").write_text(json.dumps(dict.fromkeys(kept, "a dog")))
    small = np.zeros((36, 4), np.float32)
    records = [[features(each), *[small] * 7, "36", "375", "500", each, "a dog"] for each in kept]
    write_serial(Path("data/cc3m/training_feat_all.lmdb"), records)


WIT_LANGUAGES = ("de", "en", "fr", "id", "ja", "zh", "ar", "bg", "da", "el", "et", "ko", "tr", "vi")
WIT_PAGE = (
    *("language", "caption_reference_description", "context_page_description", "context_section_description"),
    *("caption_alt_text_description", "attribution_passes_lang_id"),
)


def write_wit(folder: Path, rows: list[tuple[str, bytes, list[dict[str, str]]]]) -> None:
    folder.mkdir(parents=True)
    records = [
        {
            "image": {"bytes": content, "path": None},
            "image_url": url,
            "caption_attribution_description": pages[0].get("attribution"),
            "wit_features": {name: [page.get(name) for page in pages] for name in WIT_PAGE},
        }
        for url, content, pages in rows
    ]
    features = Features(
        image=Image(),
        image_url=Value("string"),
        caption_attribution_description=Value("string"),
        wit_features={name: List(Value("string")) for name in WIT_PAGE},
    )
    Dataset.from_list(records, features=features).to_parquet(folder / "train-00000-of-00001.parquet")


def write_wit_dogs(count: int) -> None:
    buffer = io.BytesIO()
    PIL.Image.new("RGB", (40, 32)).save(buffer, "JPEG")
    pages = [
        [{"language": tag, "caption_reference_description": f"{tag} a dog called {n}"} for tag in WIT_LANGUAGES]
        for n in range(count)
    ]
    rows = [(f"https://a.b/Dog_{n}.jpg", buffer.getvalue() if n else b"?", own) for n, own in enumerate(pages)]
    write_wit(Path("data/wit"), rows)


def write_wikimatrix(*pairs: str) -> None:
    """Files of some pairs of languages, also of one that RC3 does not read, with a pair of texts of a low score."""
    for pair in pairs:
        first, second = pair.split("-")
        lines = [f"{score}\t{first} text {number}\t{second} text {number}" for number, score in enumerate("2211")]
        write_gzip(Path(f"data/wikimatrix/WikiMatrix.{pair}.tsv.gz"), ["1.01\tlow\tlow", *lines])


def write_mbart() -> None:
    codes = ["cs_CZ", "de_DE", "en_XX", "fr_XX", "id_ID", "ja_XX", "zh_CN"]
    tokenizer = train_bpe(["a dog called 1 runs in the park"], 300, min_frequency=1)
    tokenizer.add_special_tokens({"additional_special_tokens": codes})
    special = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("pad", "bos", "eos")}
    sizes = encoder_decoder(ffn=16, max_position_embeddings=128, vocab_size=len(tokenizer))
    config = MBartConfig(**sizes | special, scale_embedding=True)
    MBartForConditionalGeneration(config).save_pretrained("runs/mbart-50-trimmed")
    tokenizer.save_pretrained("runs/mbart-50-trimmed")
