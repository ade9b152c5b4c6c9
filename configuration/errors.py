"""The former place of `babelens.utils.errors`, for programs that import them from here."""

from ..utils.errors import *  # noqa: F403
