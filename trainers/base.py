"""The base class of babelens' trainers: their arguments, data loaders, evaluations, and the check of the loss."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments, set_seed
from transformers.trainer_utils import PredictionOutput, TrainOutput, seed_worker

from ..data.batching.mixture import TaskBatchSampler
from ..data.batching.streams import StreamLoader, StreamMixture
from ..utils.errors import TrainingSetupError
from ..utils.hub_code import card_writers
from .arguments import data_seed
from .precision import PrecisionTrainingArguments
from .whole_checkpoints import WholeCheckpointTrainer, check_finite

# (model, processor, evaluation data) -> metrics by name, without the prefix `eval_`.
Evaluator = Callable[[Any, Any, Any], Mapping[str, float]]

# Arguments of transformers' `Trainer` that would have no effect here, each with the reason.
_REFUSED = {
    "data_collator": "the trainer makes the batches of its tasks itself (`make_collator` of a subclass)",
    "compute_loss_func": "the loss is the model's own (`contrastive_objective`, or the objectives of RC3)",
    "preprocess_logits_for_metrics": "an evaluation computes embeddings, answers or ranks, not logits of batches",
}


class BabelensTrainer(WholeCheckpointTrainer):
    """transformers' `Trainer` for batches of one or several tasks.

    Subclasses define `prepare` and `measure`, and `compute_loss` or `training_step`.

    Args:
        model: the model to train.
        args: training arguments of the method.
        processing_class: the processor of the model.
        train_dataset: the training data, in the form that `prepare` takes.
        eval_dataset: a data set, or a dict name -> data set.
        model_init: a function that returns the model, instead of `model`. Every training then begins with a new one,
            as `hyperparameter_search` requires.
        evaluator: a function (model, processor, evaluation data) -> metrics by name, or a list of such functions,
            instead of the trainer's own evaluation.
        compute_metrics: as `measure` of the subclass describes it.
        kwargs: further arguments of `Trainer`.

    Raises:
        TrainingSetupError: for arguments that are missing, of another method, or without effect.
    """

    # The class of `args`; recipes read it.
    arguments_class: ClassVar[type[PrecisionTrainingArguments]]
    # Whether `measure` calls `compute_metrics`.
    computes_metrics: ClassVar[bool] = False

    # Set by transformers, and declared here because the type checker does not read transformers.
    model: Any
    control: Any
    optimizer: Any
    lr_scheduler: Any
    model_wrapped: Any

    def __init__(
        self,
        model: nn.Module | None = None,
        args: Any = None,
        *,
        processing_class: Any = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        model_init: Callable[..., nn.Module] | None = None,
        evaluator: Evaluator | Sequence[Evaluator] | None = None,
        compute_metrics: Callable[..., Mapping[str, float]] | None = None,
        **kwargs: Any,
    ) -> None:
        self._check_arguments(model, args, processing_class, model_init, kwargs)
        if compute_metrics is not None and (evaluator is not None or not self.computes_metrics):
            reason = "an evaluator replaces its evaluation" if evaluator else "it measures its tasks in its own way"
            raise TrainingSetupError(
                f"compute_metrics: {type(self).__name__} does not call it: {reason}; use evaluator="
            )
        self.args, self.processing_class, self.model_init = args, processing_class, model_init
        self._evaluators = [evaluator] if callable(evaluator) else list(evaluator or ())
        self._given_data = train_dataset
        if model is None:
            set_seed(args.seed)
            model = self.call_model_init()
        mixture, collator = self.prepare(model, train_dataset)
        self._check_evaluation(eval_dataset)
        super().__init__(
            model,
            args,
            processing_class=processing_class,
            train_dataset=mixture,
            eval_dataset=eval_dataset,
            data_collator=collator,
            compute_metrics=compute_metrics,
            **kwargs,
        )
        self.model_init = model_init
        if isinstance(self.train_dataset, StreamMixture):
            self.add_callback(EpochFromSteps)

    def create_model_card(self, model_name: str | None = None, **details: Any) -> None:
        """Writes our card into the output folder, in the place of transformers' own; `push_to_hub` calls it.

        Args:
            model_name: the model's name; by default that of the repository or of the folder.
            details: arguments of transformers' own cards, such as `tags`, which have no effect.
        """
        if not self.is_world_process_zero():
            return
        name = self.args.hub_model_id or model_name or Path(self.args.output_dir).resolve().name
        for write in card_writers:
            if text := write(self.accelerator.unwrap_model(self.model), name, self.args.output_dir, trainer=self):
                Path(self.args.output_dir, "README.md").write_text(text, encoding="utf-8")
                return
        super().create_model_card(model_name=model_name, **details)

    def _check_arguments(
        self, model: Any, args: Any, processor: Any, model_init: Any, others: Mapping[str, Any]
    ) -> None:
        name = type(self).__name__
        for argument, reason in _REFUSED.items():
            if others.get(argument) is not None:
                raise TrainingSetupError(f"{argument}: {name} does not call it, because {reason}")
        if not isinstance(args, self.arguments_class):
            given = "there are none" if args is None else f"these are {type(args).__name__}"
            raise TrainingSetupError(f"args: {name} needs {self.arguments_class.__name__}, and {given}")
        if (model is None) == (model_init is None):
            raise TrainingSetupError(f"{name} needs either a model or model_init")
        if processor is None:
            raise TrainingSetupError(f"processing_class: {name} needs the processor of the model")
        if model_init is not None and any(others.get("optimizers") or ()):
            raise TrainingSetupError("optimizers: they hold the weights of one model, and model_init makes new ones")

    def _check_evaluation(self, data: Any) -> None:
        """Checks evaluation data before the training.

        Raises:
            TrainingSetupError: if named data need the name of one of them in `metric_for_best_model`.
        """
        metric = self.args.metric_for_best_model
        if metric is not None and data is not None and self.is_named(data):
            beginnings = tuple(f"{name}_" for name in data)
            if not metric.removeprefix("eval_").startswith(beginnings):
                raise TrainingSetupError(
                    f"metric_for_best_model={metric!r}: eval_dataset has names; write one of them first, such as "
                    f"{next(iter(beginnings), '')}{metric.removeprefix('eval_')}"
                )

    def prepare(self, model: Any, train_dataset: Any) -> tuple[Any, Any]:
        """Prepares a model for training, and its training data for the model.

        Args:
            model: the model, new or given.
            train_dataset: the training data; None if there are none.

        Returns:
            The `TaskMixture` or `StreamMixture` of the data, or None, and the collator of its batches.
        """
        raise NotImplementedError

    def train(self, resume_from_checkpoint: str | bool | None = None, trial: Any = None, **kwargs: Any) -> TrainOutput:
        """Trains the model as `Trainer.train` does; with `model_init`, a new one.

        Args:
            resume_from_checkpoint: the checkpoint to resume from; True for the newest complete one.
            trial: the trial of `hyperparameter_search`.
            kwargs: further arguments of `Trainer.train`.

        Raises:
            As `WholeCheckpointTrainer.train`.
        """
        model_init = self.model_init
        if model_init is None:
            return self.train_model(resume_from_checkpoint, trial=trial, **kwargs)
        self._hp_search_setup(trial)  # the views of the data depend on the arguments, which a trial sets
        set_seed(self.args.seed)
        model = self.call_model_init(trial)
        self.train_dataset, self.data_collator = self.prepare(model, self._given_data)
        self.model = self.model_wrapped = model.to(self.args.device)
        self.optimizer = self.lr_scheduler = None
        self.model_init = None  # transformers would make one more
        try:
            return self.train_model(resume_from_checkpoint, trial=trial, **kwargs)
        finally:
            self.model_init = model_init

    def train_model(self, resume_from_checkpoint: str | bool | None = None, **kwargs: Any) -> TrainOutput:
        """Trains the model that the trainer has; arguments as in `train`."""
        self._state_special_tokens()
        output = super().train(resume_from_checkpoint, **kwargs)
        if not (self.args.load_best_model_at_end and self.state.best_model_checkpoint):  # whose weights were saved
            self.set_optimizer_mode(training=False)
        return output

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Saves the model, as `Trainer` does, if its weights are finite."""
        self.set_optimizer_mode(training=False)
        super().save_model(output_dir, _internal_call)

    def _state_special_tokens(self) -> None:
        """Writes the ids of the special tokens into a configuration without a text tower's, such as MLA's.

        transformers writes them when a training begins, and warns that they are new."""
        config, tokenizer = self.model.config, getattr(self.processing_class, "tokenizer", None)
        if tokenizer is not None and config.get_text_config() is config:
            for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
                if getattr(tokenizer, name, None) is not None:
                    setattr(config, name, getattr(tokenizer, name))

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

    def set_optimizer_mode(self, *, training: bool) -> None:
        """Schedule-free optimizers exchange the weights that are trained and those that are evaluated and saved."""
        change = getattr(self.optimizer, "train" if training else "eval", None)
        if callable(change):
            change()

    # ---- Evaluation ----

    def measure(self, data: Any) -> Mapping[str, float]:
        """Evaluates the model on one data set, without an `evaluator`.

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
            The metrics of the evaluation, named `<prefix>_<metric>`, or `<prefix>_<name>_<metric>` for named data.

        Raises:
            TrainingSetupError: without data, and during a training whose `metric_for_best_model` is not measured.
        """
        data = self.eval_dataset if eval_dataset is None else eval_dataset
        if data is None:
            raise TrainingSetupError("evaluate: there is no eval_dataset")
        self.set_optimizer_mode(training=False)
        named = data if self.is_named(data) else {"": data}
        every: dict[str, float] = {}
        for name, part in named.items():
            prefix = f"{metric_key_prefix}_{name}" if name else metric_key_prefix
            metrics = {f"{prefix}_{metric}": value for metric, value in self._measured(part).items()}
            self.log(metrics)
            self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
            every |= metrics
        if self.is_in_train and metric_key_prefix == "eval":
            self._check_best_metric(every)
        return every

    def _measured(self, data: Any) -> dict[str, float]:
        if not self._evaluators:
            return dict(self.measure(data))
        results = [evaluator(self.model, self.processing_class, data) for evaluator in self._evaluators]
        return {name: value for result in results for name, value in result.items()}

    def _check_best_metric(self, metrics: Mapping[str, float]) -> None:
        metric = self.args.metric_for_best_model
        if metric is not None and f"eval_{metric.removeprefix('eval_')}" not in metrics:
            raise TrainingSetupError(
                f"metric_for_best_model={metric!r}: there is no such metric; there are {', '.join(metrics)}"
            )

    def predict(self, test_dataset: Any, *args: Any, **kwargs: Any) -> PredictionOutput:
        """Refused, unless a subclass defines what it predicts.

        Raises:
            TrainingSetupError: always.
        """
        raise TrainingSetupError(
            f"predict: {type(self).__name__} does not predict; evaluate() measures the model, and its pipeline answers"
        )

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


# ---- Data loaders as the training arguments ask for them ----


def loader_options(args: TrainingArguments) -> dict[str, Any]:
    """The options of `torch.utils.data.DataLoader` that the arguments set."""
    return {
        "pin_memory": args.dataloader_pin_memory and torch.accelerator.is_available(),
        "persistent_workers": args.dataloader_persistent_workers,
        "prefetch_factor": args.dataloader_prefetch_factor,
        "worker_init_fn": partial(seed_worker, num_workers=args.dataloader_num_workers, rank=args.process_index),
    }


def mixture_loader(
    sampler: TaskBatchSampler, collate: Callable[[list[Any]], Any], args: TrainingArguments
) -> DataLoader:
    """A data loader over the batches of a sampler.

    Args:
        sampler: the batches of a `TaskMixture`.
        collate: turns the examples of a batch into tensors.
        args: the number of workers and how they are run.
    """
    # Persistent workers are seeded once. Without a generator of its own, a resumed run would draw their seed again
    # from the generator that dropout uses.
    generator = torch.Generator().manual_seed(sampler.seed) if args.dataloader_persistent_workers else None
    return DataLoader(
        sampler.mixture,
        batch_sampler=sampler,
        collate_fn=collate,
        num_workers=args.dataloader_num_workers,
        generator=generator,
        **loader_options(args),
    )


class EpochFromSteps(TrainerCallback):
    """Logs the share of `max_steps` that is done as the epoch, because the length of a stream is not known."""

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        state.epoch = state.global_step / state.max_steps
