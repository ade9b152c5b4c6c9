"""The former location of `babelens.utils.errors`, kept for programs that import from here."""

from ..utils.errors import *  # noqa: F403
