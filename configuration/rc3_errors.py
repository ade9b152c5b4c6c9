"""What RC3 refuses about pictures and labels, as types to catch."""

from .errors import BabelensError


class VisualInputError(BabelensError, ValueError):
    """Visual inputs that a model has no layer for, or that are not of its size."""


class RegionError(VisualInputError):
    """Regions that cannot be used."""


class NoRegionsError(RegionError):
    """A picture that has regions, of which there are none. A picture that was never looked at is given as None."""


class TooManyRegionsError(RegionError):
    """A picture of more regions than the model has room for."""


class RegionSizeError(RegionError):
    """Features that are not as many numbers for each region as the model reads."""


class ImageCountError(VisualInputError):
    """One picture where a model compares two, or two where it reads one."""


class LabelError(BabelensError, ValueError):
    """A label, or an answer, that a task does not have."""


class CandidateError(BabelensError, ValueError):
    """Questions whose inputs are not of the same candidates."""
