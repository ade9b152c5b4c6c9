"""The data and the models that a model was made from, and the license that its weights can carry. The licenses of
models are those that their own cards (in the folder or on the Hub) state; otherwise `unknown`: nothing is guessed from
the kind or the name of a model."""

import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import ModelCard, ModelInfo, model_info, try_to_load_from_cache
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import httpx, validate_repo_id

from ..utils.errors import LanguageTagError, PublishError, first_line
from ..utils.languages import normalize_language

logger = logging.getLogger(__name__)

UNKNOWN = "unknown"
WHOLE_MODEL, IMAGE_TOWER, TEXT_TOWER = "model", "image tower", "text tower"
EARLIER = "earlier languages"
MULTILINGUAL = "multilingual"  # what cards say in addition to a list of languages, or instead of one
_CARD = "README.md"
_HUB_ANSWERS_WITHIN = 5.0  # seconds


@dataclass(frozen=True, kw_only=True)
class DataSource:
    """Training data: its SPDX license, its role (`images`, `translations`), who made it, and its address."""

    name: str
    license: str
    role: str
    attribution: str
    url: str | None = None


@dataclass(frozen=True, kw_only=True)
class BaseModel:
    """A model whose weights another model started from.

    Args:
        name: its repository on the Hub (`on_hub`), or the name of its folder.
        license: an identifier of the Hub; `unknown` if its card states none, `other` with a `license_name`.
        role: the part that it became: `model`, `image tower`, `text tower`, or `earlier languages`.
        languages: those on its card, and `multilingual` if the card says so.
    """

    name: str
    license: str = UNKNOWN
    license_name: str | None = None
    role: str = WHOLE_MODEL
    on_hub: bool = False
    languages: tuple[str, ...] = ()

    @property
    def named_license(self) -> str:
        return f"{self.license} ({self.license_name})" if self.license_name else self.license


def base_model_facts(source: str | Path, role: str = WHOLE_MODEL) -> BaseModel:
    """Returns the facts of a model from its card. A folder of the Hub's cache has the name of its repository."""
    folder = Path(source).resolve()
    if folder.exists():
        # A snapshot in the Hub's cache is `models--owner--name/snapshots/REVISION`.
        kind, _, name = folder.parent.parent.name.partition("--")
        on_hub = kind == "models" and folder.parent.name == "snapshots"
        return _facts(name.replace("--", "/") if on_hub else folder.name, role, _metadata_in(folder / _CARD), on_hub)
    try:
        validate_repo_id(str(source))
    except HFValidationError:  # a folder that is no longer there
        return BaseModel(name=folder.name, role=role)
    return _facts(str(source), role, _metadata_on_hub(str(source)), on_hub=True)


def _facts(name: str, role: str, metadata: Mapping[str, Any], on_hub: bool) -> BaseModel:
    license, license_name = metadata.get("license"), metadata.get("license_name")
    if isinstance(license, list):  # several, which a person must read
        license, license_name = "other", ", ".join(str(each) for each in license)
    stated, languages = metadata.get("language"), dict[str, None]()
    for tag in [stated] if isinstance(stated, str) else stated if isinstance(stated, list) else []:
        with suppress(LanguageTagError):  # of others' cards
            languages[tag if tag == MULTILINGUAL else normalize_language(str(tag))] = None
    return BaseModel(
        name=name,
        license=str(license).lower() if license else UNKNOWN,
        license_name=str(license_name) if license and license_name else None,
        role=role,
        on_hub=on_hub,
        languages=tuple(languages),
    )


def _metadata_in(card: Path) -> dict[str, Any]:
    if not card.is_file():
        return {}
    try:
        return ModelCard.load(card, ignore_metadata_errors=True).data.to_dict()
    except (OSError, ValueError, TypeError, AttributeError, yaml.YAMLError) as error:  # whatever the file may hold
        logger.warning("%s cannot be read, so the license of this model is unknown: %s", card, first_line(error))
        return {}


def _metadata_on_hub(repository: str) -> dict[str, Any]:
    try:
        found: ModelInfo = model_info(repository, timeout=_HUB_ANSWERS_WITHIN)
        return found.card_data.to_dict() if found.card_data else {}
    except (httpx.HTTPError, OSError, ValueError) as error:
        cached = try_to_load_from_cache(repository, _CARD)
        if isinstance(cached, str):
            return _metadata_in(Path(cached))
        reason = first_line(error)
        logger.warning("the license of %s is unknown, because its card could not be fetched: %s", repository, reason)
        return {}


# ---- The license of the weights ----
# It is unsettled whether trained weights are an adaptation of their training data; they are an adaptation of the
# weights that training started from. The strictest of these licenses is correct either way, so the weights get it. For
# licenses outside this order, a person decides.

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
    """Returns the license, as the Hub names it, for weights that started from models and were trained on sources."""
    if not sources:
        raise PublishError("no training data is named: state `license`, the license of the weights")
    ranks = [*map(_strictness, sources), *map(_strictness, base_models)]
    return list(_WEIGHTS.values())[max(ranks)]


def _strictness(origin: DataSource | BaseModel) -> int:
    """Returns the place of a license in the order from permissive to strict."""
    license = origin.license
    if license.lower() not in _STRICTNESS:
        name, forbids = origin.name, ""
        if isinstance(origin, BaseModel):
            name, forbids = f"{name}, which training starts from,", what_it_forbids(origin)
        raise PublishError(
            f"{name} is under {license!r}{forbids and f' ({forbids})'}: a person must decide which license the "
            f"weights get; state `license`, the license of the weights. Known: {', '.join(_WEIGHTS)}"
        )
    return _STRICTNESS[license.lower()]


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
            _strictness(base)
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
