"""Which licence the weights of a model can carry, given the licences of its training data.

It is unsettled whether trained weights are an adaptation of what they were trained on. The weights get the licence
that is right in either reading: the strictest of the data's. Licences outside of that order are for people to decide.
"""

from collections.abc import Sequence

from .facts import DataSource

# From permissive to strict; the licence of weights trained on data of that licence and more permissive ones.
_WEIGHTS = {
    "CC0-1.0": "apache-2.0",
    "Unicode-3.0": "apache-2.0",
    "MIT": "apache-2.0",
    "Apache-2.0": "apache-2.0",
    "CC-BY-4.0": "cc-by-4.0",
    "CC-BY-SA-4.0": "cc-by-sa-4.0",
}
_STRICTNESS = {license: rank for rank, license in enumerate(_WEIGHTS)}


def weights_license(sources: Sequence[DataSource]) -> str:
    """The Hub identifier of the licence for weights trained on `sources`.

    Raises:
        ValueError: for data whose licence has no place in the order, or without any data.
    """
    if not sources:
        raise ValueError("no training data is named: state `license`, the licence of the weights")
    for source in sources:
        if source.license not in _STRICTNESS:
            raise ValueError(
                f"{source.name} is under {source.license!r}: what follows for the weights is for people to decide; "
                f"state `license`, the licence of the weights. Known: {', '.join(_WEIGHTS)}"
            )
    return _WEIGHTS[max((source.license for source in sources), key=_STRICTNESS.__getitem__)]
