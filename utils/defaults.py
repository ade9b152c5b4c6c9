"""Values that command-line options show as their defaults and that the code behind them shares.

This module imports nothing, so `babelens COMMAND --help` does not have to import that code.
"""

from typing import Literal

# The precision in which training computes; `auto` chooses it for the hardware.
Precision = Literal["auto", "float32", "bfloat16", "float16"]

# In pixels: the shorter side of a resized image, and the sides of each of its ten crops.
RESIZE, CROP = 512, 448

# The file name endings for figures.
FIGURES = (".svg", ".png")

# The language groups in the emoji benchmark's published numbers: languages with images in training, languages with
# only translations, and languages that were not in training.
BENCHMARK_LANGUAGES = {
    "image": ("en", "cs", "de", "fr", "ja", "zh"),
    "pair": ("es", "hi", "id", "ko", "ru", "sw", "tr"),
    "unseen": ("ar", "fi", "it", "nl", "pl", "pt", "sv", "th", "uk", "yo"),
}
