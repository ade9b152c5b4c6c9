"""The old place of `utils.pretrained`."""

from ..utils.pretrained import *  # noqa: F403
