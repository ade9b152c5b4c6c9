"""The names of the training tasks, which configurations, views and trainers share."""

IMAGE_TEXT = "image_text"
TEXT_TEXT = "text_text"
TRIPLET = "triplet"
