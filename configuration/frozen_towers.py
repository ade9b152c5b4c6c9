"""The towers of MURAL and ETCL by name, and the towers that a configuration freezes."""

from collections.abc import Iterable

from .suggestions import did_you_mean

# Name of a tower -> the model's attribute that holds it.
TOWERS = {"image": "vision_model", "text": "text_model"}


def checked_towers(names: Iterable[str]) -> list[str]:
    """Returns names of towers as a list without repetitions.

    Raises:
        ValueError: for a name that no tower has.
    """
    for name in names:
        if name not in TOWERS:
            raise ValueError(f"freeze: there is no tower {name!r}{did_you_mean(name, TOWERS)}; there are: image, text")
    return list(dict.fromkeys(names))
