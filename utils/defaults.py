"""Values that command-line options show as their defaults; `babelens COMMAND --help` imports nothing else for them."""

from typing import Literal

Precision = Literal["auto", "float32", "bfloat16", "float16"]  # of training; `auto` chooses it for the hardware

# In pixels: the shorter side of a resized image, and the sides of each of its ten crops.
RESIZE, CROP = 512, 448

FIGURES = (".svg", ".png")  # endings of file names

# The language groups in the emoji benchmark's published numbers: languages with images in training, languages with
# only translations, and languages that were not in training.
BENCHMARK_LANGUAGES = {
    "image": ("en", "cs", "de", "fr", "ja", "zh"),
    "pair": ("es", "hi", "id", "ko", "ru", "sw", "tr"),
    "unseen": ("ar", "fi", "it", "nl", "pl", "pt", "sv", "th", "uk", "yo"),
}
