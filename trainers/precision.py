"""The precision that training computes in: bfloat16 where the hardware multiplies it, else float32.

With hardware instructions, bfloat16 takes about half the time; a processor that computes it in software takes nearly
twice the time. Weights, optimizer and loss are in float32 in either case; matrix products are autocast.
"""

import json
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, get_args

import torch
from accelerate.utils import gather, parse_flag_from_env
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import SaveStrategy, SchedulerType
from transformers.utils import is_torch_bf16_gpu_available, is_torch_xla_available

from ..utils.defaults import Precision
from ..utils.errors import ChangedRunError, TrainingSetupError

AUTO, FLOAT32, BFLOAT16, FLOAT16 = get_args(Precision)

_LAUNCHER = "ACCELERATE_MIXED_PRECISION"  # set by `accelerate launch`; "no" by default
_OF_LAUNCHER = {"bf16": BFLOAT16, "fp16": FLOAT16}
# torch's names of the processor instructions for products in bfloat16: of Intel, of Intel and AMD, and two of Arm.
_INSTRUCTIONS = ("amx_bf16", "avx512_bf16", "bf16", "sve_bf16")


@dataclass(frozen=True)
class ChosenPrecision:
    """The precision of a training, with the reason why it was chosen.

    Args:
        name: `float32`, `bfloat16` or `float16`.
        reason: continues a sentence after the name: "because …", "as … says".
        is_asked: whether the user asked for it.
    """

    name: str
    reason: str
    is_asked: bool = False

    def __str__(self) -> str:
        return f"{self.name}, {self.reason}"


@dataclass
class PrecisionTrainingArguments(TrainingArguments):
    """transformers' `TrainingArguments` with `precision`, which replaces `bf16` and `fp16`.

    `chosen_precision` is the precision that `auto` resolved to, with the reason.
    """

    # The methods that are trained with these arguments, and those of their own options that no trainer of these
    # methods reads, each with the reason (see `own_options`).
    methods: ClassVar[tuple[str, ...]] = ()
    unread: ClassVar[Mapping[str, str]] = {}
    # `metric_for_best_model`, unless another one is given.
    best_metric: ClassVar[str] = "loss"

    precision: Precision = field(
        default=AUTO,
        metadata={
            "help": "'float32', 'bfloat16' or 'float16'; 'auto' is the precision of `accelerate launch` if it sets "
            "one, or else bfloat16 if the hardware has instructions for it, or else float32."
        },
    )
    bf16: bool | None = field(default=None, metadata={"help": "The same as precision='bfloat16'."})

    def __post_init__(self) -> None:
        check_read(self, PrecisionTrainingArguments)
        self.use_precision(self.asked_precision() or fastest_precision(self._device_type))
        # A schedule that waits for a plateau takes the same metric, and needs one that falls.
        seeks_best = self.load_best_model_at_end or self.save_strategy == SaveStrategy.BEST
        if seeks_best and self.lr_scheduler_type != SchedulerType.REDUCE_ON_PLATEAU:
            self.metric_for_best_model: str | None = self.metric_for_best_model or self.best_metric
        super().__post_init__()

    def use_precision(self, chosen: ChosenPrecision) -> None:
        """Sets the precision for the next trainer.

        Raises:
            TrainingSetupError: for float16 without an accelerator.
        """
        if chosen.name == FLOAT16 and self._device_type == "cpu":
            raise TrainingSetupError(f"training in {chosen}: a CPU has float32 and bfloat16")
        self.chosen_precision = chosen
        self.bf16, self.fp16 = chosen.name == BFLOAT16, chosen.name == FLOAT16
        # transformers expects an accelerator for bf16 unless use_cpu is set.
        if self.bf16 and self._device_type == "cpu":
            self.use_cpu = True
        self.mixed_precision = {FLOAT32: "no", BFLOAT16: "bf16", FLOAT16: "fp16"}.get(chosen.name, chosen.name)

    @property
    def _device_type(self) -> str:
        """The type of the device that will be trained on, before transformers sets it up."""
        if is_torch_xla_available():
            return "xla"
        if self.use_cpu or parse_flag_from_env("ACCELERATE_USE_CPU") or not torch.accelerator.is_available():
            return "cpu"
        return torch.accelerator.current_accelerator().type

    def asked_precision(self) -> ChosenPrecision | None:
        """The precision that the arguments or the launcher ask for; None if they ask for none.

        Raises:
            TrainingSetupError: if they contradict each other, or name an unknown precision.
        """
        if self.precision not in get_args(Precision):
            raise TrainingSetupError(f"precision={self.precision!r} must be one of {', '.join(get_args(Precision))}")
        launcher = os.environ.get(_LAUNCHER, "no")
        sources = {
            f"precision={self.precision!r}": self.precision if self.precision != AUTO else None,
            "bf16=True": BFLOAT16 if self.bf16 else None,
            "fp16=True": FLOAT16 if self.fp16 else None,
            f"the launcher's mixed_precision={launcher}": _OF_LAUNCHER.get(launcher, launcher)
            if launcher != "no"
            else None,
        }
        asked = {source: name for source, name in sources.items() if name is not None}
        if self.bf16 is False and not self.fp16 and self.precision != FLOAT16:
            asked["bf16=False"] = FLOAT32
        if len(set(asked.values())) > 1:
            raise TrainingSetupError(f"{' and '.join(asked)} contradict each other: leave out all but one of them")
        return next(
            (ChosenPrecision(name, f"as {source} says", is_asked=True) for source, name in asked.items()), None
        )


@cache
def fastest_precision(device_type: str) -> ChosenPrecision:
    """bfloat16 if the hardware has instructions for it, or else float32.

    Args:
        device_type: torch's name of the device type: `cpu`, `cuda`, `mps`.
    """
    if device_type == "cpu":
        return _fastest_on_cpu()
    if device_type == "cuda":
        name, has = torch.cuda.get_device_name(), torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        name, has = device_type, is_torch_bf16_gpu_available()
    if has:
        return ChosenPrecision(BFLOAT16, f"because {name} multiplies it")
    return ChosenPrecision(FLOAT32, f"because {name} does not multiply bfloat16")


def _fastest_on_cpu() -> ChosenPrecision:
    # `torch.ops.mkldnn._is_mkldnn_bf16_supported()` is also true for processors that compute it in software.
    flags = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    readable = [name for name in _INSTRUCTIONS if name in flags]
    present = [name for name in readable if flags[name]]
    if present and torch.backends.mkldnn.is_available():
        return ChosenPrecision(BFLOAT16, f"because this processor multiplies it ({', '.join(present)})")
    if readable and not present:
        return ChosenPrecision(FLOAT32, "because this processor computes bfloat16 in software")
    return ChosenPrecision(FLOAT32, "because torch does not say that it multiplies bfloat16 on this processor")


def agree_on_precision(args: PrecisionTrainingArguments) -> None:
    """Sets float32 in all processes if one of them has chosen it.

    Raises:
        TrainingSetupError: if the processes disagree about a precision that was asked for.
    """
    if args.world_size == 1:
        return
    names = gather(torch.tensor([args.chosen_precision.name == FLOAT32], device=args.device)).tolist()
    if all(names) or not any(names):
        return
    if args.chosen_precision.is_asked:
        raise TrainingSetupError(
            "the processes would compute in different precisions: set precision to float32 or bfloat16"
        )
    args.use_precision(ChosenPrecision(FLOAT32, "because not every process has hardware that multiplies bfloat16"))


class PrecisionState(TrainerCallback, ExportableState):
    """Saves the precision of a run in the state of its checkpoints."""

    precision: str | None = None

    def on_train_begin(self, args: PrecisionTrainingArguments, *others: Any, **kwargs: Any) -> None:
        self.precision = args.chosen_precision.name

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": {"precision": self.precision}}


def precision_of(checkpoint: str | Path) -> str | None:
    """The precision in which a checkpoint was trained; None if it is not recorded."""
    return (kept_attributes(checkpoint, PrecisionState) or {}).get("precision")


# What a training run is computed with, kept in its checkpoints: a run that is resumed with something else says so,
# because its weights will differ from those of an uninterrupted run.

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


# ---- Which methods read which of the training arguments that babelens adds to those of transformers ----
#
# The training arguments of a method share fields with those of other methods. A class of arguments declares which
# methods it belongs to, and which of its fields their trainers do not read; a value for such a field is refused.


def own_options(arguments_class: type) -> dict[str, Any]:
    """Option -> default value of the training arguments that babelens adds to those of transformers."""
    inherited = {field.name for field in fields(TrainingArguments)}
    own = [field for field in fields(arguments_class) if field.name not in inherited]
    return {
        field.name: field.default if field.default_factory is MISSING else field.default_factory() for field in own
    }


def methods_that_read(option: str, root: type) -> list[str]:
    """The names of the methods that read an option.

    Args:
        option: name of an own option.
        root: the class from which the training arguments of all methods are derived.
    """
    return [
        method
        for kind in _with_subclasses(root)
        if option in own_options(kind) and option not in kind.unread
        for method in kind.__dict__.get("methods", ())
    ]


def check_read(arguments: Any, root: type) -> None:
    """Refuses options that the method of the arguments does not read.

    Args:
        arguments: training arguments.
        root: the class from which the training arguments of all methods are derived.

    Raises:
        TrainingSetupError: for such an option that has another value than its default. The message names the methods
            that read it.
    """
    defaults = own_options(type(arguments))
    for option, reason in arguments.unread.items():
        if getattr(arguments, option) != defaults[option]:
            raise TrainingSetupError(
                f"{option} is not an option of {' or '.join(arguments.methods) or type(arguments).__name__}: "
                f"{reason}. It is read by {', '.join(methods_that_read(option, root))}"
            )


def _with_subclasses(kind: type) -> Iterator[Any]:
    yield kind
    subclasses: list[type] = kind.__subclasses__()
    for subclass in subclasses:
        yield from _with_subclasses(subclass)
