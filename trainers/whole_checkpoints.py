"""transformers' `Trainer` with checkpoints that count once they are complete (`checkpoints`).

A training stops if a gradient or a weight is not finite.
"""

import dataclasses
import logging
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
from accelerate.state import AcceleratorState
from torch import Tensor, nn
from transformers import PreTrainedModel, Trainer
from transformers.trainer_utils import SaveStrategy, TrainOutput

from ..utils.errors import NonFiniteError, TrainingSetupError
from ..utils.pretrained import is_finite as has_finite_numbers
from .checkpoints import CheckpointMarks, newest_checkpoint, prepare_saving
from .precision import (
    BFLOAT16,
    ChosenPrecision,
    PrecisionState,
    PrecisionTrainingArguments,
    RunConditions,
    agree_on_precision,
    compare_conditions,
    precision_of,
)

logger = logging.getLogger(__name__)


class WholeCheckpointTrainer(Trainer):
    """Marks complete checkpoints, and resumes from the newest one in its precision.

    Only checkpoints of the same run are replaced or deleted (`save_total_limit`). A gradient that is not finite stops
    the training before the weights are updated.

    Args:
        model: the model to train.
        args: training arguments.
        kwargs: further arguments of `Trainer`.
    """

    def __init__(self, model: nn.Module, args: PrecisionTrainingArguments, **kwargs: Any) -> None:
        agree_on_precision(args)
        super().__init__(model=model, args=args, **kwargs)
        self.add_callback(PrecisionState())
        self.add_callback(RunConditions())
        self._marks = CheckpointMarks()
        self.add_callback(self._marks)

    def train(self, resume_from_checkpoint: str | bool | None = None, **kwargs: Any) -> TrainOutput:
        """Trains the model.

        Args:
            resume_from_checkpoint: the checkpoint to resume from, which need not be marked as complete; True for the
                newest complete one.
            kwargs: further arguments of `Trainer.train`.

        Raises:
            TrainingSetupError: under FSDP and DeepSpeed.
            FileNotFoundError: if there is no complete checkpoint to resume from.
            NonFiniteError: if a loss, a gradient or a weight becomes NaN or infinite.
            SaveError: if checkpoints cannot be saved to `args.output_dir`.
        """
        if self.is_fsdp_enabled or self.is_deepspeed_enabled:
            raise TrainingSetupError(
                "FSDP and DeepSpeed divide weights that this training needs whole: start it with torchrun, or with "
                "`accelerate launch --multi_gpu`"
            )
        if resume_from_checkpoint is True:
            newest = newest_checkpoint(self.args.output_dir)
            if newest is None:
                raise FileNotFoundError(f"there is no complete checkpoint in {self.args.output_dir} to resume from")
            resume_from_checkpoint = str(newest)
        if self.args.should_save and self.args.save_strategy != SaveStrategy.NO:
            prepare_saving(self.args.output_dir)
        self._marks.start(resume_from_checkpoint or None)
        if resume_from_checkpoint:
            compare_conditions(resume_from_checkpoint, self.args)
            self._keep_precision(resume_from_checkpoint)
        if self.args.should_log:
            logger.info("Training in %s", self.args.chosen_precision)
        # Trainer would delete whichever folder is called checkpoint-*.
        self._marks.save_total_limit, self.args.save_total_limit = self.args.save_total_limit, None
        try:
            with self._marks.saving(), fast_attention(self.model, self.args.device, self.args.chosen_precision.name):
                output = super().train(resume_from_checkpoint=resume_from_checkpoint, **kwargs)
        finally:
            self.args.save_total_limit = self._marks.save_total_limit
        self._check_weights()
        return output

    # ---- One step ----

    def _init_training_state(
        self,
        max_steps: int,
        num_update_steps_per_epoch: int,
        num_train_epochs: int,
        resume_from_checkpoint: str | None,
        trial: Any,
    ) -> tuple[int, int]:
        """The number of epochs that are trained already, and of batches of the next one. From a checkpoint after the
        last step within an epoch, transformers would train one step more: then no epoch is left."""
        trained = super()._init_training_state(
            max_steps, num_update_steps_per_epoch, num_train_epochs, resume_from_checkpoint, trial
        )
        return (num_train_epochs, 0) if self.state.global_step >= max_steps else trained

    def _get_grad_norm(self, model: nn.Module, grad_norm: Tensor | float | None = None) -> Any:
        """The norm of the gradient, which transformers computes before every step of the optimizer."""
        norm = super()._get_grad_norm(model, grad_norm)
        if not is_finite(norm) and not self._has_scaled_loss():
            raise_for_gradient(norm, dict(self._gradients(model)), self.state.global_step + 1)
        return norm

    def _has_scaled_loss(self) -> bool:
        """Whether the loss is scaled up for float16, so that a gradient may overflow. accelerate skips such a step,
        and scales the next loss less."""
        scaler = self.accelerator.scaler
        return scaler is not None and scaler.is_enabled() and scaler.get_scale() > 1

    def _gradients(self, model: nn.Module) -> Iterator[tuple[str, Tensor]]:
        """The gradients that the optimizer will use, with the names of their parameters."""
        return ((name, weight.grad) for name, weight in model.named_parameters() if weight.grad is not None)

    # ---- Saving ----

    def _check_weights(self) -> None:
        check_weights(self.model.state_dict(), self.state.global_step)

    def _keep_precision(self, checkpoint: str) -> None:
        """Resumes in the precision of a checkpoint; if the user chose another one, logs a warning instead."""
        began, chosen = precision_of(checkpoint), self.args.chosen_precision
        if began == chosen.name:
            return
        if began is None:
            logger.warning("%s does not record in which precision it was trained", checkpoint)
        elif chosen.is_asked:
            logger.warning("%s was trained in %s; training continues in %s", checkpoint, began, chosen)
        else:
            reason = f"in which {checkpoint} was trained; a new run would compute in {chosen}"
            self.args.use_precision(ChosenPrecision(began, reason))
            AcceleratorState._reset_state()  # otherwise it refuses another precision
            self.create_accelerator_and_postprocess()

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Saves the model, as `Trainer` does, if its weights are finite.

        Raises:
            NonFiniteError: if a weight is NaN or infinite.
        """
        self._check_weights()
        if _internal_call and output_dir is not None and self.is_in_train:  # a checkpoint
            if self.args.should_save:
                self._marks.begin(output_dir)
            self.accelerator.wait_for_everyone()
        super().save_model(output_dir, _internal_call)


# ---- Checks that stop the training if a loss, a gradient or a weight is NaN or infinite ----
#
# A loss is checked before its gradient is computed, gradients before the optimizer takes a step, and weights
# before they are saved, so that checkpoints and results hold finite numbers only.

_ADVICE = "A lower learning rate, a longer warm-up or max_grad_norm may help."
# An infinite max_grad_norm means that gradients are not clipped.
_MAY_BE_INFINITE = "max_grad_norm"


def check_finite(loss: Tensor, what: str, step: int) -> None:
    """Checks a loss before its gradient is computed.

    Args:
        loss: the loss [].
        what: name of the loss, for the error message.
        step: number of the training step, for the error message.

    Raises:
        NonFiniteError: if the loss is NaN or infinite.
    """
    if not loss.isfinite():
        raise NonFiniteError(
            f"the loss of {what} is {loss.item()} in step {step}; training stopped before it reached the weights. "
            f"{_ADVICE}"
        )


def raise_for_gradient(norm: Tensor | float, gradients: Mapping[str, Tensor], step: int) -> NoReturn:
    """Reports a gradient that is not finite.

    Args:
        norm: the norm of all gradients, NaN or infinite [].
        gradients: parameter name -> gradient after clipping.
        step: number of the training step, for the error message.

    Raises:
        NonFiniteError: always; the message names parameters.
    """
    names = non_finite(gradients)
    # If the norm is NaN, clipping has made all gradients NaN. Finite gradients can have an infinite norm.
    where = f" because of {_some(names)}" if 0 < len(names) < len(gradients) else ""
    raise NonFiniteError(
        f"the gradient's norm is {float(norm)} in step {step}{where}; training stopped before it reached the weights. "
        f"{_ADVICE}"
    )


def check_weights(weights: Mapping[str, Tensor], step: int) -> None:
    """Checks weights before they are saved.

    Args:
        weights: name -> tensor.
        step: number of the last training step, for the error message.

    Raises:
        NonFiniteError: if one of them is NaN or infinite.
    """
    if names := non_finite(weights):
        raise NonFiniteError(
            f"after step {step}, {len(names)} of {len(weights)} tensors are not finite: {_some(names)}. Nothing was "
            f"saved; older checkpoints are as they were. {_ADVICE}"
        )


def non_finite(tensors: Mapping[str, Tensor]) -> list[str]:
    """The names of the tensors that hold NaN or infinity."""
    return [name for name, tensor in tensors.items() if not is_finite(tensor)]


def is_finite(tensor: Tensor | float) -> bool:
    """Whether all numbers of a tensor are finite."""
    if not isinstance(tensor, Tensor):
        return math.isfinite(tensor)
    own = tensor.detach()
    if own.is_sparse:
        own = own.coalesce().values()
    return has_finite_numbers(own)


def check_numbers(arguments: Any) -> None:
    """Checks the numbers in training arguments, and in their dictionaries.

    Args:
        arguments: a data class of training arguments.

    Raises:
        TrainingSetupError: for a number that is NaN or infinite, and for a negative learning rate.
    """
    for field in dataclasses.fields(arguments):
        value = getattr(arguments, field.name)
        within = {f"{field.name}[{key!r}]": number for key, number in value.items()} if isinstance(value, dict) else {}
        for name, number in {field.name: value, **within}.items():
            is_infinite = isinstance(number, float) and not math.isfinite(number)
            if is_infinite and (name != _MAY_BE_INFINITE or math.isnan(number)):
                raise TrainingSetupError(f"{name}={number} must be a finite number")
    if isinstance(arguments.learning_rate, int | float) and arguments.learning_rate < 0:
        raise TrainingSetupError(f"learning_rate={arguments.learning_rate} must not be negative")


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


# ---- Attention in training: which of its implementations in transformers computes gradients fastest ----

_FUSED, _EAGER = "sdpa", "eager"


@contextmanager
def fast_attention(model: nn.Module, device: torch.device, precision: str) -> Iterator[None]:
    """Lets a model attend in the way whose gradient is fastest, while the context is open.

    On a CPU, in bfloat16, torch's fused attention (`sdpa`) takes twelve times as long for the gradient of a short text
    as for the text, which is half of the whole training step (torch 2.13). transformers' `eager` attention computes
    the same as several products of matrices: a step of MLA on MiniLM takes 0.50, 0.60 and 0.95 of the time with texts
    of 22, 64 and 256 tokens; longer sequences were not measured. In float32 and on other devices, the fused one stays.

    Args:
        model: the model to train; parts of it may attend in different ways.
        device: the device on which it is trained.
        precision: the name of the precision of the training.
    """
    if device.type != "cpu" or precision != BFLOAT16:
        yield
        return
    configs = {id(part.config): part.config for part in model.modules() if isinstance(part, PreTrainedModel)}
    # A configuration hands its implementation down to those inside of it, which therefore come after it.
    before = [(config, config._attn_implementation) for config in configs.values()]
    for config, implementation in before:
        config._attn_implementation = _EAGER if implementation == _FUSED else implementation
    try:
        yield
    finally:
        for config, implementation in before:
            config._attn_implementation = implementation
