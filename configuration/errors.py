"""The old place of `utils.errors`."""

from ..utils.errors import *  # noqa: F403
