"""The errors of babelens inherit from `BabelensError` and from a matching built-in type. Their messages name the
problem, its location, and the correct form; the command line shows them as one sentence."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches


class BabelensError(Exception):
    """Base class of every error that the user can correct; any other exception is a bug, with its traceback."""


class MissingExtraError(BabelensError, ImportError):
    """A package from one of babelens' extras is not installed."""


@contextmanager
def requires(*packages: str) -> Iterator[None]:
    """Names the packages to install if an import in the block fails."""
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(f"{error}: pip install {' '.join(packages)}") from error


class CorpusError(BabelensError, ValueError):
    """Images, captions, translations or task data cannot be used."""


class SourceUnavailableError(BabelensError, OSError):
    """Data or a model could not be fetched, or data do not match their pinned checksum."""


class LanguageTagError(BabelensError, ValueError):
    """A language tag is not a BCP-47 tag of the IANA registry, or names a language that a model or data set lacks."""


class InputError(BabelensError, ValueError):
    """Inputs, settings, weights or vocabularies cannot be used, or do not belong together."""


class ImageError(InputError):
    """An image cannot be read, or has an unusable size or unusable values."""


class ModelFolderError(BabelensError, OSError):
    """A folder or a repository contains no model, processor or adapter, a damaged one, or code that may not run."""


class ModelKindError(BabelensError, TypeError):
    """A model is of the wrong kind, such as a language model instead of a dual encoder."""


class RecipeError(BabelensError, ValueError):
    """A recipe cannot be run; the message names the file, the key, the given value and a correct one."""


class SaveError(BabelensError, OSError):
    """A folder cannot be written: it is read-only, the disk is full, or another process writes to it."""


class PublishError(BabelensError, ValueError):
    """A folder cannot be published: a file is missing, its license is unknown, or its code cannot be exported."""


# ---- Parts of messages ----


def did_you_mean(given: object, known: Iterable[str], prefix: str = "") -> str:
    """Returns the ending for an error about an unknown name, such as `; did you mean 'mural'?` for `murral`, or "".
    `prefix` comes before the suggested name, such as `text_config.`."""
    nearest = get_close_matches(str(given), list(known), n=1)
    return suggestion(prefix + nearest[0]) if nearest else ""


def suggestion(name: str) -> str:
    return f"; did you mean {name!r}?"


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's message, without the advice that libraries add on other lines."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
