"""transformers' `Trainer` with checkpoints that are whole or do not count (`checkpoints`)."""

import shutil
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from transformers import Trainer
from transformers.trainer_utils import TrainOutput, rotate_checkpoints

from .checkpoints import mark_complete, newest_checkpoint, remove_torn_checkpoints, removed_on_failure, written_whole


class WholeCheckpointTrainer(Trainer):
    """Resumes from the newest complete checkpoint, and leaves nothing half-written behind."""

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
        return super().train(resume_from_checkpoint=resume_from_checkpoint, **kwargs)

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
