"""The contrastive trainer, which trains every dual encoder.

A step takes one batch of each task, computes the loss of each task from its embeddings (gathered from chunks and
processes), and updates the weights. The trainer of a method names its tasks and turns their data into batches
(`task_trainer`); its model computes the loss from the embeddings (`contrastive_objective`).
"""

import logging
import math
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from accelerate.utils.memory import clear_device_cache
from datasets import Dataset, IterableDataset
from torch import Tensor, nn
from torch.optim import Optimizer
from transformers import PreTrainedModel, ProcessorMixin
from transformers.trainer_utils import PredictionOutput, TrainOutput

from ..data.corpus.corpus import as_given_corpus
from ..modeling.modeling_dual_encoder import DualEncoderOutput
from ..utils.errors import TrainingSetupError
from .arguments import ADAMAX, LAMB, ContrastiveTrainingArguments
from .gradient_caching import backward_in_chunks
from .optimizers import BoundTemperature, Lamb, TaskOptimizer, parameter_groups, refuse_moments_of_lamb
from .processes import gather_labels, gather_rows, row_counts
from .retrieval_evaluator import RetrievalEvaluator, evaluated_languages
from .task_trainer import TaskTrainer

logger = logging.getLogger(__name__)


class ContrastiveTrainer(TaskTrainer):
    """transformers' `Trainer` for dual encoders.

    Args:
        model: a dual encoder of this package.
        args: `ContrastiveTrainingArguments`, or the subclass of the method.
        processing_class: the processor of the model.
        train_dataset: a caption corpus (the data of the first task), or a dict task -> corpus, `TaskData` or view (see
            `babelens.data`). A corpus that is streamed needs `max_steps` in `args`. A data set of images and texts,
            such as one of the Hub, becomes a corpus; of texts without a language, `args.languages` names the one.
        eval_dataset: a caption corpus, or a dict name -> corpus, evaluated by retrieval recall in each language.
        cache_dir: the folder of the features of frozen towers; by default a folder in the Hugging Face datasets cache.
        model_init, evaluator: as in `BabelensTrainer`; `evaluator` replaces `RetrievalEvaluator`.
        compute_metrics: as in `RetrievalEvaluator`: of the embeddings of the evaluation set, in each language.
        kwargs: further arguments of `Trainer`.

    Raises:
        TrainingSetupError: for a task that the method does not have, arguments that are missing or would have no
            effect, settings that do not fit each other, or evaluation data in languages that the model does not read.
    """

    computes_metrics: ClassVar[bool] = True

    def __init__(
        self,
        model: PreTrainedModel | None = None,
        args: ContrastiveTrainingArguments | None = None,
        *,
        processing_class: ProcessorMixin | None = None,
        train_dataset: Dataset | IterableDataset | dict[str, Any] | None = None,
        eval_dataset: Dataset | dict[str, Dataset] | None = None,
        cache_dir: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.cache_dir = cache_dir
        languages = getattr(args, "eval_languages", None) or getattr(args, "languages", None)
        if isinstance(eval_dataset, dict):
            eval_dataset = {name: as_given_corpus(data, languages) for name, data in eval_dataset.items()}
        else:
            eval_dataset = as_given_corpus(eval_dataset, languages)
        super().__init__(
            model,
            args,
            processing_class=processing_class,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            **kwargs,
        )
        if self.args.towers and self.optimizer is not None:
            raise TrainingSetupError("towers: an optimizer of your own has learning rates of its own; leave one out")
        self.add_callback(BoundTemperature)
        self.loss_is_scaled_for_ga = False
        self._logged_losses: dict[str, Tensor] = {}
        self._logged_steps = 0
        # Whether `model.train()` was called since the training began: frozen parts are then in evaluation mode.
        self._is_in_training_mode = False

    def objective_options(self) -> dict[str, Any]:
        """Further keyword arguments of the model's `contrastive_objective`, the same for all tasks of a batch."""
        return {} if self.args.loss_tile_size is None else {"tile_size": self.args.loss_tile_size}

    # ---- Training ----

    def train_model(self, resume_from_checkpoint: str | bool | None = None, **kwargs: Any) -> TrainOutput:
        """Trains the model that the trainer has."""
        self._is_in_training_mode = False
        if self.args.should_log:
            self._warn_of_no_negatives()
        return super().train_model(resume_from_checkpoint, **kwargs)

    def _warn_of_no_negatives(self) -> None:
        """Logs which batches teach nothing, which the losses alone do not show."""
        sizes = self._batch_sizes(self._train_batch_size)
        compares = hasattr(self.model.config, "image_text_loss")  # others may compare with frozen embeddings
        for task in self.tasks if compares else ():
            if (sizes if isinstance(sizes, int) else sizes[task]) * self.args.world_size == 1:
                logger.warning("%s: an example alone in its batch has no negatives, and teaches nothing", task)

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        """Computes the gradients of all tasks, and returns the weighted sum of their losses []."""
        # Entering training mode walks over all modules, which takes longer than a step of small heads.
        if not (self._is_in_training_mode and model.training):
            model.train()
            self._is_in_training_mode = True
        self.set_optimizer_mode(training=True)
        if not self._logged_losses:
            self._logged_steps = self.state.global_step
        total = torch.zeros((), device=self.args.device)
        batches = self._prepare_inputs(inputs)
        for task, batch in batches.items():
            weight = self.weights[task] / self.current_gradient_accumulation_steps
            with self._gradients_of(task):
                loss = self._backward(model, task, batch, weight)
            self._logged_losses[task] = (
                self._logged_losses.get(task, 0) + loss / self.current_gradient_accumulation_steps
            )
            total += weight * loss
        if self.args.torch_empty_cache_steps and self.state.global_step % self.args.torch_empty_cache_steps == 0:
            clear_device_cache()
        return total

    def _backward(self, model: nn.Module, task: str, batch: dict[str, Tensor], weight: float) -> Tensor:
        """The forward and backward pass of one task; returns its loss [] without its weight."""
        positives = batch.pop("positives")
        size = positives.shape[-1]
        counts = row_counts(size, positives.device)

        def objective(output: DualEncoderOutput) -> Tensor:
            loss = self._objective(output, positives, counts)
            self.check_loss(loss, f"task {task!r}")
            return loss

        def backward(loss: Tensor) -> None:
            self.accelerator.backward(weight * loss)

        chunks = math.ceil(size / (self.args.embed_chunk_size or size))
        options: dict[str, Any] = {"return_logits": False}
        if chunks == 1:
            with self.compute_loss_context_manager():
                output = model(**batch, **options)
            loss = objective(output)
            backward(loss)
            return loss.detach()
        return backward_in_chunks(
            model,
            batch,
            objective,
            chunks=chunks,
            backward=backward,
            options=options,
            autocast=self.compute_loss_context_manager,
            without_sync=partial(self.accelerator.no_sync, model=model),
            kept=self.args.embed_chunks_kept,
        )

    def _objective(self, output: DualEncoderOutput, positives: Tensor, counts: list[int]) -> Tensor:
        """The method's loss [] of the embeddings of all processes, which have `counts` rows each."""
        if self.args.gather_negatives:
            size = positives.shape[-1]

            def gathered(value: Tensor) -> Tensor:
                # Some methods have several texts for each image. Whether a tensor has a row for each image or for each
                # text is the same in all processes.
                return gather_rows(value, counts if len(value) == size else row_counts(len(value), value.device))

            output = type(output)({name: gathered(value) if value.dim() else value for name, value in output.items()})
            positives = gather_labels(positives, counts)
        return self.model.contrastive_objective(output, positives=positives, **self.objective_options())

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Adds the loss of each task and the temperature to the training log."""
        if "loss" in logs:
            steps = max(self.state.global_step - self._logged_steps, 1)
            logs |= {f"loss_{task}": round((loss / steps).item(), 4) for task, loss in self._logged_losses.items()}
            if hasattr(self.model, "temperature"):
                logs["temperature"] = round(self.model.temperature.item(), 5)
            self._logged_losses = {}
        super().log(logs, start_time)

    # ---- Optimizers ----

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
            own_rates=self.towers.learning_rates(),
            weight_decay=self.args.weight_decay,
            decayed=self.get_decay_parameter_names(model),
        )
        own = {LAMB: Lamb, ADAMAX: torch.optim.Adamax}
        if self.args.optim in own:
            made, options = own[self.args.optim], {"betas": (self.args.adam_beta1, self.args.adam_beta2)}
            options["eps"] = self.args.adam_epsilon
        else:
            made, options = self.get_optimizer_cls_and_kwargs(self.args, model)
        optimizer = made(groups, **{**options, "lr": learning_rate})
        refuse_moments_of_lamb(optimizer)
        return optimizer

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """The parameters with weight decay: matrices and filters, but neither biases nor scales of normalization
        layers nor the temperature."""
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

    def _check_evaluation(self, data: Any) -> None:
        super()._check_evaluation(data)
        if self.args.eval_strategy != "no" and data is not None and not self._evaluators:
            for part in data.values() if self.is_named(data) else [data]:
                evaluated_languages(self.processing_class, part, self.args.eval_languages)

    @property
    def _retrieval(self) -> RetrievalEvaluator:
        return RetrievalEvaluator(
            languages=self.args.eval_languages,
            batch_size=self.args.per_device_eval_batch_size,
            compute_metrics=self.compute_metrics,
        )

    def measure(self, data: Dataset) -> dict[str, float]:
        """The metrics of `RetrievalEvaluator`: `mean_recall` in percent, `loss`, and those of `compute_metrics`."""
        return self._retrieval(self.model, self.processing_class, data)

    def predict(
        self, test_dataset: Dataset, ignore_keys: list[str] | None = None, metric_key_prefix: str = "test"
    ) -> PredictionOutput:
        """Embeds a caption corpus, and measures retrieval on it.

        Args:
            test_dataset: a caption corpus.
            ignore_keys: not used; for the signature of `Trainer.predict`.
            metric_key_prefix: the beginning of the metrics' names.

        Returns:
            `predictions`: the embeddings of the captions, one language after the other [T, d], and of the images
            [N, d]; `label_ids` [T]: the index of the image of each caption; `metrics`, as in `evaluate`.
        """
        recalls, found = self._retrieval.embed(self.model, self.processing_class, test_dataset)
        measured = self._retrieval.metrics(self.model, recalls, found)
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in measured.items()}
        self.control = self.callback_handler.on_predict(self.args, self.state, self.control, metrics)
        texts, images = ([each.predictions[side] for each in found.values()] for side in (0, 1))
        labels = np.concatenate([each.label_ids for each in found.values()])
        return PredictionOutput(predictions=(np.concatenate(texts), images[0]), label_ids=labels, metrics=metrics)
