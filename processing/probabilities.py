"""What settings of training-time changes have in common."""


def check_probabilities(**values: float) -> None:
    """
    Raises:
        ValueError: for the first that is not between 0 and 1, by its name.
    """
    for name, value in values.items():
        if not 0 <= value <= 1:
            raise ValueError(f"{name}={value} is no probability, between 0 and 1")
