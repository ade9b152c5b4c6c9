"""What a processor refuses."""

from ..configuration.errors import BabelensError


class ProcessorInputError(BabelensError, ValueError):
    """A call of a processor that says too little, or something that cannot be done."""


class TextInputError(ProcessorInputError):
    """What is no text, or a text that cannot be encoded; the message says where it stands."""


class UnknownArgumentError(BabelensError, TypeError):
    """A keyword that a processor does not know, of which nothing may be ignored in silence."""
