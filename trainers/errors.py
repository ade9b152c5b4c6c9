"""What a trainer cannot use: settings, data and a model that do not fit each other."""

from ..configuration.errors import BabelensError


class TrainingSetupError(BabelensError, ValueError):
    """Settings, data and a model that cannot be trained together; the message names what does not fit."""
