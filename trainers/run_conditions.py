"""What a training run is computed with, kept in its checkpoints: a run that is resumed with something else says so,
because its weights will differ from those of an uninterrupted run."""

import json
import logging
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import ExportableState

from ..configuration.errors import ChangedRunError

logger = logging.getLogger(__name__)

_OPTIMIZER = "optimizer"
_FUSED = "_fused"  # one that computes the same in other operations


def conditions_of(args: TrainingArguments) -> dict[str, Any]:
    """What the weights of a run depend on beside its data and the other training arguments."""
    device = torch.cuda.get_device_name(args.device) if args.device.type == "cuda" else args.device.type
    return {
        "number of processes": args.world_size,
        "device": f"{args.n_gpu} × {device}" if args.n_gpu > 1 else device,
        "number of examples in a step": args.train_batch_size * args.world_size * args.gradient_accumulation_steps,
        _OPTIMIZER: str(getattr(args.optim, "value", args.optim)),
        "version of torch": torch.__version__,
        "version of transformers": version("transformers"),
    }


class RunConditions(TrainerCallback, ExportableState):
    """Saves the conditions of a run in the state of its checkpoints, and in that of its end."""

    def __init__(self) -> None:
        self.conditions: dict[str, Any] = {}

    def on_train_begin(self, args: TrainingArguments, *others: Any, **kwargs: Any) -> None:
        self.conditions = conditions_of(args)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        state.stateful_callbacks[type(self).__name__] = self.state()

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": {"conditions": self.conditions}}


def compare_conditions(folder: str | Path, args: TrainingArguments) -> None:
    """Logs a warning that names what has changed since a checkpoint was saved.

    Args:
        folder: a checkpoint, or another folder with the state of a trainer. That of an earlier version, which does not
            tell the conditions, is taken to have had the same.
        args: the training arguments with which training continues.

    Raises:
        ChangedRunError: for another optimizer, which cannot continue with the state of the first.
    """
    then = (kept_attributes(folder, RunConditions) or {}).get("conditions") or {}
    now = conditions_of(args)
    if _kind(then.get(_OPTIMIZER, now[_OPTIMIZER])) != _kind(now[_OPTIMIZER]):
        raise ChangedRunError(
            f"optim: {folder} was trained with {then[_OPTIMIZER]}, and {now[_OPTIMIZER]} cannot continue with its "
            f"state; set optim={then[_OPTIMIZER]}"
        )
    changed = [f"{name}: {then[name]}, now {now[name]}" for name in now if then.get(name, now[name]) != now[name]]
    if changed and args.should_log:
        logger.warning(
            "%s was trained with another %s. The weights will differ from those of an uninterrupted run",
            folder,
            "; ".join(changed),
        )


def _kind(optimizer: str) -> str:
    return optimizer.removesuffix(_FUSED)


def kept_attributes(folder: str | Path, kind: type) -> dict[str, Any] | None:
    """The attributes of a callback in the state of a trainer; None if there are none."""
    file = Path(folder) / TRAINER_STATE_NAME
    state = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    kept = (state.get("stateful_callbacks") or {}).get(kind.__name__)
    return kept["attributes"] if kept else None
