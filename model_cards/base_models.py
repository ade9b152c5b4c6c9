"""The models whose weights a model started from, and their licenses as their own cards (in the folder or on the Hub)
state them; otherwise `unknown`: nothing is guessed from the kind or the name of a model."""

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import ModelCard, ModelInfo, model_info, try_to_load_from_cache
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import httpx, validate_repo_id

from ..utils.errors import LanguageTagError, first_line
from ..utils.languages import normalize_language

logger = logging.getLogger(__name__)

UNKNOWN = "unknown"
WHOLE_MODEL, IMAGE_TOWER, TEXT_TOWER = "model", "image tower", "text tower"
EARLIER = "earlier languages"
MULTILINGUAL = "multilingual"  # what cards say in addition to a list of languages, or instead of one
_CARD = "README.md"
_HUB_ANSWERS_WITHIN = 5.0  # seconds


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
