"""What a model's folder holds of another model, for which it cannot be published."""

from contextlib import suppress
from pathlib import Path

from huggingface_hub.repocard import metadata_load
from yaml import YAMLError

from ..inference.onnx.model import GRAPH_FOLDER, SETTINGS_FILE, GraphSettings
from ..model_cards.card_text import IDENTITY, is_of_another_model
from ..utils.errors import BabelensError
from ..utils.identity import holds_weights


def outdated_problems(folder: Path) -> list[str]:
    """What a model's folder holds of another model, for which it cannot be published: graphs, and scores; one sentence
    each."""
    problems = []
    if (graphs := folder / GRAPH_FOLDER / SETTINGS_FILE).is_file():
        try:
            settings = GraphSettings.from_file(graphs, str(folder))
            settings.check_weights(folder)
            if settings.model is None and holds_weights(folder):
                problems.append(f"{graphs} does not state of which weights the graphs are: export the model again")
        except BabelensError as error:
            problems.append(str(error))
    card = folder / "README.md"
    with suppress(ValueError, TypeError, AttributeError, YAMLError, OSError):  # which `card_problems` reports
        if is_of_another_model(metadata_load(card) or {}, folder):
            problems.append(
                f"{card.name} was written for other weights, or another configuration or processor, than those in the "
                f"folder: evaluate the model and write its card again, or remove the results and `{IDENTITY}` from it"
            )
    return problems
