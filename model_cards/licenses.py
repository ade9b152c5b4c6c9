"""Which license the weights of a model can carry, given the licenses of its training data.

It is unsettled whether trained weights are an adaptation of what they were trained on. The weights get the license
that is right in either reading: the strictest of the data's. Licenses outside of that order are for people to decide.
"""

import difflib
from collections.abc import Sequence

from ..configuration.errors import PublishError
from .facts import DataSource

OTHER = "other"

# From permissive to strict; the license of weights trained on data of that license and more permissive ones.
_WEIGHTS = {
    "CC0-1.0": "apache-2.0",
    "Unicode-3.0": "apache-2.0",
    "MIT": "apache-2.0",
    "Apache-2.0": "apache-2.0",
    "CC-BY-4.0": "cc-by-4.0",
    "CC-BY-SA-4.0": "cc-by-sa-4.0",
}
# What the Hub takes as `license`: https://huggingface.co/docs/hub/repositories-licenses
HUB_LICENSES = tuple(
    """
    apache-2.0 mit openrail bigscience-openrail-m creativeml-openrail-m bigscience-bloom-rail-1.0
    bigcode-openrail-m afl-3.0 artistic-2.0 bsl-1.0 bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear c-uda cc
    cc0-1.0 cc-by-2.0 cc-by-2.5 cc-by-3.0 cc-by-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc-by-nc-2.0 cc-by-nc-3.0
    cc-by-nc-4.0 cc-by-nd-4.0 cc-by-nc-nd-3.0 cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0
    cdla-sharing-1.0 cdla-permissive-1.0 cdla-permissive-2.0 wtfpl ecl-2.0 epl-1.0 epl-2.0 etalab-2.0 eupl-1.1
    eupl-1.2 agpl-3.0 gfdl gpl gpl-2.0 gpl-3.0 lgpl lgpl-2.1 lgpl-3.0 isc h-research intel-research lppl-1.3c
    ms-pl apple-ascl apple-amlr mpl-2.0 odc-by odbl openmdw-1.0 openrail++ osl-3.0 postgresql ofl-1.1 ncsa
    unlicense zlib pddl lgpl-lr deepfloyd-if-license fair-noncommercial-research-license llama2 llama3 llama3.1
    llama3.2 llama3.3 llama4 gemma unknown other
    """.split()  # noqa: SIM905
)
# By identifiers in small letters, as the Hub writes them.
_STRICTNESS = {license.lower(): rank for rank, license in enumerate(_WEIGHTS)}


def check_hub_license(license: str, name: str | None = None) -> None:
    """Checks the license of weights.

    Args:
        license: the license of the weights, as a card states it.
        name: its name, where the Hub has no identifier for it.

    Raises:
        PublishError: for a license without an identifier of the Hub, and for a name beside an identifier.
    """
    if license not in HUB_LICENSES:
        nearest = difflib.get_close_matches(license.lower(), HUB_LICENSES, n=1)
        hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
        raise PublishError(
            f"{license!r} is no license that the Hub has an identifier for{hint}; such are 'apache-2.0' and "
            "'cc-by-4.0', and 'other' is for any that has none"
        )
    if name is not None and license != OTHER:
        raise PublishError(f"license_name is for license: {OTHER}, and not for {license}, which has a name")


def weights_license(sources: Sequence[DataSource]) -> str:
    """The Hub identifier of the license for weights trained on `sources`.

    Raises:
        PublishError: for data whose license has no place in the order, or without any data.
    """
    if not sources:
        raise PublishError("no training data is named: state `license`, the license of the weights")
    for source in sources:
        if source.license.lower() not in _STRICTNESS:
            raise PublishError(
                f"{source.name} is under {source.license!r}: a person must decide which license the weights get; "
                f"state `license`, the license of the weights. Known: {', '.join(_WEIGHTS)}"
            )
    return list(_WEIGHTS.values())[max(_STRICTNESS[source.license.lower()] for source in sources)]
