"""The license that a model's weights can carry. It is unsettled whether trained weights are an adaptation of their
training data; they are an adaptation of the weights that training started from. The strictest of these licenses is
correct either way, so the weights get it. For licenses outside this order, a person decides."""

import re
from collections.abc import Sequence

from ..utils.errors import PublishError
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
_STRICTNESS = {license.lower(): rank for rank, license in enumerate(_WEIGHTS)}
# What licenses forbid for derived weights, by parts of the Hub's identifiers.
_NON_COMMERCIAL = re.compile(r"-nc-|noncommercial|research|apple-amlr|deepfloyd")
_NO_DERIVATIVES = re.compile(r"-nd-")
_PASSED_ON = re.compile(r"openrail|bloom-rail|^gemma|^llama")
_RULES = {
    _NON_COMMERCIAL: "not for commercial use",
    _NO_DERIVATIVES: "changed weights may not be published",
    re.compile(r"-sa-|^a?gpl|cdla-sharing|^odbl|^osl-"): (
        "changed weights may be published only under the same license"
    ),
    _PASSED_ON: "its rules for use hold for changed weights as well: pass them on with the weights",
}
_PERMISSIVE = re.compile(
    r"^(apache|mit$|bsd|cc0|cc-by-\d|isc|mpl|lgpl|unlicense|wtfpl|zlib|odc-by|pddl|cdla-perm|epl|eupl)"
)


def check_hub_license(license: str, name: str | None = None) -> None:
    """Checks that a license is written as the Hub identifies it, and that only `other` has its own name."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9.+-]*", license):
        raise PublishError(
            f"{license!r} is not a license identifier of the Hub, such as 'apache-2.0' or 'cc-by-4.0'; use 'other' "
            "for a license without one"
        )
    if name is not None and license != OTHER:
        raise PublishError(f"license_name requires license: {OTHER}; {license} has a name")


def weights_license(sources: Sequence[DataSource], base_models: Sequence[BaseModel] = ()) -> str:
    """Returns the Hub identifier of the license for weights that started from `base_models` and were trained on
    `sources`."""
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
    """Returns what the license of a base model forbids to weights that are made from it; empty if nothing."""
    if base.license == UNKNOWN:
        return "its license is not known: ask its authors before you use or publish the weights"
    rules = [rule for pattern, rule in _RULES.items() if pattern.search(base.license)]
    if not rules and not _PERMISSIVE.search(base.license):
        return "on terms of its own: read them before you use or publish the weights"
    return "; ".join(rules)


def check_weights_license(license: str | None, base_models: Sequence[BaseModel]) -> None:
    """Checks that a license of weights allows nothing that the license of a base model forbids: a reader would take
    `apache-2.0` on a base for research as a permission to sell. State an agreement with the makers of the base model
    as `other` with a `license_name`. The licenses `other` and `unknown` cannot be compared."""
    for base in base_models:
        if OTHER in (license, base.license) or UNKNOWN in (license, base.license):
            continue
        if license is None:
            _strictness_of_base(base)
            continue
        forbids_changes = bool(_NO_DERIVATIVES.search(base.license))
        is_freer = (
            forbids_changes
            or (_NON_COMMERCIAL.search(base.license) and not _NON_COMMERCIAL.search(license))
            or (_PASSED_ON.search(base.license) and license != base.license)
        )
        if is_freer:
            own = "" if forbids_changes else f"{base.license!r}, or "
            raise PublishError(
                f"the weights cannot be under {license!r}: {base.name}, which training starts from, is under "
                f"{base.license!r} ({what_it_forbids(base)}); state {own}{OTHER!r} with a license_name if its makers "
                "permit more"
            )
