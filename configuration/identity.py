"""The old place of `utils.identity`."""

from ..utils.identity import *  # noqa: F403
