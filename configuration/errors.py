"""The root of every error that the user can mend."""


class BabelensError(Exception):
    """What is wrong with the user's data, settings, files or machine; the message says what, where, and what would be
    right.

    Each error also has the built-in type that fits it, such as `ValueError`. The command line shows these as one
    sentence; anything else is a mistake of babelens itself and keeps its traceback.
    """
