"""The old place of `utils.languages`."""

from ..utils.languages import *  # noqa: F403
