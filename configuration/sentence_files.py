"""The old place of `utils.sentence_files`."""

from ..utils.sentence_files import *  # noqa: F403
