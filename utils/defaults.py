"""Values that options of the command line show as their defaults, and that the code behind them shares.

This module imports nothing, so that `babelens COMMAND --help` need not import that code.
"""

from typing import Literal

# The precision that training computes in; `auto` chooses it by the hardware.
Precision = Literal["auto", "float32", "bfloat16", "float16"]

# Pixels of the shorter side of a resized image, and of the sides of each of its ten crops.
RESIZE, CROP = 512, 448

# The endings of the files that figures are written to.
FIGURES = (".svg", ".png")

# The groups of languages that the emoji benchmark's published numbers stand for: languages that had images in
# training, languages that had translations only, and languages that were not in training.
BENCHMARK_LANGUAGES = {
    "image": ("en", "cs", "de", "fr", "ja", "zh"),
    "pair": ("es", "hi", "id", "ko", "ru", "sw", "tr"),
    "unseen": ("ar", "fi", "it", "nl", "pl", "pt", "sv", "th", "uk", "yo"),
}
