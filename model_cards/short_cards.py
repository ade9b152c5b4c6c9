"""The short cards: of an adapter, of a model that acquired languages by a student or in closed form, and of one that
transformers' own `push_to_hub` pushes.

Each has a template of its own and few facts. A model that a recipe trained has the card of `cards.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2

from .base_models import BaseModel
from .card_text import CompactCard, CompactCardData, cell, code, paths_in, save_card, without_paths
from .cards import placeholder_repository
from .facts import PIPELINE_TAG, TrainingRun
from .licenses import check_weights_license, what_it_forbids

_OF_IMAGES = ["vision-language", "image-text-retrieval"]


def _rendered(template: str, metadata: CompactCardData, **given: Any) -> CompactCard:
    """A card with the text that a template of this folder makes."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"cell": cell, "code": code}
    text = environment.get_template(template).render(given, what_it_forbids=what_it_forbids)
    return CompactCard(f"---\n{metadata.to_yaml()}\n---\n\n{text}")


def _codes(tags: Sequence[str]) -> list[str]:
    """The ISO 639 codes of BCP-47 tags, each once: `language` takes no others."""
    return list(dict.fromkeys(tag.partition("-")[0] for tag in tags))


def _full_tags(tags: Sequence[str]) -> dict[str, list[str]]:
    """`language_bcp47`, where a tag is more than its code."""
    return {"language_bcp47": list(tags)} if _codes(tags) != list(tags) else {}


def _started_from(bases: Sequence[BaseModel]) -> dict[str, Any]:
    """The base models in the metadata; what is not on the Hub cannot be linked to."""
    on_hub = [base.name for base in bases if base.on_hub]
    return {"base_model": on_hub or None, "base_model_relation": "finetune" if on_hub else None}


def _metadata(facts: Any, languages: Sequence[str], tags: Sequence[str], task: str, **more: Any) -> CompactCardData:
    """The metadata of a model that has learned languages, from the facts of its card."""
    return CompactCardData(
        language=_codes(languages),
        license=facts.license,
        pipeline_tag=task,
        tags=["babelens", *tags],
        model_name=facts.name,
        **{"library_name": "transformers"} | more,
        **_full_tags(languages),
    )


# ---- An adapter: one language for a base model ----


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
        names: language of CLDR's names of emoji with which the embedding began.
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
    names: str | None = None

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
    metadata = _metadata(
        facts,
        [facts.language],
        ["mla", "adapter", "vision-language", "multilingual"],
        "zero-shot-image-classification",
        library_name="peft",
        base_model=None if is_local else facts.base_model,
        base_model_relation=None if is_local else "adapter",
    )
    return save_card(_rendered("adapter.md.jinja", metadata, facts=facts), folder)


# ---- A student: a text encoder beside a frozen dual encoder ----


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
    tags = [facts.native_language, *facts.languages]
    about = ["sentence-transformers", "mla_student", "vision-language", "multilingual", "image-text-retrieval"]
    metadata = _metadata(facts, tags, about, PIPELINE_TAG, **_started_from(facts.base_models))
    return save_card(_rendered("student.md.jinja", metadata, facts=facts), folder)


# ---- A model that learned languages in closed form ----


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
        words: the number of words in the glossaries of all languages.
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
    words: int = 0
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
    tags = [facts.native_language, *facts.languages]
    about = ["ridge", "multilingual", *(_OF_IMAGES if facts.embeds_images else ["sentence-similarity"])]
    task = PIPELINE_TAG if facts.embeds_images else "feature-extraction"
    metadata = _metadata(facts, tags, about, task, **_started_from(facts.weights))
    return save_card(_rendered("ridge.md.jinja", metadata, facts=facts), folder)


# ---- A model that is pushed by transformers ----


@dataclass(frozen=True, kw_only=True)
class PlainCardFacts:
    """What is known of a model that is pushed.

    Args:
        repo_id: the repository.
        class_name, method: the model's class, and the name of its method.
        auto_class: the Auto class that loads it.
        is_dual_encoder: whether it embeds images and texts.
        languages: those that its files list.
        run: how it was trained.
        metrics: of its last evaluation, by name.
    """

    repo_id: str
    class_name: str
    method: str
    auto_class: str = "AutoModel"
    is_dual_encoder: bool = True
    languages: Sequence[str] = ()
    run: TrainingRun | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)


def plain_card(facts: PlainCardFacts) -> str:
    """The card's text with its metadata. Data and license are not known then, and are not made up."""
    facts = without_paths(facts)
    task = {"pipeline_tag": PIPELINE_TAG} if facts.is_dual_encoder else {}
    name = facts.repo_id.rpartition("/")[2]
    metadata = CompactCardData(
        language=_codes(facts.languages) or None,
        library_name="transformers",
        tags=["babelens", facts.method, "vision-language", "multilingual"],
        model_name=name,
        **task,
    )
    return str(_rendered("plain.md.jinja", metadata, name=name, **vars(facts)))
