"""The old place of `utils.files`."""

from ..utils.files import *  # noqa: F403
