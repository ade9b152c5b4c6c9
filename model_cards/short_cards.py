"""The short cards: of an adapter, of a model that acquired languages by a student or in closed form, and of one that
transformers' own `push_to_hub` pushes.

Each has its own template and few facts. Models that a recipe trained get the card of `cards.py`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from huggingface_hub import ModelCard, ModelCardData
from pydantic import TypeAdapter

from ..utils.errors import ModelFolderError, first_line
from .base_models import BaseModel
from .card_text import paths_in, publishable, save_card
from .cards import card_environment, language_metadata, on_the_hub, placeholder_repository
from .facts import EMBEDDING_TAG, PIPELINE_TAG, TrainingRun
from .licenses import check_weights_license, what_it_forbids
from .result_tables import FIGURE_FILE, recall_figure


@dataclass(frozen=True, kw_only=True)
class ShortCardFacts:
    """What the cards of models that acquired languages say: their name without an owner, the language that the base
    reads, the command, and the license of the weights."""

    template: ClassVar[str]
    name: str
    native_language: str
    command: str
    license: str = "other"

    @property
    def repo_id(self) -> str:
        """The repository that the card names until it is known."""
        return placeholder_repository(self.name)

    @property
    def weights(self) -> Sequence[BaseModel]:
        """The models whose weights are in this one, or that it changes."""
        raise NotImplementedError

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of this kind of card, in addition to its name and license."""
        raise NotImplementedError


def write_short_card(folder: str | Path, facts: ShortCardFacts) -> Path:
    """Writes `README.md` into the folder of an adapter or a model."""
    check_weights_license(facts.license, facts.weights)
    given = {"library_name": "transformers", "license": facts.license, "model_name": facts.name} | facts.metadata
    metadata = ModelCardData(**publishable(given))
    figure = getattr(facts, "figure", "")
    return save_card(_rendered(facts.template, metadata, facts=publishable(facts), figure=figure), folder)


def _rendered(template: str, metadata: ModelCardData, **given: Any) -> ModelCard:
    """A card with the text that a template of this folder makes."""
    text = card_environment().get_template(template).render(given, what_it_forbids=what_it_forbids)
    return ModelCard(f"---\n{metadata.to_yaml()}\n---\n\n{text}")


# ---- An adapter: one language for a base model ----


@dataclass(frozen=True, kw_only=True)
class AdapterCardFacts(ShortCardFacts):
    """The facts of an adapter's card: its language, and its base model, a folder or a Hub id (`on_mla`: an MLA model
    with languages already; `base`: with its license); the parameters of the adapter without the shared embedding,
    which lies in `embedding`; the translations that it was trained on, and whether language exposure followed."""

    template = "adapter.md.jinja"
    language: str
    base_model: str
    on_mla: bool
    parameters: int
    trained_embedding: bool
    embedding: str
    max_text_length: int
    pairs: int
    exposed: bool
    base: BaseModel | None = None

    @property
    def weights(self) -> list[BaseModel]:
        """The base model, where its license was asked for."""
        return [self.base] if self.base else []

    @property
    def metadata(self) -> dict[str, Any]:
        """Those of an adapter of PEFT; a base model in a folder of this machine is not linked to."""
        is_local = bool(paths_in(self.base_model))
        return {
            **language_metadata([self.language]),
            "library_name": "peft",
            "pipeline_tag": PIPELINE_TAG,
            "base_model": None if is_local else self.base_model,
            "base_model_relation": None if is_local else "adapter",
            "tags": ["babelens", "mla", "adapter", "vision-language", "multilingual"],
        }


# ---- A model that learned languages in closed form ----

ACQUIRED = "acquired.json"  # the facts of the card, for the card of a model that learns more languages


@dataclass(frozen=True, kw_only=True)
class RidgeCardFacts(ShortCardFacts):
    """The facts of the card.

    Args:
        languages: all learned languages.
        base_models: what it was made of: the plain base, the text encoder, and models that had some of the languages.
        has_encoder: whether a text encoder reads the languages too.
        results: a `LanguageResult` for each language where it is known.
        names: languages of CLDR's names of emoji that were learned from too.
        any_language: whether texts in all languages that the text encoder reads are embedded.
        embeds_images: whether the base is a dual encoder, and not vectors whose model is elsewhere.
        words: the number of words in the glossaries of all languages.
        dictionaries: languages whose words were found in a dictionary.
        earlier_glossaries: languages whose words came with the base, from an unknown source.
        earlier_commands: those that taught it other languages before.
    """

    template = "ridge.md.jinja"
    languages: Sequence[str]
    base_models: Sequence[BaseModel]
    has_encoder: bool
    results: Mapping[str, Any]
    names: Sequence[str] = ()
    any_language: bool = False
    embeds_images: bool = True
    words: int = 0
    dictionaries: Sequence[str] = ()
    earlier_glossaries: Sequence[str] = ()
    earlier_commands: Sequence[str] = ()

    @classmethod
    def of(cls, file: str | Path, result: type) -> "RidgeCardFacts":
        """Reads them, and results as objects of a dataclass."""
        try:
            facts = TypeAdapter(cls).validate_json(Path(file).read_bytes())
            results: dict[str, Any] = {
                tag: TypeAdapter(result).validate_python(each) for tag, each in facts.results.items()
            }
            return replace(facts, results=results)
        except ValueError as error:
            raise ModelFolderError(f"{file} is damaged: {first_line(error)}") from error

    def save(self, folder: str | Path) -> None:
        """Writes them, and the card, into a model's folder."""
        text = json.dumps(asdict(publishable(self)), indent=1, ensure_ascii=False)
        Path(folder, ACQUIRED).write_text(text + "\n", encoding="utf-8")
        if self.figure:
            values = {tag: float(found.r10) for tag, found in self.results.items()}
            figure = recall_figure(values, "Translations found in the top ten, in percent")
            Path(folder, self.figure).write_text(figure, encoding="utf-8")
        write_short_card(folder, self)

    @property
    def figure(self) -> str:
        """The file of the figure; empty where one result needs none."""
        return FIGURE_FILE if len(self.results) > 1 else ""

    @property
    def weights(self) -> Sequence[BaseModel]:
        """Those whose weights are in the model."""
        return self.base_models if self.embeds_images else self.base_models[1:]

    @property
    def metadata(self) -> dict[str, Any]:
        """Those of a dual encoder, or of a text tower into an index."""
        of = ["vision-language", "image-text-retrieval"] if self.embeds_images else ["sentence-similarity"]
        return {
            **language_metadata([self.native_language, *self.languages]),
            **on_the_hub(self.weights),
            "pipeline_tag": PIPELINE_TAG if self.embeds_images else EMBEDDING_TAG,
            "tags": ["babelens", "ridge", "multilingual", *of],
        }


# ---- A model that is pushed by transformers ----


@dataclass(frozen=True, kw_only=True)
class PlainCardFacts:
    """What is known of a model that is pushed: its class, its method, the Auto class that loads it, the languages that
    its files list, its training, and the metrics of its last evaluation."""

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
    facts = publishable(facts)
    name = facts.repo_id.rpartition("/")[2]
    metadata = ModelCardData(
        **language_metadata(facts.languages),
        library_name="transformers",
        pipeline_tag=PIPELINE_TAG if facts.is_dual_encoder else None,
        tags=["babelens", facts.method, "vision-language", "multilingual"],
        model_name=name,
    )
    return str(_rendered("plain.md.jinja", metadata, name=name, **vars(facts)))
