"""The old place of `utils.hub_code`."""

from ..utils.hub_code import *  # noqa: F403
