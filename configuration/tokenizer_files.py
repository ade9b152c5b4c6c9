"""The old place of `utils.tokenizer_files`."""

from ..utils.tokenizer_files import *  # noqa: F403
