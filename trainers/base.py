"""The base class of babelens' trainers: transformers' `Trainer` for batches of one or several tasks."""

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import Trainer, TrainerCallback, TrainerState, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PredictionOutput, SaveStrategy, TrainOutput, seed_worker

from ..data.batching.mixture import StreamBatches, StreamLoader, TaskMixture, TaskSampler
from ..data.batching.views import StreamView
from ..utils import hub_mixin
from ..utils.errors import InputError
from .arguments import PrecisionTrainingArguments, data_seed
from .checkpoints import CheckpointMarks, newest_checkpoint, prepare_saving

# (model, processor, evaluation data) -> dict metric -> value, without the prefix `eval_`.
Evaluator = Callable[[Any, Any, Any], Mapping[str, float]]

_ADVICE = "A lower learning rate, a longer warm-up or max_grad_norm may help."
# Arguments of `Trainer` that would have no effect.
_UNUSED = ("data_collator", "compute_loss_func", "compute_metrics", "model_init", "preprocess_logits_for_metrics")


class BabelensTrainer(Trainer):
    """transformers' `Trainer` for batches of one or several tasks. Subclasses define `prepare` and `measure`, and
    `compute_loss` or `training_step`. Training stops if a loss, a gradient or a weight is not finite. Only checkpoints
    of the same run are replaced or deleted (`save_total_limit`).

    Args:
        train_dataset: in the form that `prepare` takes; prepared when training begins.
        eval_dataset: a data set, or a dict name -> data set.
        evaluator: replaces the trainer's evaluation: a function (model, processor, evaluation data) -> dict metric ->
            value, or a list of these functions.
    """

    # The class of `args`; recipes read it.
    arguments_class: ClassVar[type[PrecisionTrainingArguments]]
    # The argument with the sizes of batches by task, where these are not `per_device_train_batch_size`.
    batch_sizes_argument: ClassVar[str] = "task_batch_sizes"

    # Set by transformers; declared here because mypy does not check transformers.
    model: Any
    control: Any
    optimizer: Any

    def __init__(
        self,
        model: nn.Module | None = None,
        args: Any = None,
        *,
        processing_class: Any = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        evaluator: Evaluator | Sequence[Evaluator] | None = None,
        **kwargs: Any,
    ) -> None:
        name = type(self).__name__
        if not isinstance(args, self.arguments_class):
            raise InputError(f"args: {name} needs {self.arguments_class.__name__}, not {type(args).__name__}")
        if processing_class is None:
            raise InputError(f"processing_class: {name} needs the processor of the model")
        if unused := [each for each in _UNUSED if kwargs.get(each) is not None]:
            raise InputError(f"{', '.join(unused)}: {name} does not use this; evaluator= replaces the evaluation")
        self._evaluators = [evaluator] if callable(evaluator) else list(evaluator or ())
        self._mixture: TaskMixture | None = None
        self._stream: StreamLoader | None = None
        self._resumed: str | None = None
        token, args = args.hub_token, copy.copy(args)
        args.hub_token = token  # which a copy leaves out
        # Collators read columns that the model's forward does not take. Batches have no labels in transformers' sense.
        args.remove_unused_columns, args.label_names = False, []
        super().__init__(model, args, processing_class=processing_class, eval_dataset=eval_dataset, **kwargs)
        self.train_dataset = train_dataset
        self._marks = CheckpointMarks()
        for callback in (FiniteGradients(), self._marks, StreamProgress()):
            self.add_callback(callback)

    def prepare(self, model: Any, train_dataset: Any) -> TaskMixture:
        """Prepares a model for training, and returns the examples of its tasks and the collators of their batches."""
        raise NotImplementedError

    def create_model_card(self, model_name: str | None = None, **details: Any) -> None:
        """Writes babelens' model card instead of transformers'; `push_to_hub` calls this method."""
        if not self.is_world_process_zero():
            return
        name = self.args.hub_model_id or model_name or Path(self.args.output_dir).resolve().name
        model, folder, write = self.accelerator.unwrap_model(self.model), self.args.output_dir, hub_mixin.card_writer
        if write and (text := write(model, name, folder, trainer=self)):
            Path(folder, "README.md").write_text(text, encoding="utf-8")
        else:
            super().create_model_card(model_name=model_name, **details)

    # ---- Training ----

    @property
    def mixture(self) -> Any:
        """The examples of the training data, which are prepared once."""
        if self._mixture is None:
            if self.train_dataset is None:
                raise InputError("training needs a train_dataset")
            self._mixture = self.prepare(self.model, self.train_dataset)
        return self._mixture

    @property
    def batch_sizes(self) -> dict[str, int]:
        """Task -> its number of examples per batch and process. If memory forced the general number below the one in
        `args` (`auto_find_batch_size`), own numbers shrink proportionally."""
        size, own = self._train_batch_size, getattr(self.args, self.batch_sizes_argument, None) or {}
        share = size / self.args.train_batch_size
        return {task: max(int(own[task] * share), 1) if task in own else size for task in self.mixture.tasks}

    def get_train_dataloader(self) -> DataLoader | StreamLoader:
        args, mixture = self.args, self.mixture
        sampler = TaskSampler(mixture, self.batch_sizes, seed=data_seed(args), num_processes=args.world_size)
        if not any(isinstance(data, StreamView) for data in mixture.tasks.values()):
            return self.accelerator.prepare(mixture_loader(sampler, args))
        if args.max_steps <= 0:
            raise InputError("training on a stream needs max_steps, because the length of a stream is unknown")
        # accelerate does not prepare the loader, because it would distribute the batches, and every process already
        # reads its own. A stream resumes from the position in the checkpoint; transformers would read all earlier
        # batches again.
        args.ignore_data_skip = True
        own = {"process": args.process_index, "num_workers": args.dataloader_num_workers}
        batches = StreamBatches(sampler, block_size=args.shuffle_buffer_size, **own)
        length = args.max_steps * args.gradient_accumulation_steps
        self._stream = StreamLoader(batches, length=length, **loader_options(args))
        if self._resumed:
            self._stream.load(self._resumed)
        return self._stream

    def train(self, resume_from_checkpoint: str | bool | None = None, **kwargs: Any) -> TrainOutput:
        """Trains as `Trainer` does; `resume_from_checkpoint=True` resumes from the newest complete checkpoint."""
        if self.is_fsdp_enabled or self.is_deepspeed_enabled:
            raise InputError("FSDP and DeepSpeed are not supported: start the training with torchrun")
        if resume_from_checkpoint is True:
            newest = newest_checkpoint(self.args.output_dir)
            if newest is None:
                raise FileNotFoundError(f"there is no complete checkpoint in {self.args.output_dir} to resume from")
            resume_from_checkpoint = str(newest)
        self._resumed = str(resume_from_checkpoint) if resume_from_checkpoint else None
        if self.args.eval_strategy != "no":
            self.check_evaluation()
        if self.args.should_save and self.args.save_strategy != SaveStrategy.NO:
            prepare_saving(self.args.output_dir)
        self._marks.start(self.args, self._resumed)
        self.args.save_total_limit = None  # transformers would delete any folder named checkpoint-*
        try:
            with self._marks.saving():
                output = super().train(resume_from_checkpoint=self._resumed, **kwargs)
        finally:
            self.args.save_total_limit = self._marks.limit
            # A trainer with another precision or `torch_compile` would find the model prepared by accelerate.
            self.accelerator.unwrap_model(self.model, keep_fp32_wrapper=False)
            vars(self.model).pop("_is_accelerate_prepared", None)
        if not (self.args.load_best_model_at_end and self.state.best_model_checkpoint):  # whose weights were saved
            self.set_optimizer_mode(training=False)
        check_weights(self.model, self.state.global_step)
        return output

    def set_initial_training_values(self, args: Any, dataloader: Any, *others: Any) -> Any:
        """As in transformers, but no epoch is left after the last step; transformers would train one more step."""
        epochs, *values = super().set_initial_training_values(args, dataloader, *others)
        if self._resumed and (state := Path(self._resumed, TRAINER_STATE_NAME)).is_file():
            epochs = 0 if TrainerState.load_from_json(str(state)).global_step >= values[-1] else epochs
        return (epochs, *values)

    def check_loss(self, loss: Tensor, name: str) -> None:
        """Raises an `InputError` that names the loss [] if it is NaN or infinite."""
        if not loss.isfinite():
            raise InputError(
                f"the loss of {name} is {loss.item()} in step {self.state.global_step + 1}; training stopped before "
                f"it reached the weights. {_ADVICE}"
            )

    def set_optimizer_mode(self, *, training: bool) -> None:
        """Switches a schedule-free optimizer between its weights for training and those for evaluation and saving."""
        change = getattr(self.optimizer, "train" if training else "eval", None)
        if callable(change):
            change()

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Saves the model, as `Trainer` does, if its weights are finite."""
        self.set_optimizer_mode(training=False)
        check_weights(self.model, self.state.global_step)
        if _internal_call and output_dir is not None and self.is_in_train:  # a checkpoint
            if self.args.should_save:
                self._marks.begin(output_dir)
            self.accelerator.wait_for_everyone()
            if self._stream is not None:
                self._stream.save(output_dir)
        super().save_model(output_dir, _internal_call)

    # ---- Evaluation ----

    def measure(self, data: Any) -> Mapping[str, float]:
        """Returns the model's metrics on one data set by name, without the prefix `eval_`."""
        raise NotImplementedError

    def is_named(self, data: Any) -> bool:
        """Returns whether the evaluation data is a dict name -> data set instead of a single data set."""
        return isinstance(data, dict)

    def evaluation_data(self, data: Any) -> Any:
        """Returns a data set in the form that `measure` and evaluators take."""
        return data

    def check_evaluation(self) -> None:
        """Checks `eval_dataset` before a training run that evaluates it."""

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Returns and logs the metrics as `<prefix>_<metric>`, or `<prefix>_<name>_<metric>` for named data sets."""
        data = self.eval_dataset if eval_dataset is None else eval_dataset
        if data is None:
            raise InputError("evaluate() needs an eval_dataset")
        self.set_optimizer_mode(training=False)
        metrics: dict[str, float] = {}
        for name, part in data.items() if self.is_named(data) else [("", data)]:
            prefix, part = f"{metric_key_prefix}_{name}" if name else metric_key_prefix, self.evaluation_data(part)
            measured: dict[str, float] = {}
            for measure in self._evaluators or [lambda model, processor, data: self.measure(data)]:
                measured |= measure(self.model, self.processing_class, part)
            own = {f"{prefix}_{metric}": value for metric, value in measured.items()}
            self.log(own)
            self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, own)
            metrics |= own
        return metrics

    def predict(self, test_dataset: Any, *args: Any, **kwargs: Any) -> PredictionOutput:
        raise InputError(f"predict: {type(self).__name__} does not predict; evaluate() measures the model")


class FiniteGradients(TrainerCallback):
    """Stops training before a NaN or infinite gradient reaches the weights. With float16, accelerate skips the step
    and reduces the loss scale instead."""

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if args.fp16:
            return
        norm = torch.nn.utils.get_total_norm([each.grad for each in model.parameters() if each.grad is not None])
        if not norm.isfinite():
            raise InputError(
                f"the gradient's norm is {norm.item()} in step {state.global_step + 1}; training stopped before it "
                f"reached the weights. {_ADVICE}"
            )


def check_weights(model: nn.Module, step: int) -> None:
    """Raises an `InputError` if a weight is NaN or infinite; called before a model is saved."""
    for name, value in model.state_dict().items():
        if value.is_floating_point() and not value.isfinite().all():
            raise InputError(f"after step {step}, {name} is not finite; nothing was saved. {_ADVICE}")


def loader_options(args: TrainingArguments) -> dict[str, Any]:
    return {
        "pin_memory": args.dataloader_pin_memory and torch.accelerator.is_available(),
        "persistent_workers": args.dataloader_persistent_workers,
        "prefetch_factor": args.dataloader_prefetch_factor,
        "worker_init_fn": partial(seed_worker, num_workers=args.dataloader_num_workers, rank=args.process_index),
    }


def mixture_loader(sampler: TaskSampler, args: TrainingArguments) -> DataLoader:
    # Persistent workers are seeded once. Without a separate generator, a resumed run would draw their seed again from
    # the generator that dropout uses.
    generator = torch.Generator().manual_seed(sampler.seed) if args.dataloader_persistent_workers else None
    return DataLoader(
        sampler.mixture,
        batch_size=1,  # an item is a batch of each task
        sampler=sampler,
        collate_fn=itemgetter(0),
        num_workers=args.dataloader_num_workers,
        generator=generator,
        **loader_options(args),
    )


class StreamProgress(TrainerCallback):
    """Counts an epoch of a stream as a fraction of `max_steps`, because its length is unknown."""

    def on_step_end(self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **kwargs: Any) -> None:
        if isinstance(train_dataloader, StreamLoader):
            state.epoch = state.global_step / state.max_steps
