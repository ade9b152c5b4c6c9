"""The names of the training tasks that several methods share."""

IMAGE_TEXT = "image_text"
TEXT_TEXT = "text_text"
TRIPLET = "triplet"
