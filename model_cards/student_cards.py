"""The card of a model that acquired languages by a student: a text encoder beside a frozen dual encoder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2
from huggingface_hub import ModelCard, ModelCardData

from .cards import placeholder_repository
from .facts import PIPELINE_TAG

_TEMPLATE = Path(__file__).with_name("student.md.jinja")


@dataclass(frozen=True, kw_only=True)
class StudentCardFacts:
    """The facts of the card.

    Args:
        name: the model's, without an owner.
        languages: BCP-47 tags of the acquired languages.
        native_language: BCP-47 tag of the language that the base reads.
        base_model, text_encoder: folders or Hub ids.
        strategy: as in `MlaStudentConfig`.
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
    base_model: str
    text_encoder: str
    strategy: str
    keeps_native: bool
    parameters: int
    trained_parameters: int
    pairs: int
    exposed: bool
    results: Mapping[str, Mapping[str, float]]
    command: str
    precision: str = ""
    license: str = "other"

    @property
    def repo_id(self) -> str:
        return placeholder_repository(self.name)


def write_student_card(folder: str | Path, facts: StudentCardFacts) -> Path:
    """Writes `README.md` into a model's folder."""
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    text = environment.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(facts=facts)
    tags = [facts.native_language, *facts.languages]
    codes = list(dict.fromkeys(tag.partition("-")[0] for tag in tags))
    metadata = ModelCardData(
        language=codes,
        license=facts.license,
        library_name="transformers",
        pipeline_tag=PIPELINE_TAG,
        base_model=[facts.base_model, facts.text_encoder],
        base_model_relation="finetune",
        tags=["babelens", "mla_student", "vision-language", "multilingual", "image-text-retrieval"],
        model_name=facts.name,
        **({"language_bcp47": tags} if codes != tags else {}),
    )
    path = Path(folder) / "README.md"
    ModelCard(f"---\n{metadata.to_yaml()}\n---\n\n{text}").save(path)
    return path
