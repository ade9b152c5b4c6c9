"""What RC3's processor and models refuse, as types to catch."""


class VisualInputError(ValueError):
    """Regions or pixels that a model has no layer for, or that are not of its size."""


class RegionCountError(VisualInputError):
    """A picture without regions, or with more of them than the model takes."""


class ImageCountError(VisualInputError):
    """One picture where a model compares two, or two where it reads one."""


class MissingLanguageError(ValueError):
    """A text that does not end with a language's token, or one to be written in no language."""


class LabelError(ValueError):
    """A label, or an answer, that a task does not have."""
