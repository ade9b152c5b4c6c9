"""Writes the emoji benchmark's images of one vendor as PNG files with English names, with their license beside them.

    python examples/emoji_images.py runs/emoji
    babelens serve runs/demo-mural --images runs/emoji

The demo's model has seen no image of the vendor Noto in training.
"""

import argparse
from pathlib import Path

from datasets import Image

from babelens.data import load_emoji
from babelens.data.emoji.benchmark import emoji_licenses

LICENSES = "LICENSES.txt"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="the folder for the images")
    parser.add_argument("--vendor", default="noto", help="who drew the images: twemoji, openmoji, fluent or noto")
    options = parser.parse_args()
    corpus = load_emoji(vendors=[options.vendor], languages=["en"]).cast_column("image", Image(decode=False))
    for row in corpus:
        folder = options.output / row["category"].replace("/", "-")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{row['captions'][0]['text'].replace('/', '-')}.png").write_bytes(row["image"]["bytes"])
    notices = [
        f"{each['name']} {each['version']}, {each['license']}: {each['attribution']}" for each in emoji_licenses()
    ]
    (options.output / LICENSES).write_text("\n".join(notices) + "\n", encoding="utf-8")
    print(f"{len(corpus)} images are in {options.output}, their licenses in {options.output / LICENSES}")


if __name__ == "__main__":
    main()
