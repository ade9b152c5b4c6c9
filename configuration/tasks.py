"""The names of the training tasks: those that several methods share, and RC3's data sets."""

IMAGE_TEXT = "image_text"
TEXT_TEXT = "text_text"
TRIPLET = "triplet"

STRICT = "strict"
WEAK = "weak"
PARALLEL = "parallel"
