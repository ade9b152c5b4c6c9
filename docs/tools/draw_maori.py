"""Draws docs/maori.webp: nine Māori queries, and the three of fourteen photographs that each finds first.

    pip download --no-deps scikit-image==0.26.0 scipy==1.9.3    # and unzip both into one folder
    babelens acquire --base CLIP --language mi --translations en-mi.tsv --output clip-mi
    python docs/tools/draw_maori.py clip-mi FOLDER

CLIP is the model of `photos/mla/clip`. The photographs are in the public domain or under CC0, as their packages say
(`skimage/data/_fetchers.py`, `scipy/misc/_common.py`): docs/index.md lists them.
"""

import argparse
import bz2
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from babelens import Embedder

SKIMAGE = {
    "camera": "camera.png",
    "astronaut": "astronaut.png",
    "cat": "chelsea.png",
    "coffee": "coffee.png",
    "rocket": "rocket.jpg",
    "galaxies": "hubble_deep_field.jpg",
    "clock": "clock_motion.png",
    "bricks": "brick.png",
    "grass": "grass.png",
    "gravel": "gravel.png",
    "eye": "retina.jpg",
    "text": "text.png",
}
# The query, what it says, and the photograph that is meant.
QUERIES = [
    ("he tangata e mau kāmera ana", "a man holding a camera", "camera"),
    ("ngā whetū i te pō", "stars at night", "galaxies"),
    ("ngā arawhata o tētahi whare", "the stairs of a building", "stairs"),
    ("he tarutaru", "grass", "grass"),
    ("he kōhatu", "stones", "gravel"),
    ("he tuhinga", "writing", "text"),
    ("he kararehe i roto i ngā rau", "an animal in the leaves", "raccoon"),
    ("he wahine e menemene ana i mua i te haki", "a woman smiling in front of a flag", "astronaut"),
    ("he pakitara pereki", "a brick wall", "bricks"),
]
PAPER, INK, QUIET, MARK = "#fbf9f4", "#1d2a2f", "#56646a", "#d0592a"
LARGE, SMALL, GAP, MARGIN, HEAD = 224, 109, 6, 28, 58  # in pixels


def photographs(folder: Path) -> dict[str, Image.Image]:
    """The fourteen photographs of the two packages."""
    skimage, scipy = folder / "skimage/data", folder / "scipy/misc"
    found = {name: Image.open(skimage / file).convert("RGB") for name, file in SKIMAGE.items()}
    raccoon = np.frombuffer(bz2.decompress((scipy / "face.dat").read_bytes()), np.uint8).reshape(768, 1024, 3)
    stairs = np.array(pickle.loads((scipy / "ascent.dat").read_bytes()), np.uint8)
    return found | {"raccoon": Image.fromarray(raccoon), "stairs": Image.fromarray(stairs).convert("RGB")}


def square(image: Image.Image, size: int) -> Image.Image:
    """The middle of an image."""
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    return image.crop((left, top, left + side, top + side)).resize((size, size), Image.Resampling.LANCZOS)


def font(name: str, size: int) -> Any:
    return ImageFont.truetype(f"DejaVu{name}.ttf", size)


def drawing(images: dict[str, Image.Image], ranked: list[list[str]]) -> Image.Image:
    """Three columns of queries; the photograph that is meant has a frame."""
    width, height = LARGE + GAP + SMALL, LARGE + HEAD
    page = Image.new("RGB", (3 * width + 4 * MARGIN, 3 * height + 4 * MARGIN - 8), PAPER)
    pen = ImageDraw.Draw(page)
    for number, ((query, gloss, meant), names) in enumerate(zip(QUERIES, ranked, strict=True)):
        x, y = MARGIN + number % 3 * (width + MARGIN), MARGIN - 4 + number // 3 * (height + MARGIN)
        size = 21
        while pen.textlength(query, font("Serif-Bold", size)) > width:
            size -= 1
        pen.text((x, y + 28), query, INK, font("Serif-Bold", size), anchor="ls")
        pen.text((x, y + 48), gloss, QUIET, font("Sans", 14), anchor="ls")
        top = y + HEAD
        places = [(x, top, LARGE), (x + LARGE + GAP, top, SMALL), (x + LARGE + GAP, top + SMALL + GAP, SMALL)]
        for name, (left, upper, side) in zip(names, places, strict=False):
            page.paste(square(images[name], side), (left, upper))
            if name == meant:
                pen.rectangle((left, upper, left + side - 1, upper + side - 1), outline=MARK, width=5)
    return page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("images", type=Path, help="the folder of skimage/data and scipy/misc")
    given = parser.parse_args()
    embedder, images = Embedder.from_pretrained(given.model), photographs(given.images)
    names, encoded = [*images], embedder.encode_image([*images.values()])
    ranked = []
    for query, gloss, meant in QUERIES:
        texts = embedder.encode_text([query, gloss], language=["mi", "en"])
        order = [[names[index] for index in (encoded @ text).argsort()[::-1]] for text in texts]
        print(f"{query}: place {order[0].index(meant) + 1}; {gloss}: place {order[1].index(meant) + 1}")
        ranked.append(order[0][:3])
    drawing(images, ranked).save(Path(__file__).parents[1] / "maori.webp", quality=82, method=6)


if __name__ == "__main__":
    main()
