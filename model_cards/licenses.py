"""Which license the weights of a model can carry, given the licenses of its training data and of the models that it
started from.

It is unsettled whether trained weights are an adaptation of what they were trained on; of the weights that they were
made from they are one. The weights get the license that is right in either reading: the strictest of them all.
Licenses outside of that order are for people to decide.
"""

from collections.abc import Sequence

from ..utils.errors import PublishError, did_you_mean
from .base_models import UNKNOWN, BaseModel
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
# Licenses of base models that forbid something to what is made from their weights, by identifiers of the Hub.
_NON_COMMERCIAL = frozenset(
    [
        *(license for license in HUB_LICENSES if license.startswith("cc-by-nc-")),
        "apple-amlr",
        "deepfloyd-if-license",
        "fair-noncommercial-research-license",
        "h-research",
        "intel-research",
    ]
)
_NO_DERIVATIVES = frozenset(license for license in HUB_LICENSES if "-nd-" in license)
_SHARE_ALIKE = frozenset(
    [license for license in HUB_LICENSES if "-sa-" in license]
    + "agpl-3.0 cdla-sharing-1.0 gpl gpl-2.0 gpl-3.0 odbl osl-3.0".split()  # noqa: SIM905
)
# Licenses with rules for use that have to be passed on with what is made from the weights.
_PASSED_ON = frozenset(
    """
    bigcode-openrail-m bigscience-bloom-rail-1.0 bigscience-openrail-m creativeml-openrail-m gemma llama2 llama3
    llama3.1 llama3.2 llama3.3 llama4 openrail openrail++
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
        hint = did_you_mean(license.lower(), HUB_LICENSES)
        raise PublishError(
            f"{license!r} is no license that the Hub has an identifier for{hint}; such are 'apache-2.0' and "
            "'cc-by-4.0', and 'other' is for any that has none"
        )
    if name is not None and license != OTHER:
        raise PublishError(f"license_name is for license: {OTHER}, and not for {license}, which has a name")


def weights_license(sources: Sequence[DataSource], base_models: Sequence[BaseModel] = ()) -> str:
    """The Hub identifier of the license for weights that started from `base_models` and were trained on `sources`.

    Raises:
        PublishError: for data or a base model whose license has no place in the order, or without any data.
    """
    if not sources:
        raise PublishError("no training data is named: state `license`, the license of the weights")
    ranks = [_strictness(source.name, source.license) for source in sources]
    ranks += [_strictness_of_base(base) for base in base_models]
    return list(_WEIGHTS.values())[max(ranks)]


def _strictness(name: str, license: str, forbids: str = "") -> int:
    if license.lower() not in _STRICTNESS:
        raise PublishError(
            f"{name} is under {license!r}{forbids and f' ({forbids})'}: a person must decide which license the "
            f"weights get; state `license`, the license of the weights. Known: {', '.join(_WEIGHTS)}"
        )
    return _STRICTNESS[license.lower()]


def _strictness_of_base(base: BaseModel) -> int:
    return _strictness(f"{base.name}, which training starts from,", base.license, what_it_forbids(base))


def what_it_forbids(base: BaseModel) -> str:
    """What the license of a base model forbids to weights that are made from it, in plain words; empty if nothing."""
    license, rules = base.license, []
    if license == UNKNOWN:
        return "its license is not known, so that its makers have to be asked before the weights are used or published"
    if license in _NON_COMMERCIAL:
        rules.append("not for commercial use")
    if license in _NO_DERIVATIVES:
        rules.append("changed weights may not be published")
    if license in _SHARE_ALIKE:
        rules.append("changed weights may be published under the same license only")
    if license in _PASSED_ON:
        rules.append("its rules for use hold for changed weights as well, and have to be passed on with them")
    if license == OTHER or license not in HUB_LICENSES:
        rules.append("on terms of its own, which have to be read before the weights are used or published")
    return "; ".join(rules)


def check_weights_license(license: str | None, base_models: Sequence[BaseModel]) -> None:
    """Checks that a license of weights allows nothing that the license of a base model forbids.

    Whoever publishes weights cannot give away rights that they do not have, and those who read the card's metadata
    alone would take `apache-2.0` on a base for research only as a permission to sell. A license that the Hub has no
    identifier for, such as one by agreement with the makers of the base model, is stated as `other` with a
    `license_name`, and the card shows the license of the base model beside it.

    Args:
        license: the license of the weights, as a person stated it; `None` if nobody did.
        base_models: the models that the weights start from.

    Raises:
        PublishError: if the license is freer than that of a base model that is non-commercial, allows no derivatives,
            or has rules for use that have to be passed on; and if none is stated, for a base model whose license has
            no place in the order. What is `other` or `unknown` cannot be compared.
    """
    for base in base_models:
        if OTHER in (license, base.license) or UNKNOWN in (license, base.license):
            continue
        if license is None:
            _strictness_of_base(base)
            continue
        is_freer = (
            base.license in _NO_DERIVATIVES
            or (base.license in _NON_COMMERCIAL and license not in _NON_COMMERCIAL)
            or (base.license in _PASSED_ON and license != base.license)
        )
        if is_freer:
            own = "" if base.license in _NO_DERIVATIVES else f"{base.license!r}, or "
            raise PublishError(
                f"the weights cannot be under {license!r}: {base.name}, which training starts from, is under "
                f"{base.license!r} ({what_it_forbids(base)}); state {own}{OTHER!r} with a license_name if its makers "
                "permit more"
            )
