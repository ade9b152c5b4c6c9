"""The old place of `utils.locks`."""

from ..utils.locks import *  # noqa: F403
