"""The card of an MLA adapter: one language for a base model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2

from .base_models import BaseModel
from .card_text import CompactCard, CompactCardData, cell, code, save_card
from .cards import placeholder_repository
from .facts import PIPELINE_TAG
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


# ---- Student cards ----
# The card of a model that acquired languages by a student: a text encoder beside a frozen dual encoder.

_STUDENT_TEMPLATE = Path(__file__).with_name("student.md.jinja")


@dataclass(frozen=True, kw_only=True)
class StudentCardFacts:
    """The facts of the card.

    Args:
        name: the model's, without an owner.
        languages: BCP-47 tags of the acquired languages.
        native_language: BCP-47 tag of the language that the base reads.
        base, text_encoder: the models that it began with, with their licenses (`base_model_facts`).
        strategy: as in `MlaStudentConfig`.
        trained_layers: number of the text encoder's upper layers that were trained with the projection; None if the
            strategy says it.
        keeps_native: whether the base model reads texts in the native language.
        parameters: of the whole model.
        trained_parameters: those that were trained.
        pairs: rows of translations that it was trained on.
        exposed: whether language exposure followed.
        results: by language `pairs`, `r1`, `r10` of retrieving held-out translations; empty without.
        command: that trained it.
        precision: that training computed in, and why.
        license: of the weights, a Hub identifier.
    """

    name: str
    languages: Sequence[str]
    native_language: str
    base: BaseModel
    text_encoder: BaseModel
    strategy: str
    keeps_native: bool
    parameters: int
    trained_parameters: int
    pairs: int
    exposed: bool
    results: Mapping[str, Mapping[str, float]]
    command: str
    trained_layers: int | None = None
    precision: str = ""
    license: str = "other"

    @property
    def base_models(self) -> list[BaseModel]:
        """The models that it began with."""
        return [self.base, self.text_encoder]

    @property
    def repo_id(self) -> str:
        return placeholder_repository(self.name)


def write_student_card(folder: str | Path, facts: StudentCardFacts) -> Path:
    """Writes `README.md` into a model's folder.

    Raises:
        PublishError: if the model's license is freer than that of a model that it began with.
    """
    facts = without_paths(facts)
    check_weights_license(facts.license, facts.base_models)
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters |= {"cell": cell, "code": code}
    text = environment.from_string(_STUDENT_TEMPLATE.read_text(encoding="utf-8")).render(
        facts=facts, what_it_forbids=what_it_forbids
    )
    on_hub = [base.name for base in facts.base_models if base.on_hub]  # what lies elsewhere cannot be linked to
    tags = [facts.native_language, *facts.languages]
    codes = list(dict.fromkeys(tag.partition("-")[0] for tag in tags))
    metadata = CompactCardData(
        language=codes,
        license=facts.license,
        library_name="transformers",
        pipeline_tag=PIPELINE_TAG,
        base_model=on_hub or None,
        base_model_relation="finetune" if on_hub else None,
        tags=[
            "babelens",
            "sentence-transformers",
            "mla_student",
            "vision-language",
            "multilingual",
            "image-text-retrieval",
        ],
        model_name=facts.name,
        **({"language_bcp47": tags} if codes != tags else {}),
    )
    return save_card(CompactCard(f"---\n{metadata.to_yaml()}\n---\n\n{text}"), folder)
