"""The old place of `utils.redaction`."""

from ..utils.redaction import *  # noqa: F403
