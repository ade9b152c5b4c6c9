"""How far training has come, for losses that change with the training step."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TrainingStep:
    """The step for which a loss is computed. The defaults stand for the first step of a run.

    Args:
        index: number of optimizer steps that were taken before this one.
        total: number of optimizer steps of the whole run.
    """

    index: int = 0
    total: int = 0

    @property
    def progress(self) -> float:
        """The share of the run that is done, from 0 to 1."""
        return self.index / max(self.total, 1)


FIRST_STEP = TrainingStep()
