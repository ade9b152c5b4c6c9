"""The base class of babelens' trainers: data loaders, named evaluations, and the check that a loss is finite."""

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.utils.data import DataLoader

from ..configuration.errors import TrainingSetupError
from ..data.batching.mixture import TaskBatchSampler
from ..data.batching.streams import StreamLoader, StreamMixture
from .data_loading import EpochFromSteps, data_seed, loader_options, mixture_loader
from .finiteness import check_finite
from .precision import PrecisionTrainingArguments
from .whole_checkpoints import WholeCheckpointTrainer


class BabelensTrainer(WholeCheckpointTrainer):
    """transformers' `Trainer` for batches of one or several tasks.

    Subclasses give a `TaskMixture` or a `StreamMixture` as `train_dataset`, and define `measure` and `compute_loss` or
    `training_step`.

    Args:
        model: the model to train.
        args: training arguments of the method.
        kwargs: further arguments of `Trainer`.
    """

    # The class of `args`; recipes read it.
    arguments_class: ClassVar[type[PrecisionTrainingArguments]]

    # Set by transformers, and declared here because the type checker does not read transformers.
    model: Any
    control: Any

    def __init__(self, model: nn.Module, args: PrecisionTrainingArguments, **kwargs: Any) -> None:
        super().__init__(model, args, **kwargs)
        if isinstance(self.train_dataset, StreamMixture):
            self.add_callback(EpochFromSteps)

    def refuse_augmentation(self, task: str) -> None:
        """Refuses `image_augmentation` for a task whose images are replaced by features that are computed once.

        Raises:
            TrainingSetupError: if it is given.
        """
        if self.args.image_augmentation is not None:
            raise TrainingSetupError(
                f"image_augmentation is not read for task {task!r}: the features of its images are computed once; "
                "leave it out, or set cache_frozen_features to false"
            )

    # ---- Training data ----

    @property
    def task_batch_size(self) -> int | Mapping[str, int]:
        """The number of examples of each task in a batch of one process, or a dict task -> number of examples."""
        size: int = self._train_batch_size
        return size

    def get_train_dataloader(self) -> DataLoader | StreamLoader:
        """The batches of all tasks.

        Raises:
            TrainingSetupError: if there is no `train_dataset`.
        """
        if self.train_dataset is None:
            raise TrainingSetupError("training needs a train_dataset")
        if isinstance(self.train_dataset, StreamMixture):
            # Not prepared by accelerate, which would distribute the batches: every process reads its own.
            self.train_dataset.batch_size = self.task_batch_size
            length = self.args.max_steps * self.args.gradient_accumulation_steps
            options = loader_options(self.args)
            self._stream = StreamLoader(self.train_dataset, self.data_collator, length=length, **options)
            return self._stream
        sampler = TaskBatchSampler(
            self.train_dataset, self.task_batch_size, seed=data_seed(self.args), num_processes=self.args.world_size
        )
        return self.accelerator.prepare(mixture_loader(sampler, self.data_collator, self.args))

    def check_loss(self, loss: Tensor, name: str) -> None:
        """Checks a loss before its gradient is computed.

        Args:
            loss: the loss [].
            name: its name in the error message.

        Raises:
            NonFiniteError: if it is NaN or infinite.
        """
        check_finite(loss, name, self.state.global_step + 1)

    # ---- Evaluation ----

    def measure(self, data: Any) -> dict[str, float]:
        """Evaluates the model on one data set.

        Returns:
            The metrics by name, without the prefix `eval_`.
        """
        raise NotImplementedError

    def is_named(self, data: Any) -> bool:
        """Whether evaluation data are a dict name -> data set, rather than a single data set."""
        return isinstance(data, dict)

    def evaluate(
        self,
        eval_dataset: Any | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> dict[str, float]:
        """Evaluates the model, and logs the metrics.

        Args:
            eval_dataset: a data set, or a dict name -> data set; by default the trainer's `eval_dataset`.
            ignore_keys: not used; for the signature of `Trainer.evaluate`.
            metric_key_prefix: the beginning of the metrics' names.

        Returns:
            The metrics of `measure`, named `<prefix>_<metric>`, or `<prefix>_<name>_<metric>` for named data sets.
        """
        data = self.eval_dataset if eval_dataset is None else eval_dataset
        if self.is_named(data):
            parts = [self.evaluate(part, ignore_keys, f"{metric_key_prefix}_{name}") for name, part in data.items()]
            return {key: value for part in parts for key, value in part.items()}
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in self.measure(data).items()}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    # ---- Checkpoints ----

    def _save_rng_state(self, output_dir: str) -> None:
        """Saves what the next batches depend on, for each process: random numbers, and the position of its stream."""
        super()._save_rng_state(output_dir)
        if isinstance(self.train_dataset, StreamMixture):
            self._stream.save(output_dir)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        super()._load_rng_state(checkpoint)
        if isinstance(self.train_dataset, StreamMixture) and checkpoint is not None:
            self._stream.load(checkpoint)


def over_languages(name: str, values: Mapping[str, float]) -> dict[str, float]:
    """A metric as its mean over the languages, `name`, and its values `name_<language>`."""
    mean = sum(values.values()) / len(values)
    return {name: mean} | {f"{name}_{language}": value for language, value in values.items()}
