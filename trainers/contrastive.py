"""The contrastive trainer: what every dual encoder's training shares.

A step takes one batch of each task, computes each task's loss on its embeddings (gathered from chunks and processes),
and steps. A method's trainer says which tasks there are and how their data become batches; its model says what it
loses on embeddings (`contrastive_objective`).
"""

import math
import shutil
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from datasets import Dataset
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader
from transformers import PreTrainedModel, ProcessorMixin, Trainer
from transformers.trainer_utils import TrainOutput, rotate_checkpoints, seed_worker

from ..configuration.tasks import IMAGE_TEXT
from ..data.collators import ContrastiveCollator, TaskCollator
from ..data.corpus import languages_of
from ..data.views import image_text_pairs, translation_pairs
from ..evaluation.embedder import Embedder
from ..evaluation.retrieval import evaluate_retrieval
from ..modeling.modeling_dual_encoder import DualEncoderOutput
from ..processing.image_augmentation import ImageAugmentation, TrainingTransform
from .arguments import LAMB, ContrastiveTrainingArguments
from .checkpoints import mark_complete, newest_checkpoint, remove_torn_checkpoints, removed_on_failure, written_whole
from .gathering import gather_labels, gather_rows, row_counts
from .gradient_caching import backward_in_chunks
from .mixture import SizedView, TaskBatchSampler, TaskMixture
from .optimizers import Lamb, TaskOptimizer
from .sharding import check_shardable, make_shardable, shard_embedding_methods


@dataclass(frozen=True)
class TaskData:
    """What a task takes of a corpus.

    Args:
        corpus: a caption corpus or a translation corpus.
        languages: of pictures' captions; by default the arguments' `languages`, else all.
        pairs: of translations; by default all.
    """

    corpus: Dataset
    languages: list[str] | None = None
    pairs: list[tuple[str, str]] | None = None


class NonFiniteLossError(FloatingPointError):
    """A loss that is NaN or infinite; training stops at that step, before it reaches the weights."""


class ContrastiveTrainer(Trainer):
    """transformers' `Trainer` for dual encoders.

    Args:
        model: a dual encoder of this package.
        args: `ContrastiveTrainingArguments`.
        processing_class: the model's processor.
        train_dataset: a caption corpus (the first task's data), or a dict task -> corpus, `TaskData` or view (see
            `babelens.data`).
        eval_dataset: a caption corpus, or a dict name -> corpus, evaluated by retrieval recall in each language.
        kwargs: as for `Trainer`.
    """

    # The tasks, the main one first, with the default weight of each one's loss.
    task_weights: ClassVar[dict[str, float]]
    arguments_class: ClassVar[type[ContrastiveTrainingArguments]] = ContrastiveTrainingArguments

    # transformers sets these; declared for the type checker, which does not read transformers.
    optimizer: Any
    control: Any

    def __init__(
        self,
        model: PreTrainedModel,
        args: ContrastiveTrainingArguments,
        *,
        processing_class: ProcessorMixin,
        train_dataset: Dataset | dict[str, Any] | None = None,
        eval_dataset: Dataset | dict[str, Dataset] | None = None,
        **kwargs: Any,
    ) -> None:
        self.args, self.processing_class = args, processing_class  # the views and collators below need them
        self.tasks = self._make_views(train_dataset) if train_dataset is not None else {}
        self.weights = {**self.task_weights, **(args.task_weights or {})}
        self._check_tasks([*self.weights, *(args.task_learning_rates or {})])
        # As the pictures come (`TrainingTransform`). With weights in the other layout, a CPU takes 25 times longer
        # for the gradient of a convolution in bfloat16.
        model.to(memory_format=torch.channels_last)
        model.text_length_groups = args.text_length_groups
        super().__init__(
            model=model,
            args=args,
            processing_class=processing_class,
            train_dataset=TaskMixture(self.tasks) if self.tasks else None,
            eval_dataset=eval_dataset,
            data_collator=TaskCollator({task: self.make_collator(task) for task in self.tasks}),
            **kwargs,
        )
        self.loss_is_scaled_for_ga = False
        self._logged_losses: dict[str, Tensor] = {}
        self._logged_steps = 0

    # ---- What a method defines ----

    def make_view(self, task: str, data: TaskData) -> SizedView:
        """The examples of a task, one of `task_weights`."""
        if task == IMAGE_TEXT:
            return image_text_pairs(data.corpus, data.languages or self.args.languages)
        return translation_pairs(data.corpus, data.pairs)

    def make_collator(self, task: str) -> ContrastiveCollator:
        """Turns a task's examples and their seeds into the model's inputs and `positives`."""
        augmentation = ImageAugmentation(**(self.args.image_augmentation or {}))
        return ContrastiveCollator(
            self.processing_class, TrainingTransform(self.processing_class.image_processor, augmentation)
        )

    # ---- Data ----

    def _make_views(self, train_dataset: Any) -> dict[str, SizedView]:
        given = train_dataset if isinstance(train_dataset, dict) else {next(iter(self.task_weights)): train_dataset}
        self._check_tasks(given)
        # In the order of the method's tasks: the first is the one whose data an epoch goes through.
        ordered = [(task, given[task]) for task in self.task_weights if task in given]
        taken = {task: TaskData(data) if isinstance(data, Dataset) else data for task, data in ordered}
        return {
            task: self.make_view(task, data) if isinstance(data, TaskData) else data for task, data in taken.items()
        }

    def _check_tasks(self, named: Iterable[str]) -> None:
        for task in named:
            if task not in self.task_weights:
                raise ValueError(
                    f"{type(self).__name__} has no task {task!r}; its tasks are {list(self.task_weights)}"
                )

    def get_train_dataloader(self) -> DataLoader:
        if self.train_dataset is None:
            raise ValueError("training needs a train_dataset")
        sampler = TaskBatchSampler(
            self.train_dataset,
            self._train_batch_size,
            seed=self.args.data_seed if self.args.data_seed is not None else self.args.seed,
            num_processes=self.args.world_size,
        )
        workers = self.args.dataloader_num_workers
        # Workers that live on are seeded once. A resumed run would draw their seed again, from dropout's numbers.
        generator = torch.Generator().manual_seed(sampler.seed) if self.args.dataloader_persistent_workers else None
        loader = DataLoader(
            self.train_dataset,
            batch_sampler=sampler,
            collate_fn=self.data_collator,
            num_workers=workers,
            pin_memory=self.args.dataloader_pin_memory and torch.accelerator.is_available(),
            persistent_workers=self.args.dataloader_persistent_workers,
            prefetch_factor=self.args.dataloader_prefetch_factor,
            generator=generator,
            worker_init_fn=partial(seed_worker, num_workers=workers, rank=self.args.process_index),
        )
        return self.accelerator.prepare(loader)

    # ---- One step ----

    def _prepare_for_training(
        self, max_steps: int, train_dataloader: DataLoader, resume_from_checkpoint: str | None
    ) -> tuple[nn.Module, DataLoader]:
        check_shardable(self.args, self.accelerator.state)
        if self.is_fsdp_enabled or self.is_deepspeed_enabled:
            make_shardable(self.model, self.accelerator.state, self.args.device)
        model, loader = super()._prepare_for_training(max_steps, train_dataloader, resume_from_checkpoint)
        if self.is_fsdp_enabled:
            self._sync_replicated_trainable_parameters(model)
            shard_embedding_methods(model)
        return model, loader

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        """Adds every task's gradient to the weights; returns the weighted sum of the losses."""
        model.train()
        total = torch.zeros((), device=self.args.device)
        batches = self._prepare_inputs(inputs)
        for task, batch in batches.items():
            weight = self.weights[task] / self.current_gradient_accumulation_steps
            with self._gradients_of(task):
                loss = self._backward(model, task, batch, weight, is_last_task=task == next(reversed(batches)))
            self._logged_losses[task] = (
                self._logged_losses.get(task, 0) + loss / self.current_gradient_accumulation_steps
            )
            total += weight * loss
        return total

    def _backward(
        self, model: nn.Module, task: str, batch: dict[str, Tensor], weight: float, *, is_last_task: bool
    ) -> Tensor:
        """One task's forward and backward pass; returns its loss, not weighted."""
        positives = batch.pop("positives")
        size = positives.shape[-1]
        counts = row_counts(size, positives.device)

        def objective(output: DualEncoderOutput) -> Tensor:
            loss = self._objective(output, positives, counts)
            if not loss.isfinite():
                raise NonFiniteLossError(
                    f"the loss of task {task!r} is {loss.item()} in step {self.state.global_step + 1}; training "
                    "stopped before it reached the weights. A lower learning rate, a longer warm-up or max_grad_norm "
                    "may help."
                )
            return loss

        def backward(loss: Tensor, is_last_chunk: bool) -> None:
            if self.is_deepspeed_enabled:  # whose engine steps with a backward pass that is to be synchronised
                is_last = self.accelerator.sync_gradients and is_last_task and is_last_chunk
                engine = self.accelerator.deepspeed_engine_wrapped
                engine.backward(weight * loss, sync_gradients=is_last, scale_wrt_gas=False)
            else:
                self.accelerator.backward(weight * loss)

        if self.is_fsdp_enabled or self.is_deepspeed_enabled:
            size = max(counts)  # every process has as many chunks: sharded weights are gathered for each of them
        chunks = math.ceil(size / (self.args.embed_chunk_size or size))
        if chunks == 1:
            with self.compute_loss_context_manager():
                output = model(**batch, return_logits=False)
            loss = objective(output)
            backward(loss, True)
            return loss.detach()
        return backward_in_chunks(
            model,
            batch,
            objective,
            chunks=chunks,
            backward=backward,
            autocast=self.compute_loss_context_manager,
            without_sync=partial(self.accelerator.no_sync, model=model),
        )

    def _objective(self, output: DualEncoderOutput, positives: Tensor, counts: list[int]) -> Tensor:
        """The method's loss on the embeddings of all processes, which have `counts` rows."""
        if self.args.gather_negatives:
            output = type(output)(
                {name: gather_rows(value, counts) if value.dim() else value for name, value in output.items()}
            )
            positives = gather_labels(positives, counts)
        return self.model.contrastive_objective(output, positives=positives, tile_size=self.args.loss_tile_size)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Adds each task's own loss, and the temperature, to the training log."""
        if "loss" in logs:
            steps = max(self.state.global_step - self._logged_steps, 1)
            logs |= {f"loss_{task}": round((loss / steps).item(), 4) for task, loss in self._logged_losses.items()}
            if hasattr(self.model, "temperature"):
                logs["temperature"] = round(self.model.temperature.item(), 5)
            self._logged_losses, self._logged_steps = {}, self.state.global_step
        super().log(logs, start_time)

    # ---- Optimisers ----

    def create_optimizer(self, model: nn.Module | None = None) -> Optimizer:
        if self.optimizer is None:
            model = self.model if model is None else model
            base: float = self.args.learning_rate
            rates = self.args.task_learning_rates
            if rates:
                optimizers = {task: self._make_optimizer(model, rates.get(task, base)) for task in self.tasks}
                self.optimizer = TaskOptimizer(optimizers)
            else:
                self.optimizer = self._make_optimizer(model, base)
        return self.optimizer

    def _make_optimizer(self, model: nn.Module, learning_rate: float) -> Optimizer:
        decayed = set(self.get_decay_parameter_names(model))
        groups = [
            {
                "params": [p for n, p in model.named_parameters() if p.requires_grad and n in decayed],
                "weight_decay": self.args.weight_decay,
            },
            {
                "params": [p for n, p in model.named_parameters() if p.requires_grad and n not in decayed],
                "weight_decay": 0.0,
            },
        ]
        if self.args.optim == LAMB:
            betas = (self.args.adam_beta1, self.args.adam_beta2)
            return Lamb(groups, lr=learning_rate, betas=betas, eps=self.args.adam_epsilon)
        optimizer_class, options = self.get_optimizer_cls_and_kwargs(self.args, model)
        return optimizer_class(groups, **{**options, "lr": learning_rate})

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """Matrices and filters; not biases, the scales of any normalisation, or the temperature."""
        return [name for name, parameter in model.named_parameters() if parameter.dim() > 1]

    @property
    def _task_optimizer(self) -> TaskOptimizer | None:
        optimizer = getattr(self.optimizer, "optimizer", self.optimizer)  # accelerate wraps it
        return optimizer if isinstance(optimizer, TaskOptimizer) else None

    def _gradients_of(self, task: str) -> Any:
        return self._task_optimizer.gradients_of(task) if self._task_optimizer else nullcontext()

    def _clip_grad_norm(self, model: nn.Module) -> Tensor:
        if self._task_optimizer:
            return self._task_optimizer.clip_gradients(self.args.max_grad_norm)
        return super()._clip_grad_norm(model)

    def _get_grad_norm(self, model: nn.Module, grad_norm: Tensor | None = None) -> Any:
        if self._task_optimizer and grad_norm is None:
            return self._task_optimizer.clip_gradients(math.inf)
        return super()._get_grad_norm(model, grad_norm)

    # ---- Evaluation ----

    def evaluate(
        self,
        eval_dataset: Dataset | dict[str, Dataset] | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> dict[str, float]:
        """Retrieval recall in percent: `eval_mean_recall` over the languages, and `eval_mean_recall_<language>`."""
        corpus = self.eval_dataset if eval_dataset is None else eval_dataset
        if isinstance(corpus, dict):
            parts = [self.evaluate(part, ignore_keys, f"{metric_key_prefix}_{name}") for name, part in corpus.items()]
            return {key: value for part in parts for key, value in part.items()}
        embedder = Embedder(self.model, self.processing_class, batch_size=self.args.per_device_eval_batch_size)
        languages = self.args.eval_languages or list(languages_of(corpus))
        recalls = {
            tag: result["mean_recall"] for tag, result in evaluate_retrieval(embedder, corpus, languages).items()
        }
        metrics = {f"{metric_key_prefix}_mean_recall": sum(recalls.values()) / len(recalls)}
        metrics |= {f"{metric_key_prefix}_mean_recall_{tag}": value for tag, value in recalls.items()}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    # ---- Checkpoints ----

    def train(self, resume_from_checkpoint: str | bool | None = None, **kwargs: Any) -> TrainOutput:
        """Trains; `resume_from_checkpoint=True` goes on from the newest complete checkpoint.

        Raises:
            FileNotFoundError: when there is none.
            NonFiniteLossError: at the step whose loss is not finite.
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
