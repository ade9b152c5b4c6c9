"""The errors of babelens inherit from `BabelensError` and from a matching built-in type. Their messages name the
problem, its location, and the correct form; the command line shows them as one sentence."""

from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches
from pathlib import Path


class BabelensError(Exception):
    """Base class of every error that the user can correct; any other exception is a bug, with its traceback."""


class MissingExtraError(BabelensError, ImportError):
    """A package from one of babelens' extras is not installed."""


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

_NAMED = 5  # maximum number of names in a message


def did_you_mean(given: object, known: Iterable[str], prefix: str = "") -> str:
    """Returns the ending for an error about an unknown name, such as `; did you mean 'mural'?` for `murral`, or "".
    `prefix` comes before the suggested name, such as `text_config.`."""
    nearest = get_close_matches(str(given), list(known), n=1)
    return suggestion(prefix + nearest[0]) if nearest else ""


def suggestion(name: str) -> str:
    return f"; did you mean {name!r}?"


def nearest_first(given: object, known: Iterable[str]) -> list[str]:
    """Returns the known names, first those most like the unknown one: similar, longer (`epochs`) or abbreviated
    (`lr`)."""
    wanted = str(given).lower()

    def unlikeness(name: str) -> float:
        initials = "".join(part[:1] for part in name.lower().split("_"))
        is_part = bool(wanted) and (wanted in name.lower() or wanted == initials)
        return -SequenceMatcher(None, wanted, name.lower()).ratio() - is_part

    return sorted(known, key=unlikeness)


def wrong_encoding(error: UnicodeDecodeError) -> str:
    kind = ", but UTF-16" if error.object[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in error.object else ""
    byte = f"byte 0x{error.object[error.start]:02x}"
    return f"not UTF-8{kind} ({byte} at position {error.start}): save the file as UTF-8"


def no_folder(source: str) -> str:
    """Returns the message for a model name that is neither a local folder nor a valid name on the Hub."""
    parent = Path(source).parent
    hint = did_you_mean(Path(source).name, [each.name for each in parent.iterdir()] if parent.is_dir() else [])
    return f"No folder {source!r} here{hint or '; names on the Hugging Face Hub are OWNER/NAME'}"


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's message, without the advice that libraries add on other lines."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def named(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
