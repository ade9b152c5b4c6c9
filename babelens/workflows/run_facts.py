"""The facts of a finished run, kept beside its results for the report about it: what its model card tells, the logs of
its stages, and the memory that it took."""

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerState
from transformers.trainer import TRAINER_STATE_NAME

from ..model_cards.facts import ModelCardFacts
from ..model_cards.licenses import weights_license
from ..model_cards.public_names import without_paths
from ..trainers.checkpoints import checkpoints
from .recipe import Stage
from .training import FINISHED

FACTS = "facts"
_PER_GIGABYTE = 2**30 if sys.platform == "darwin" else 2**20
_KEPT = (
    "model_name",
    "method",
    "image_languages",
    "pair_languages",
    "unseen_languages",
    "parameters",
    "license_name",
    "validation_overlap",
)


def run_facts(facts: ModelCardFacts, stages: Sequence[Stage], trainer: Any) -> dict[str, Any]:
    """The facts of a run, as JSON can hold them.

    Args:
        facts: those of its card.
        stages: the stages of its recipe.
        trainer: the trainer of the last one.

    Returns:
        `card`, the facts of the card without results, and with the license of the weights; `memory`, the most that the
        process and the accelerator had in gigabytes; `logs`, a list with the name and the log of each stage.
    """
    card = {name: getattr(facts, name) for name in _KEPT}
    card["license"] = facts.license or weights_license(facts.training_data, facts.base_models)
    card["training_data"] = [dataclasses.asdict(source) for source in facts.training_data]
    card["base_models"] = [dataclasses.asdict(base) for base in facts.base_models]
    card["run"] = dataclasses.asdict(facts.run) if facts.run else None
    *earlier, last = stages
    logs = [stage_log(stage.name, Path(trainer.args.output_dir).parent / stage.name) for stage in earlier]
    logs.append({"stage": last.name, "log": trainer.state.log_history})
    content = {"card": card, "memory": _memory(), "logs": logs}
    return without_paths(json.loads(json.dumps(content, default=str)))


def stage_log(name: str, folder: Path) -> dict[str, Any]:
    """The name and the log of a stage: of its end, or else of the newest checkpoint in its folder; an empty log where
    there is neither."""
    for path in (folder / FINISHED, *reversed(checkpoints(folder))):
        if (path / TRAINER_STATE_NAME).is_file():
            return {"stage": name, "log": TrainerState.load_from_json(str(path / TRAINER_STATE_NAME)).log_history}
    return {"stage": name, "log": []}


def _memory() -> dict[str, float]:
    memory = {"process": _peak_of_process()}
    if torch.cuda.is_available():
        memory["accelerator"] = torch.cuda.max_memory_allocated() / 2**30
    return memory


def _peak_of_process() -> float:
    if sys.platform == "win32":
        import psutil

        return psutil.Process().memory_info().peak_wset / 2**30
    import resource  # Windows has no such module

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _PER_GIGABYTE
