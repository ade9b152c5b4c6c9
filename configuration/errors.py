"""Every error of babelens, as types to catch.

All have the root `BabelensError`, and the built-in type that fits them, such as `ValueError`. Their messages name what
is wrong, where, and what would be right; the command line shows them as one sentence.
"""


class BabelensError(Exception):
    """Base class of every error that the user can correct: wrong data, settings, files or environment.

    Any other exception is a defect of babelens itself, and keeps its traceback on the command line.
    """


# ---- Installation ----


class MissingExtraError(BabelensError, ImportError):
    """A package of one of babelens' extras is needed and is not installed; the message names the extra to install."""


# ---- Data ----


class CorpusError(BabelensError, ValueError):
    """Captions, translations or the data of a task cannot be used; the message names the file and the row."""


class BadImageError(CorpusError):
    """An image of a corpus is missing, truncated, unreadable, or too large to be decoded safely."""


class BadTextError(CorpusError):
    """A caption is empty, longer than a caption can be, or not Unicode text."""


class BenchmarkError(CorpusError):
    """A benchmark is unknown, does not have a language, or a folder does not hold it as it was published; the message
    names what is missing."""


class SourceUnavailableError(BabelensError, OSError):
    """Data could not be fetched: the registry did not answer, or it sent something else than what was pinned."""


# ---- Languages ----


class LanguageTagError(BabelensError, ValueError):
    """A language tag is not a BCP-47 tag of the IANA registry."""


class UnknownLanguageError(BabelensError, ValueError):
    """A model, an adapter or a data set does not have the language that was asked for."""


class MissingLanguageError(BabelensError, ValueError):
    """A text came without its language, and the model cannot read it without one."""


# ---- Calls of models and processors ----


class InputError(BabelensError, ValueError):
    """A model, a processor or an evaluation was given inputs that it cannot use, or too few of them."""


class ImageError(InputError):
    """An image cannot be read, or has a size or values that cannot be used."""


class RegionError(InputError):
    """The region features of an image are missing, or not of the form that the model reads."""


class UnknownImageError(RegionError, KeyError):
    """No file has region features of the image that was asked for; a `KeyError`, so that `get` returns its default."""

    __str__ = Exception.__str__  # KeyError would put the message in quotation marks


class ArgumentError(BabelensError, TypeError):
    """A call has a keyword argument that the model or the processor does not know, or cannot use."""


# ---- Models, adapters and vocabularies ----


class ModelFolderError(BabelensError, OSError):
    """A folder or a repository holds no model, processor or adapter that can be loaded, or a damaged one."""


class HubUnreachableError(ModelFolderError):
    """The Hub could not be asked for a model, and no copy of it is at hand."""


class UntrustedCodeError(ModelFolderError):
    """A model comes with code of its own, and the user has not allowed that it is run."""


class ModelKindError(BabelensError, TypeError):
    """A model is of another kind than what was asked for, such as a language model in the place of a dual encoder."""


class ModelMismatchError(BabelensError, ValueError):
    """Weights or embeddings do not belong together: an adapter and the model it was made for, an embedding and its
    vocabulary, the vectors of an index and a query of another model."""


class VocabularyError(BabelensError, ValueError):
    """A tokenizer, a word list, a dictionary or word vectors cannot serve as a model's vocabulary."""


# ---- Training ----


class RecipeError(BabelensError, ValueError):
    """A recipe cannot be run; the message names the file, the key, what was given and what would be right."""


class TrainingSetupError(BabelensError, ValueError):
    """Settings, data, a model and a machine do not fit each other; the message names what does not fit."""


class ChangedRunError(TrainingSetupError):
    """The data or settings of a run to resume are not those that it began with."""


class NonFiniteError(BabelensError, FloatingPointError, ValueError):
    """A loss, a gradient, weights, embeddings or scores hold NaN or infinity."""


class SaveError(BabelensError, OSError):
    """Nothing can be saved to a folder: it is not writable, the disk is full, or another process writes to it."""


class DamagedCheckpointError(BabelensError, ValueError):
    """A checkpoint is incomplete or damaged."""


class ComparisonError(BabelensError, ValueError):
    """Results cannot be compared: there are none, or they are of different queries."""


# ---- Search ----


class SearchIndexError(BabelensError, ValueError):
    """A folder or an address holds no search index, a damaged one, or one that cannot do what was asked for."""


class FilterError(SearchIndexError):
    """A filter by metadata cannot be read, or does not fit the columns of the index."""


# ---- Publishing ----


class PublishError(BabelensError, ValueError):
    """A folder cannot be published: a file is missing, its license is unknown, or its code cannot travel with it."""


# ---- Serving ----


class ServingError(BabelensError, OSError):
    """A server cannot be started: its port is taken, its host is not one of this machine, or it needs a token."""


class ServerBusyError(ServingError):
    """A server has so many queries to answer that it takes no further one."""
