"""What models refuse about how they are called, as types to catch."""

from .errors import BabelensError


class UnknownKeywordError(BabelensError, TypeError):
    """A keyword that neither the model nor transformers knows, or one that the model cannot use."""


class MissingInputError(BabelensError, ValueError):
    """A call without the inputs that the model reads."""
