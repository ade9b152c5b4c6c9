"""The contrastive trainer: what every dual encoder's training shares.

A step takes one batch of each task, computes each task's loss on its embeddings (gathered from chunks and processes),
and steps. A method's trainer says which tasks there are and how their data become batches; its model says what it
loses on embeddings (`contrastive_objective`).
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from datasets import Dataset, IterableDataset
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader
from transformers import PreTrainedModel, ProcessorMixin

from ..configuration.errors import TrainingSetupError
from ..configuration.tasks import IMAGE_TEXT
from ..data.batching.collators import Collator, ContrastiveCollator, TaskCollator
from ..data.batching.mixture import SizedView, TaskBatchSampler, TaskMixture, data_seed, loader_options, mixture_loader
from ..data.batching.streams import ShareOfSteps, StreamLoader, StreamMixture
from ..data.batching.views import StreamView, image_text_pairs, translation_pairs
from ..data.corpus.corpus import languages_of
from ..evaluation.retrieval import evaluate_retrieval
from ..inference.embedder import Embedder
from ..modeling.modeling_dual_encoder import DualEncoderOutput
from ..processing.image_augmentation import ImageAugmentation, TrainingTransform
from ..processing.text_augmentation import SubwordDropout, TextAugmentation
from .arguments import ADAMAX, LAMB, ContrastiveTrainingArguments
from .bounded_temperature import BoundTemperature
from .finiteness import check_finite
from .gathering import gather_labels, gather_rows, row_counts
from .gradient_caching import backward_in_chunks
from .optimizers import Lamb, TaskOptimizer, parameter_groups
from .sharding import check_shardable, make_shardable, shard_embedding_methods
from .whole_checkpoints import WholeCheckpointTrainer


@dataclass(frozen=True)
class TaskData:
    """What a task takes of a corpus.

    Args:
        corpus: a caption corpus or a translation corpus, or a stream of one.
        languages: of images' captions; by default the arguments' `languages`, else all.
        pairs: of translations; by default all.
    """

    corpus: Dataset | IterableDataset
    languages: list[str] | None = None
    pairs: list[tuple[str, str]] | None = None


class ContrastiveTrainer(WholeCheckpointTrainer):
    """transformers' `Trainer` for dual encoders.

    Args:
        model: a dual encoder of this package.
        args: `ContrastiveTrainingArguments`.
        processing_class: the model's processor.
        train_dataset: a caption corpus (the first task's data), or a dict task -> corpus, `TaskData` or view (see
            `babelens.data`). Streams are read in passing, and need `max_steps`.
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
        train_dataset: Dataset | IterableDataset | dict[str, Any] | None = None,
        eval_dataset: Dataset | dict[str, Dataset] | None = None,
        **kwargs: Any,
    ) -> None:
        self.args, self.processing_class = args, processing_class  # the views and collators below need them
        self.tasks = self._make_views(train_dataset) if train_dataset is not None else {}
        self.weights = {**self.task_weights, **(args.task_weights or {})}
        augmented = (args.text_augmentation or {}).get("tasks") or []
        self._check_tasks([*self.weights, *(args.task_learning_rates or {}), *augmented])
        # As the images come (`TrainingTransform`). With weights in the other layout, a CPU takes 25 times longer
        # for the gradient of a convolution in bfloat16.
        model.to(memory_format=torch.channels_last)
        model.text_length_groups = args.text_length_groups
        super().__init__(
            model=model,
            args=args,
            processing_class=processing_class,
            train_dataset=self._mixture() if self.tasks else None,
            eval_dataset=eval_dataset,
            data_collator=TaskCollator({task: self.make_collator(task) for task in self.tasks}),
            **kwargs,
        )
        if isinstance(self.train_dataset, StreamMixture):
            self.add_callback(ShareOfSteps)
        self.add_callback(BoundTemperature)
        self.loss_is_scaled_for_ga = False
        self._logged_losses: dict[str, Tensor] = {}
        self._logged_steps = 0

    # ---- What a method defines ----

    def make_view(self, task: str, data: TaskData) -> SizedView | StreamView:
        """The examples of a task, one of `task_weights`."""
        if task == IMAGE_TEXT:
            return image_text_pairs(data.corpus, data.languages or self.args.languages)
        return translation_pairs(data.corpus, data.pairs)

    def make_collator(self, task: str) -> Collator:
        """Turns a task's examples and their seeds into the model's inputs and `positives`."""
        processor, segment = self.processing_class, None
        augmentation = TextAugmentation(**(self.args.text_augmentation or {}))
        named = self.task_weights if augmentation.tasks is None else augmentation.tasks
        if augmentation.subword_dropout and task in named:
            segment = SubwordDropout(processor.tokenizer, augmentation, processor.text_kwargs["max_length"])
        return ContrastiveCollator(processor, self.training_transform(), segment=segment)

    def training_transform(self) -> TrainingTransform:
        augmentation = ImageAugmentation(**(self.args.image_augmentation or {}))
        return TrainingTransform(self.processing_class.image_processor, augmentation)

    # ---- Data ----

    def _make_views(self, train_dataset: Any) -> dict[str, SizedView | StreamView]:
        given = train_dataset if isinstance(train_dataset, dict) else {next(iter(self.task_weights)): train_dataset}
        self._check_tasks(given)
        # In the order of the method's tasks: the first is the one whose data an epoch goes through.
        ordered = [(task, given[task]) for task in self.task_weights if task in given]
        taken = {
            task: TaskData(data) if isinstance(data, Dataset | IterableDataset) else data for task, data in ordered
        }
        return {
            task: self.make_view(task, data) if isinstance(data, TaskData) else data for task, data in taken.items()
        }

    def _check_tasks(self, named: Iterable[str]) -> None:
        for task in named:
            if task not in self.task_weights:
                raise TrainingSetupError(
                    f"{type(self).__name__} has no task {task!r}; its tasks are {list(self.task_weights)}"
                )

    def _mixture(self) -> TaskMixture | StreamMixture:
        """All tasks' data; a stream of batches when there is a stream among them."""
        at_hand = {task: view for task, view in self.tasks.items() if not isinstance(view, StreamView)}
        if len(at_hand) == len(self.tasks):
            return TaskMixture(at_hand)
        if self.args.max_steps <= 0:
            raise TrainingSetupError("a stream does not say how long it is: training on one needs max_steps")
        # A stream goes on from its own state. transformers would read all that was seen before once more.
        self.args.ignore_data_skip = True
        return StreamMixture(
            self.tasks,
            self.args.train_batch_size,
            seed=data_seed(self.args),
            block_size=self.args.shuffle_buffer_size,
            process=self.args.process_index,
            num_processes=self.args.world_size,
            num_workers=self.args.dataloader_num_workers,
        )

    def get_train_dataloader(self) -> DataLoader | StreamLoader:
        if self.train_dataset is None:
            raise ValueError("training needs a train_dataset")
        if isinstance(self.train_dataset, StreamMixture):
            # Not prepared by accelerate, which would share the batches out: every process reads its own.
            self.train_dataset.batch_size = self._train_batch_size
            length = self.args.max_steps * self.args.gradient_accumulation_steps
            options = loader_options(self.args)
            self._stream = StreamLoader(self.train_dataset, self.data_collator, length=length, **options)
            return self._stream
        sampler = TaskBatchSampler(
            self.train_dataset, self._train_batch_size, seed=data_seed(self.args), num_processes=self.args.world_size
        )
        return self.accelerator.prepare(mixture_loader(sampler, self.data_collator, self.args))

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
        if not self._logged_losses:
            self._logged_steps = self.state.global_step
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
            check_finite(loss, f"task {task!r}", self.state.global_step + 1)
            return loss

        def backward(loss: Tensor, is_last_chunk: bool) -> None:
            if self.is_deepspeed_enabled:  # whose engine steps with a backward pass that is to be synchronised
                is_last = self.accelerator.sync_gradients and is_last_task and is_last_chunk
                engine = self.accelerator.deepspeed_engine_wrapped
                engine.backward(weight * loss, sync_gradients=is_last, scale_wrt_gas=False)
            else:
                self.accelerator.backward(weight * loss)

        is_sharded = self.is_fsdp_enabled or self.is_deepspeed_enabled
        if is_sharded:
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
            is_sharded=is_sharded,
        )

    def _objective(self, output: DualEncoderOutput, positives: Tensor, counts: list[int]) -> Tensor:
        """The method's loss on the embeddings of all processes, which have `counts` rows."""
        if self.args.gather_negatives:
            size = positives.shape[-1]

            def gathered(value: Tensor) -> Tensor:
                # Some methods have several texts to an image; which of the two a tensor is of, all processes agree.
                return gather_rows(value, counts if len(value) == size else row_counts(len(value), value.device))

            output = type(output)({name: gathered(value) if value.dim() else value for name, value in output.items()})
            positives = gather_labels(positives, counts)
        return self.model.contrastive_objective(output, positives=positives, tile_size=self.args.loss_tile_size)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Adds each task's own loss, and the temperature, to the training log."""
        if "loss" in logs:
            steps = max(self.state.global_step - self._logged_steps, 1)
            logs |= {f"loss_{task}": round((loss / steps).item(), 4) for task, loss in self._logged_losses.items()}
            if hasattr(self.model, "temperature"):
                logs["temperature"] = round(self.model.temperature.item(), 5)
            self._logged_losses = {}
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
        groups = parameter_groups(
            model,
            learning_rate,
            self.args.learning_rate_mapping,
            weight_decay=self.args.weight_decay,
            decayed=self.get_decay_parameter_names(model),
        )
        own = {LAMB: Lamb, ADAMAX: torch.optim.Adamax}
        if self.args.optim in own:
            betas = (self.args.adam_beta1, self.args.adam_beta2)
            return own[self.args.optim](groups, lr=learning_rate, betas=betas, eps=self.args.adam_epsilon)
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

    def _get_grad_norm(self, model: nn.Module, grad_norm: Tensor | float | None = None) -> Any:
        if self._task_optimizer and grad_norm is None:
            grad_norm = self._task_optimizer.clip_gradients(math.inf)
        return super()._get_grad_norm(model, grad_norm)

    def _gradients(self, model: nn.Module) -> Iterator[tuple[str, Tensor]]:
        if self._task_optimizer is None:
            yield from super()._gradients(model)
            return
        for task, own in self._task_optimizer.gradients.items():
            for name, weight in model.named_parameters():
                if weight in own:
                    yield f"{name} in task {task!r}", own[weight]

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

    def _save_rng_state(self, output_dir: str) -> None:
        """Saves what the next batches depend on, for each process: random numbers, and where its stream stands."""
        super()._save_rng_state(output_dir)
        if isinstance(self.train_dataset, StreamMixture):
            self._stream.save(output_dir)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        super()._load_rng_state(checkpoint)
        if isinstance(self.train_dataset, StreamMixture) and checkpoint is not None:
            self._stream.load(checkpoint)
