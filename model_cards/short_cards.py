"""The short cards of adapters, of models that acquired languages in closed form, and for transformers'
`push_to_hub`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelCardData
from pydantic import TypeAdapter

from ..utils.errors import ModelFolderError, first_line
from .base_models import BaseModel
from .card_text import paths_in, publishable, save_card
from .cards import card_environment, language_metadata, on_the_hub, placeholder_repository
from .facts import EMBEDDING_TAG, PIPELINE_TAG
from .licenses import check_weights_license, what_it_forbids
from .result_tables import FIGURE_FILE, recall_figure


def short_card(template: str, metadata: Mapping[str, Any], facts: Any) -> ModelCard:
    """Renders a card by a template of this folder, without secrets and local paths."""
    data = ModelCardData(**publishable({"library_name": "transformers", **metadata}))
    given = {"facts": publishable(facts), "repo_id": placeholder_repository(metadata["model_name"])}
    text = card_environment().get_template(template).render(given, what_it_forbids=what_it_forbids)
    return ModelCard(f"---\n{data.to_yaml()}\n---\n\n{text}")


def write_adapter_card(
    folder: str | Path, *, name: str, language: str, base_model: str, base: BaseModel, license: str, **facts: Any
) -> Path:
    """Writes the card of an adapter of PEFT, which adds a language to a base model; a local `base_model` is not linked
    to. `facts` are the template's other values, such as `parameters` (without the shared embedding) and `pairs` (the
    number of translations)."""
    check_weights_license(license, [base])
    is_local = bool(paths_in(base_model))
    metadata = {
        **language_metadata([language]),
        "library_name": "peft",
        "license": license,
        "model_name": name,
        "pipeline_tag": PIPELINE_TAG,
        "base_model": None if is_local else base_model,
        "base_model_relation": None if is_local else "adapter",
        "tags": ["babelens", "mla", "adapter", "vision-language", "multilingual"],
    }
    facts |= {"name": name, "language": language, "base_model": base_model, "base": base, "license": license}
    return save_card(short_card("adapter.md.jinja", metadata, facts), folder)


# ---- A model that learned languages in closed form ----

ACQUIRED = "acquired.json"  # the facts of the card, for the card of a model that learns more languages


@dataclass(frozen=True, kw_only=True)
class RidgeCardFacts:
    """The facts of the card.

    Args:
        command: the command that made the model; `earlier_commands` taught it other languages before.
        base_models: the plain base, the text encoder, and models that had some of the languages.
        results: a `LanguageResult` for each language where it is known.
        names: languages that were also learned from CLDR's names of emoji.
        any_language: whether texts in all languages that the text encoder reads are embedded.
        embeds_images: whether the base is a dual encoder, rather than vectors whose model is elsewhere.
        words: the number of words in the glossaries of all languages.
        dictionaries: languages whose words were found in a dictionary.
        earlier_glossaries: languages whose words came with the base, from an unknown source.
    """

    name: str
    native_language: str
    command: str
    license: str = "other"
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
        try:
            facts = TypeAdapter(cls).validate_json(Path(file).read_bytes())
            return replace(facts, results=TypeAdapter(dict[str, result]).validate_python(facts.results))  # type: ignore[valid-type]
        except ValueError as error:
            raise ModelFolderError(f"{file} is damaged: {first_line(error)}") from error

    def save(self, folder: str | Path) -> None:
        """Writes the facts, the card and its figure into a model's folder."""
        check_weights_license(self.license, self.weights)
        text = json.dumps(asdict(publishable(self)), indent=1, ensure_ascii=False)
        Path(folder, ACQUIRED).write_text(text + "\n", encoding="utf-8")
        if self.figure:
            values = {tag: float(found.r10) for tag, found in self.results.items()}
            figure = recall_figure(values, "Translations found in the top ten, in percent")
            Path(folder, self.figure).write_text(figure, encoding="utf-8")
        about = ["vision-language", "image-text-retrieval"] if self.embeds_images else ["sentence-similarity"]
        metadata = {
            **language_metadata([self.native_language, *self.languages]),
            **on_the_hub(self.weights),
            "license": self.license,
            "model_name": self.name,
            "pipeline_tag": PIPELINE_TAG if self.embeds_images else EMBEDDING_TAG,
            "tags": ["babelens", "ridge", "multilingual", *about],
        }
        save_card(short_card("ridge.md.jinja", metadata, self), folder)

    @property
    def figure(self) -> str:
        """The file of the figure; empty for a single result."""
        return FIGURE_FILE if len(self.results) > 1 else ""

    @property
    def weights(self) -> Sequence[BaseModel]:
        return self.base_models if self.embeds_images else self.base_models[1:]
