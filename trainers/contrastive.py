"""The contrastive trainer, which trains every dual encoder: a step takes one batch of each task. The trainer of a
method names its tasks and turns their data into batches; the model computes the loss (`contrastive_objective`) from
the embeddings, which are gathered from chunks and processes."""

import logging
import math
from collections.abc import Iterable
from contextlib import nullcontext
from functools import partial
from typing import Any, ClassVar

import torch
from accelerate.utils import send_to_device
from accelerate.utils.memory import clear_device_cache
from datasets import Dataset, IterableDataset
from torch import Tensor, nn
from torch.optim import Optimizer
from transformers import Trainer

from ..configuration.configuration_two_tower import IMAGE_TEXT, TwoTowerConfig
from ..data.batching.collators import ContrastiveCollator, ImageTransform
from ..data.batching.mixture import Collator, SizedView, TaskData, TaskMixture
from ..data.batching.views import StreamView, image_text_pairs, translation_pairs
from ..data.corpus.loading import ensure_corpus
from ..evaluation.retrieval import RetrievalEvaluator, evaluated_languages
from ..modeling.modeling_dual_encoder import DualEncoderOutput
from ..processing.augmentation import ImageAugmentation, SubwordDropout, TextAugmentation, TrainingTransform
from ..utils.errors import InputError
from .arguments import ADAMAX, LAMB, ContrastiveTrainingArguments
from .base import BabelensTrainer
from .frozen_features import frozen_towers
from .large_batches import backward_in_chunks, embed_in_chunks, gather_rows, row_counts
from .optimizers import BoundTemperature, Lamb, TaskOptimizer, parameter_groups
from .tower_training import set_trained_towers

logger = logging.getLogger(__name__)


class ContrastiveTrainer(BabelensTrainer):
    """transformers' `Trainer` for dual encoders, with `ContrastiveTrainingArguments` or the subclass of the method.

    Args:
        train_dataset: a caption corpus (the data of the first task), or a dict task -> corpus, `TaskData` or view (see
            `babelens.data`). A streamed corpus needs `max_steps` in `args`. Other data sets of images and texts are
            converted; if their texts have no language, `args.languages` names it.
        eval_dataset: a caption corpus, or a dict name -> corpus, evaluated by retrieval recall in each language.
        cache_dir: for the features of frozen towers; by default a folder in the Hugging Face datasets cache.
        kwargs: as for `BabelensTrainer`; `evaluator` replaces `RetrievalEvaluator`.
    """

    # Task -> default weight of its loss. An epoch is one pass over the data of the first task.
    task_weights: ClassVar[dict[str, float]]
    arguments_class: ClassVar[type[ContrastiveTrainingArguments]] = ContrastiveTrainingArguments

    def __init__(self, model: Any = None, args: Any = None, *, cache_dir: str | None = None, **kwargs: Any) -> None:
        self.cache_dir = cache_dir
        super().__init__(model, args, **kwargs)
        self.add_callback(BoundTemperature())
        self.weights = {**self.task_weights, **(self.args.task_weights or {})}
        augmented = (self.args.text_augmentation or {}).get("tasks") or []
        self._check_tasks(
            [*self.weights, *(self.args.task_learning_rates or {}), *(self.args.task_batch_sizes or {}), *augmented]
        )
        set_trained_towers(self.model, self.args.towers)
        self._corpora: dict[int, tuple[Any, Any]] = {}
        self._logged_losses: dict[str, Tensor] = {}
        self._logged_steps = 0

    # ---- Data ----

    def prepare(self, model: Any, train_dataset: Any) -> TaskMixture:
        args = self.args
        # A subclass may have changed the trained weights.
        set_trained_towers(model, args.towers)
        self.frozen_towers = frozen_towers(model, self.processing_class, args, self.cache_dir)
        given = train_dataset if isinstance(train_dataset, dict) else {next(iter(self.task_weights)): train_dataset}
        self._check_tasks(given)
        views: dict[str, Any] = {}
        for task in self.task_weights:  # in this order: an epoch is one pass over the data of the first task
            if task in given:
                data = given[task]
                if isinstance(data, Dataset | IterableDataset):
                    data = TaskData(ensure_corpus(data, args.languages))
                view = self.make_view(task, data) if isinstance(data, TaskData) else data
                views[task] = self.frozen_towers.with_features(view)
        # The memory layout of the images (`TrainingTransform`). With weights in the other layout, the gradient of a
        # convolution in bfloat16 takes 25 times as long on a CPU.
        model.to(memory_format=torch.channels_last)
        return TaskMixture(views, {task: self.make_collator(task) for task in views})

    @property
    def tasks(self) -> dict[str, Any]:
        """Task -> its examples; none for a trainer that overrides the data loader."""
        return {} if self.train_dataset is None else dict(self.mixture.tasks)

    def _check_tasks(self, tasks: Iterable[str]) -> None:
        for task in tasks:
            if task not in self.task_weights:
                raise InputError(f"{type(self).__name__} has no task {task!r}, only {list(self.task_weights)}")

    def make_view(self, task: str, data: TaskData) -> SizedView | StreamView:
        """The examples of a task of `task_weights`."""
        if task == IMAGE_TEXT:
            return image_text_pairs(data.corpus, data.languages or self.args.languages)
        return translation_pairs(data.corpus, data.pairs, co_captions=True)

    def make_collator(self, task: str) -> Collator:
        """The function from examples of a task's view and their seeds to the model's inputs and `positives`."""
        processor, segment = self.processing_class, None
        augmentation = TextAugmentation(**(self.args.text_augmentation or {}))
        augmented = self.task_weights if augmentation.tasks is None else augmentation.tasks
        if augmentation.subword_dropout and task in augmented:
            if getattr(processor, "text_prompt", ""):
                raise InputError(f"text_augmentation.subword_dropout leaves out the prompt {processor.text_prompt!r}")
            segment = SubwordDropout(processor.tokenizer, augmentation, processor.text_kwargs["max_length"])
        equal_texts = self.args.equal_texts_are_positives
        return ContrastiveCollator(processor, self.training_transform(), segment=segment, equal_texts=equal_texts)

    def training_transform(self) -> ImageTransform:
        augmentation = ImageAugmentation(**(self.args.image_augmentation or {}))
        return TrainingTransform(self.processing_class.image_processor, augmentation)

    # ---- Training ----

    def get_train_dataloader(self) -> Any:
        needs_negatives = isinstance(self.model.config, TwoTowerConfig)  # others may compare with frozen embeddings
        for task, size in self.batch_sizes.items() if needs_negatives and self.args.should_log else ():
            if size * self.args.world_size == 1:
                logger.warning(
                    "%s: with one example per batch there are no negatives, and the model learns nothing", task
                )
        return super().get_train_dataloader()

    def objective_options(self) -> dict[str, Any]:
        """Additional keyword arguments of the model's `contrastive_objective`."""
        return {} if self.args.loss_tile_size is None else {"tile_size": self.args.loss_tile_size}

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        """Computes the gradients of all tasks and returns the weighted sum of their losses []."""
        model.train()
        self.set_optimizer_mode(training=True)
        if not self._logged_losses:
            self._logged_steps = self.state.global_step
        total = torch.zeros((), device=self.args.device)
        accumulated = self.current_gradient_accumulation_steps
        optimizer = self._task_optimizer
        for task, batch in send_to_device(inputs, self.args.device).items():
            weight = self.weights[task] / accumulated
            with optimizer.gradients_of(task) if optimizer else nullcontext():
                loss = self._backward(model, task, batch, weight)
            self._logged_losses[task] = self._logged_losses.get(task, 0) + loss / accumulated
            total += weight * loss
        if self.args.torch_empty_cache_steps and self.state.global_step % self.args.torch_empty_cache_steps == 0:
            clear_device_cache()
        return total

    def _backward(self, model: nn.Module, task: str, batch: dict[str, Tensor], weight: float) -> Tensor:
        """Runs the forward and backward pass of one task, and returns its unweighted loss []."""
        positives = batch.pop("positives")
        size = positives.shape[-1]
        counts = row_counts(size, positives.device)

        def objective(output: DualEncoderOutput) -> Tensor:
            loss = self._objective(output, positives, counts)
            self.check_loss(loss, f"task {task!r}")
            return loss

        def backward(loss: Tensor) -> None:
            self.accelerator.backward(weight * loss)

        chunks, autocast = math.ceil(size / (self.args.embed_chunk_size or size)), self.compute_loss_context_manager
        without_sync = partial(self.accelerator.no_sync, model=model)
        if chunks > 1 and self.args.gradient_caching:
            return backward_in_chunks(model, batch, objective, chunks, backward, autocast, without_sync)
        with autocast():
            output = embed_in_chunks(model, batch, chunks, without_sync)
        loss = objective(output)
        backward(loss)
        return loss.detach()

    def _objective(self, output: DualEncoderOutput, positives: Tensor, counts: list[int]) -> Tensor:
        """The method's loss [] on the embeddings of all processes, which have `counts` rows each."""
        if self.args.gather_negatives:
            # Some methods have several texts per image. All processes agree on whether a tensor has a row per image or
            # per text.
            size, rows = positives.shape[-1], {name: value for name, value in output.items() if value.dim()}
            gathered = {name: gather_rows(rows[name], counts if len(rows[name]) == size else None) for name in rows}
            output = type(output)({**output, **gathered})
            positives = gather_rows(positives.movedim(-1, 0), counts).movedim(0, -1)  # [n] or [K, n]
        return self.model.contrastive_objective(output, positives=positives, **self.objective_options())

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Adds the loss of each task and the temperature to the training log."""
        if "loss" in logs:
            steps = max(self.state.global_step - self._logged_steps, 1)
            logs |= {f"loss_{task}": round((loss / steps).item(), 4) for task, loss in self._logged_losses.items()}
            if hasattr(self.model, "temperature"):
                logs["temperature"] = round(self.model.temperature.item(), 5)
            if self._task_optimizer:  # the weights themselves have no gradient then
                logs["grad_norm"] = self._task_optimizer.grad_norm.item()
            self._logged_losses = {}
        super().log(logs, start_time)

    # ---- Optimizers ----

    def create_optimizer(self, model: nn.Module | None = None) -> Optimizer:
        if self.optimizer is not None:
            return self.optimizer
        args, model, tasks = self.args, self.model if model is None else model, self.tasks  # prepares the model
        make, options = self.optimizer_cls_and_kwargs or self.get_optimizer_cls_and_kwargs(args, model)
        decay = {"weight_decay": args.weight_decay, "decayed": self.get_decay_parameter_names(model)}

        def made(rate: float) -> Optimizer:
            groups = parameter_groups(model, rate, args.learning_rate_mapping, **decay)
            return make(groups, **{**options, "lr": rate})

        if rates := args.task_learning_rates:
            optimizers = {task: made(rates.get(task, args.learning_rate)) for task in tasks}
            self.optimizer = TaskOptimizer(optimizers, args.max_grad_norm or math.inf)
        else:
            self.optimizer = made(args.learning_rate)
        return self.optimizer

    @staticmethod
    def get_optimizer_cls_and_kwargs(args: Any, model: Any = None) -> tuple[Any, Any]:
        """As in transformers, with LAMB and Adamax added."""
        own = {LAMB: Lamb, ADAMAX: torch.optim.Adamax}.get(args.optim)
        if own is None:
            return Trainer.get_optimizer_cls_and_kwargs(args, model)
        return own, {"betas": (args.adam_beta1, args.adam_beta2), "eps": args.adam_epsilon}

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """Matrices and filters have weight decay, but not biases, normalization or the temperature."""
        return [name for name, parameter in model.named_parameters() if parameter.dim() > 1]

    @property
    def _task_optimizer(self) -> TaskOptimizer | None:
        optimizer = getattr(self.optimizer, "optimizer", self.optimizer)  # accelerate wraps it
        return optimizer if isinstance(optimizer, TaskOptimizer) else None

    # ---- Evaluation ----

    def evaluation_data(self, data: Any) -> Any:
        """Returns the data as a caption corpus; other data is converted once."""
        if id(data) not in self._corpora:
            languages = self.args.eval_languages or self.args.languages
            self._corpora[id(data)] = data, ensure_corpus(data, languages)
        return self._corpora[id(data)][1]

    def check_evaluation(self) -> None:
        parts = self.eval_dataset.values() if self.is_named(self.eval_dataset) else [self.eval_dataset]
        for part in parts if not self._evaluators else ():
            evaluated_languages(self.processing_class, self.evaluation_data(part), self.args.eval_languages)

    def measure(self, data: Dataset) -> dict[str, float]:
        """The metrics of `RetrievalEvaluator`: `mean_recall` in percent, and `loss`."""
        size = self.args.per_device_eval_batch_size
        evaluator = RetrievalEvaluator(languages=self.args.eval_languages, batch_size=size)
        return evaluator(self.model, self.processing_class, data)
