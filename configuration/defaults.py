"""The old place of `utils.defaults`."""

from ..utils.defaults import *  # noqa: F403
