"""The card that transformers' `push_to_hub` uploads with a model, a processor or a trainer (`hub_mixin.card_writers`):
this model's card in the folder that it was loaded from, or else a short card with the class, the languages, how to
load the model, and for a trainer how it was trained."""

from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard
from transformers import ProcessorMixin

from .model_cards.card_text import is_of_another_model
from .model_cards.cards import language_metadata, render_card
from .model_cards.facts import PIPELINE_TAG, training_run
from .publishing import CARD, named_card
from .registry import METHODS
from .utils.identity import folder_identity
from .utils.redaction import typed_command
from .utils.sentence_files import listed_languages


def pushed_card(part: Any, repo_id: str, folder: str | Path, trainer: Any = None) -> str | None:
    """The card of a model or a processor that is pushed, maybe by a trainer; None for a class of other packages."""
    config: Any = getattr(part, "config", part)
    if trainer is None:
        tokenizer = getattr(part, "tokenizer", None)
        source = getattr(part, "name_or_path", "") or getattr(tokenizer, "name_or_path", "")
        if kept := _own_card(source, repo_id, folder):
            return kept
    found = [
        (method, model)
        for method in METHODS.values()
        for model in method.models
        if type(part) is model or (isinstance(part, ProcessorMixin) and type(part) is method.processor)
    ]
    if not found:
        return None
    (method, model), name = found[0], repo_id.rpartition("/")[2]
    native = getattr(config, "native_language", None)
    languages = list(dict.fromkeys([*([native] if native else []), *listed_languages(config)]))
    is_dual_encoder = hasattr(model, "get_image_features")
    metadata = {
        **language_metadata(languages),
        "pipeline_tag": PIPELINE_TAG if is_dual_encoder else None,
        "tags": ["babelens", method.name, "vision-language", "multilingual"],
        "model_name": name,
    }
    facts = {
        "name": name,
        "class_name": model.__name__,
        "auto_class": model.auto_classes[0],
        "is_dual_encoder": is_dual_encoder,
        "languages": languages,
        "run": None if trainer is None else _run_of(trainer),
        "metrics": {} if trainer is None else _last_scores(trainer.state.log_history),
    }
    return named_card(str(render_card("plain.md.jinja", metadata, facts)), repo_id)


def _run_of(trainer: Any) -> Any:
    history = trainer.state.log_history
    trained = any("train_runtime" in entry for entry in history)
    return training_run(trainer.args, history, typed_command()) if trained else None


def _last_scores(history: list[dict[str, Any]]) -> dict[str, float]:
    last: dict[str, Any]
    last = next((entry for entry in reversed(history) if any(name.startswith("eval_") for name in entry)), {})
    costs = ("runtime", "per_second", "model_preparation_time")
    return {
        name.removeprefix("eval_"): value
        for name, value in last.items()
        if name.startswith("eval_") and isinstance(value, int | float) and not any(cost in name for cost in costs)
    }


def _own_card(source: str | Path, repo_id: str, saved: str | Path) -> str | None:
    """The card in the folder that a model was loaded from; None if it is not from babelens, or is of another model."""
    path = Path(source, CARD)
    if not str(source) or not path.is_file():
        return None
    metadata = ModelCard.load(path, ignore_metadata_errors=True).data.to_dict()
    pushed = folder_identity(saved, with_processor=False)
    is_other = pushed is not None and pushed != folder_identity(source, with_processor=False)
    if is_other or "babelens" not in (metadata.get("tags") or ()) or is_of_another_model(metadata, source):
        return None
    return named_card(path.read_text(encoding="utf-8-sig"), repo_id)
