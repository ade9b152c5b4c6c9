"""transformers' `Trainer` with checkpoints that are whole or do not count (`checkpoints`)."""

import logging
import shutil
from pathlib import Path
from typing import Any

from accelerate.state import AcceleratorState
from torch import Tensor, nn
from transformers import Trainer
from transformers.trainer_utils import TrainOutput, rotate_checkpoints

from .checkpoints import mark_complete, newest_checkpoint, remove_torn_checkpoints, removed_on_failure, written_whole
from .precision import (
    ChosenPrecision,
    PrecisionError,
    PrecisionState,
    PrecisionTrainingArguments,
    agree_on_precision,
    precision_of,
)

logger = logging.getLogger(__name__)


class WholeCheckpointTrainer(Trainer):
    """Resumes from the newest complete checkpoint, in its precision, and leaves nothing half-written behind."""

    def __init__(self, model: nn.Module, args: PrecisionTrainingArguments, **kwargs: Any) -> None:
        agree_on_precision(args)
        super().__init__(model=model, args=args, **kwargs)
        self.add_callback(PrecisionState())

    def train(self, resume_from_checkpoint: str | bool | None = None, **kwargs: Any) -> TrainOutput:
        """Trains; `resume_from_checkpoint=True` goes on from the newest complete checkpoint.

        Raises:
            FileNotFoundError: when there is none.
        """
        if resume_from_checkpoint is True:
            newest = newest_checkpoint(self.args.output_dir)
            if newest is None:
                raise FileNotFoundError(f"there is no complete checkpoint in {self.args.output_dir} to resume from")
            resume_from_checkpoint = str(newest)
        if self.args.should_save:
            remove_torn_checkpoints(self.args.output_dir)
        if resume_from_checkpoint:
            self._keep_precision(resume_from_checkpoint)
        if self.args.should_log:
            logger.info("Training in %s", self.args.chosen_precision)
        return super().train(resume_from_checkpoint=resume_from_checkpoint, **kwargs)

    def _keep_precision(self, checkpoint: str) -> None:
        """Goes on in the precision of a checkpoint, unless another one was asked for, which is said.

        Raises:
            PrecisionError: when it cannot be changed any more.
        """
        began, chosen = precision_of(checkpoint), self.args.chosen_precision
        if began == chosen.name:
            return
        if began is None:
            logger.warning("%s does not say in which precision it was trained", checkpoint)
        elif chosen.is_asked:
            logger.warning("%s was trained in %s; training goes on in %s", checkpoint, began, chosen)
        elif self.is_deepspeed_enabled:
            raise PrecisionError(f"{checkpoint} was trained in {began}: say precision={began}, or another one")
        else:
            reason = f"in which {checkpoint} was trained; a new run would compute in {chosen}"
            self.args.use_precision(ChosenPrecision(began, reason))
            AcceleratorState._reset_state()  # else it would refuse another precision
            self.create_accelerator_and_postprocess()

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Tensor] | None = None) -> None:
        if not self.args.should_save:  # FSDP and DeepSpeed ask every process
            return super()._save(output_dir, state_dict)
        with written_whole(output_dir or self.args.output_dir) as scratch:
            super()._save(str(scratch), state_dict)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        folder = Path(self._get_output_dir(trial)) / f"checkpoint-{self.state.global_step}"
        # What a run that went on from an earlier step has left here is complete, and would seem so while it is
        # overwritten.
        if self.args.should_save and folder.exists():
            shutil.rmtree(folder)
        self.accelerator.wait_for_everyone()
        # The older checkpoints may go only when this one is known to be complete.
        keep, self.args.save_total_limit = self.args.save_total_limit, None
        try:
            with removed_on_failure(folder):
                super()._save_checkpoint(model, trial)
                self.accelerator.wait_for_everyone()
                if self.args.should_save:
                    mark_complete(folder)
        finally:
            self.args.save_total_limit = keep
        if self.args.should_save:
            rotate_checkpoints(
                output_dir=str(folder.parent),
                save_total_limit=keep,
                best_model_checkpoint=self.state.best_model_checkpoint,
                use_mtime=False,
            )
