"""Checks of probabilities, which several settings of training share."""


def check_probabilities(**values: float) -> None:
    """Checks that all values are probabilities.

    Args:
        values: the values by their names.

    Raises:
        ValueError: for the first one that is not between 0 and 1; the message names it.
    """
    for name, value in values.items():
        if not 0 <= value <= 1:
            raise ValueError(f"{name}={value} must be a probability, between 0 and 1")
