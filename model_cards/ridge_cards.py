"""The card of a model that learned languages in closed form."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from .base_models import BaseModel
from .card_text import CompactCard, CompactCardData, cell, code, save_card
from .cards import placeholder_repository
from .facts import PIPELINE_TAG
from .licenses import check_weights_license, what_it_forbids
from .public_names import without_paths

_OF_IMAGES = ["vision-language", "image-text-retrieval"]
_TEMPLATE = Path(__file__).with_name("ridge.md.jinja")


@dataclass(frozen=True, kw_only=True)
class RidgeCardFacts:
    """The facts of the card.

    Args:
        name: the model's, without an owner.
        languages: BCP-47 tags of all learned languages.
        native_language: BCP-47 tag of the language that the base reads.
        base_models: what it was made of, with licenses: the base and, if there is one, the text encoder.
        has_encoder: whether a text encoder reads the languages too.
        results: of the languages that were learned now, each a `LanguageResult`.
        command: that learned them.
        names: languages of CLDR's names of emoji that were learned from too.
        any_language: whether texts in all languages that the text encoder reads are embedded.
        embeds_images: whether the base is a dual encoder, and not vectors whose model is elsewhere.
        license: of the weights, a Hub identifier.
    """

    name: str
    languages: Sequence[str]
    native_language: str
    base_models: Sequence[BaseModel]
    has_encoder: bool
    results: Mapping[str, Any]
    command: str
    names: Sequence[str] = ()
    any_language: bool = False
    embeds_images: bool = True
    license: str = "other"

    @property
    def weights(self) -> Sequence[BaseModel]:
        """Those whose weights are in the model."""
        return self.base_models if self.embeds_images else self.base_models[1:]

    @property
    def repo_id(self) -> str:
        return placeholder_repository(self.name)


def write_ridge_card(folder: str | Path, facts: RidgeCardFacts) -> Path:
    """Writes `README.md` into a model's folder.

    Raises:
        PublishError: if the model's license is freer than that of a model that it began with.
    """
    facts = without_paths(facts)
    check_weights_license(facts.license, facts.weights)
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters |= {"cell": cell, "code": code}
    text = environment.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(
        facts=facts, what_it_forbids=what_it_forbids
    )
    on_hub = [base.name for base in facts.weights if base.on_hub]  # what lies elsewhere cannot be linked to
    tags = [facts.native_language, *facts.languages]
    codes = list(dict.fromkeys(tag.partition("-")[0] for tag in tags))
    metadata = CompactCardData(
        language=codes,
        license=facts.license,
        library_name="transformers",
        pipeline_tag=PIPELINE_TAG if facts.embeds_images else "feature-extraction",
        base_model=on_hub or None,
        base_model_relation="finetune" if on_hub else None,
        tags=["babelens", "ridge", "multilingual", *(_OF_IMAGES if facts.embeds_images else ["sentence-similarity"])],
        model_name=facts.name,
        **({"language_bcp47": tags} if codes != tags else {}),
    )
    return save_card(CompactCard(f"---\n{metadata.to_yaml()}\n---\n\n{text}"), folder)
