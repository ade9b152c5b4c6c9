"""The old place of the locks in `files`."""

from .files import *  # noqa: F403
from .files import wait_for_lock as in_turn  # noqa: F401
