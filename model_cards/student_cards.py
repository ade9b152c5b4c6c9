"""The card of a model that acquired languages by a student: a text encoder beside a frozen dual encoder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2

from .base_models import BaseModel
from .card_text import CompactCard, CompactCardData, cell, code, save_card
from .cards import placeholder_repository
from .facts import PIPELINE_TAG
from .licenses import check_weights_license, what_it_forbids
from .public_names import without_paths

_TEMPLATE = Path(__file__).with_name("student.md.jinja")


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
    text = environment.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(
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
