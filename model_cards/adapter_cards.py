"""The card of an MLA adapter: one language for a base model."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import jinja2

from .base_models import BaseModel
from .card_text import CompactCard, CompactCardData, cell, code, save_card
from .cards import placeholder_repository
from .licenses import check_weights_license, what_it_forbids
from .public_names import paths_in, without_paths

_TEMPLATE = Path(__file__).with_name("adapter.md.jinja")


@dataclass(frozen=True, kw_only=True)
class AdapterCardFacts:
    """The facts of an adapter's card.

    Args:
        name: the adapter's, without an owner.
        language, native_language: BCP-47 tags.
        base_model: folder or Hub id.
        on_mla: whether the base model is an MLA model with languages already.
        parameters: of the adapter, without the shared embedding.
        trained_embedding: whether the shared embedding was trained with this language.
        embedding: its folder, below the adapter's.
        max_text_length: tokens that the text tower reads.
        pairs: translations that it was trained on.
        exposed: whether language exposure followed.
        results: `pairs`, `r1`, `r10` of retrieving held-out translations; empty without.
        command: that trained it.
        precision: that training computed in, and why.
        license: of the weights, a Hub identifier.
        base: the base model with its license (`base_model_facts`).
    """

    name: str
    language: str
    native_language: str
    base_model: str
    on_mla: bool
    parameters: int
    trained_embedding: bool
    embedding: str
    max_text_length: int
    pairs: int
    exposed: bool
    results: Mapping[str, float]
    command: str
    precision: str = ""
    license: str = "other"
    base: BaseModel | None = None

    @property
    def repo_id(self) -> str:
        return placeholder_repository(self.name)


def write_adapter_card(folder: str | Path, facts: AdapterCardFacts) -> Path:
    """Writes `README.md` into an adapter's folder.

    Raises:
        PublishError: if the adapter's license is freer than that of its base model.
    """
    is_local = bool(paths_in(facts.base_model))
    facts = without_paths(facts)
    check_weights_license(facts.license, [facts.base] if facts.base else [])
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters |= {"cell": cell, "code": code}
    text = environment.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(
        facts=facts, what_it_forbids=what_it_forbids
    )
    primary = facts.language.partition("-")[0]
    metadata = CompactCardData(
        language=[primary],
        license=facts.license,
        library_name="peft",
        pipeline_tag="zero-shot-image-classification",
        base_model=None if is_local else facts.base_model,
        base_model_relation=None if is_local else "adapter",
        tags=["babelens", "mla", "adapter", "vision-language", "multilingual"],
        model_name=facts.name,
        **({"language_bcp47": [facts.language]} if primary != facts.language else {}),
    )
    return save_card(CompactCard(f"---\n{metadata.to_yaml()}\n---\n\n{text}"), folder)
