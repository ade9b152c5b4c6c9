"""Settings of the linear layers between pooled texts and a shared space."""

from typing import Any


def check_text_head(config: Any) -> None:
    """Checks `text_hidden_size` and `text_dropout` of a configuration.

    Raises:
        ValueError: if one of them is impossible.
    """
    if config.text_hidden_size is not None and config.text_hidden_size < 1:
        raise ValueError(f"text_hidden_size={config.text_hidden_size} must be at least 1")
    check_dropout(config, "text_dropout")


def check_dropout(config: Any, name: str) -> None:
    """Checks a probability of dropout.

    Raises:
        ValueError: if it is impossible.
    """
    if not 0 <= getattr(config, name) < 1:
        raise ValueError(f"{name}={getattr(config, name)} must be a probability below 1")
