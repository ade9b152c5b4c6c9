"""The cards of models that are pushed by transformers' own `push_to_hub`, of a model, a processor or a trainer.

The card that lies in the folder that the model was loaded from goes along, as long as it is of this model. Otherwise a
short one says what is known: the class, the languages, how it loads, and of a trainer how it was trained. Data and
license are known to nobody then, and are not made up.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jinja2
from huggingface_hub import ModelCard

from ..configuration.identity import folder_identity
from .card_text import CompactCard, CompactCardData, cell, code, is_of_another_model
from .cards import placeholder_repository
from .facts import PIPELINE_TAG, TrainingRun
from .public_names import without_paths

_TEMPLATE = Path(__file__).with_name("plain.md.jinja")
_CARD = "README.md"


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
    """The card's text with its metadata."""
    facts = without_paths(facts)
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters |= {"cell": cell, "code": code}
    given = {name: getattr(facts, name) for name in facts.__dataclass_fields__}
    name = facts.repo_id.rpartition("/")[2]
    text = environment.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(name=name, **given)
    codes = list(dict.fromkeys(tag.partition("-")[0] for tag in facts.languages))
    task = {"pipeline_tag": PIPELINE_TAG} if facts.is_dual_encoder else {}
    metadata = CompactCardData(
        language=codes or None,
        library_name="transformers",
        tags=["babelens", facts.method, "vision-language", "multilingual"],
        model_name=name,
        **task,
    )
    return str(CompactCard(f"---\n{metadata.to_yaml()}\n---\n\n{text}"))


def own_card(source: str | Path, repo_id: str, saved: str | Path) -> str | None:
    """The card in the folder that a model was loaded from, which names the repository.

    Args:
        source: that folder, or another name of the model.
        repo_id: the repository.
        saved: the folder that is pushed.

    Returns:
        The card, or None where there is none of babelens, or one of another model.
    """
    path = Path(source, _CARD)
    if not str(source) or not path.is_file():
        return None
    metadata = ModelCard.load(path, ignore_metadata_errors=True).data.to_dict()
    if "babelens" not in (metadata.get("tags") or ()) or is_of_another_model(metadata, source):
        return None
    pushed = folder_identity(saved, with_processor=False)
    if pushed is not None and pushed != folder_identity(source, with_processor=False):
        return None
    text = path.read_text(encoding="utf-8-sig")
    return re.sub(re.escape(placeholder_repository("")) + r"[\w.-]+", lambda _: repo_id, text)
