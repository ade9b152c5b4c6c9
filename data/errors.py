"""What can be wrong with data people bring: every error says what and where."""

from ..configuration.errors import BabelensError


class CorpusError(BabelensError, ValueError):
    """Captions or translations that cannot be used; the message names the file and the row."""


class BadImageError(CorpusError):
    """A picture that is missing, truncated, unreadable, or too large to decode safely."""


class BadTextError(CorpusError):
    """A caption that is empty, longer than a caption can be, or no Unicode text."""


class SourceUnavailableError(BabelensError, OSError):
    """Data that had to be fetched and could not be: the registry did not answer, or sent something else than what was
    pinned."""
