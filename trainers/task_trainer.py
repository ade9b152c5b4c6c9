"""What a contrastive trainer makes of the data of its tasks: views of examples, the batches of all tasks, and the
features of frozen towers."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import torch
from datasets import Dataset, IterableDataset

from ..configuration.strict_config import IMAGE_TEXT
from ..data.batching.collators import Collator, ContrastiveCollator, TaskCollator
from ..data.batching.features import has_images
from ..data.batching.mixture import SizedView, TaskData, TaskMixture
from ..data.batching.streams import StreamMixture
from ..data.batching.views import StreamView, image_text_pairs, translation_pairs
from ..data.corpus.corpus import as_given_corpus
from ..processing.image_augmentation import ImageAugmentation, TrainingTransform
from ..processing.text_augmentation import SubwordDropout, TextAugmentation
from ..utils.errors import TrainingSetupError
from .arguments import ContrastiveTrainingArguments, batch_sizes_of, data_seed
from .base import BabelensTrainer
from .tower_features import FrozenTowers
from .tower_training import TrainedTowers, check_frozen, checked_training, frozen_by


class TaskTrainer(BabelensTrainer):
    """A trainer of a dual encoder on the data of several tasks; `ContrastiveTrainer` has the steps."""

    # Task -> default weight of its loss. An epoch is one pass over the data of the first task.
    task_weights: ClassVar[dict[str, float]]
    arguments_class: ClassVar[type[ContrastiveTrainingArguments]] = ContrastiveTrainingArguments
    cache_dir: str | None

    def prepare(self, model: Any, train_dataset: Any) -> tuple[Any, Any]:
        args = self.args
        check_frozen(args.towers, frozen_by(vars(model.config)))
        self.towers = TrainedTowers(model, checked_training(args.towers))
        self.frozen_towers = FrozenTowers(
            model,
            self.processing_class,
            args,
            cache_dir=self.cache_dir,
            cached=args.cache_frozen_features,
        )
        self.tasks = self._make_views(train_dataset) if train_dataset is not None else {}
        self.frozen_towers.finish()
        self.weights = {**self.task_weights, **(args.task_weights or {})}
        augmented = (args.text_augmentation or {}).get("tasks") or []
        self._check_tasks(
            [*self.weights, *(args.task_learning_rates or {}), *(args.task_batch_sizes or {}), *augmented]
        )
        # The memory layout of the images (`TrainingTransform`). With weights in the other layout, a CPU takes 25 times
        # longer for the gradient of a convolution in bfloat16.
        model.to(memory_format=torch.channels_last)
        collator = TaskCollator({task: self.make_collator(task) for task in self.tasks})
        return (self._mixture() if self.tasks else None), collator

    @property
    def task_batch_size(self) -> int | Mapping[str, int]:
        return self._batch_sizes(self._train_batch_size)

    def _batch_sizes(self, size: int) -> int | Mapping[str, int]:
        own = self.args.task_batch_sizes
        return batch_sizes_of(self.args, size, self.tasks, own) if own else size

    # ---- Methods that a subclass may override ----

    def make_view(self, task: str, data: TaskData) -> SizedView | StreamView:
        """Returns the examples of a task.

        Args:
            task: one of `task_weights`.
            data: its data.
        """
        if task == IMAGE_TEXT:
            return image_text_pairs(data.corpus, data.languages or self.args.languages)
        return translation_pairs(data.corpus, data.pairs, co_captions=True)

    def make_collator(self, task: str) -> Collator:
        """Returns the function from the examples of a task and their seeds to the model's inputs and `positives`."""
        processor, segment = self.processing_class, None
        augmentation = TextAugmentation(**(self.args.text_augmentation or {}))
        augmented = self.task_weights if augmentation.tasks is None else augmentation.tasks
        if augmentation.subword_dropout and task in augmented:
            if getattr(processor, "text_prompt", ""):
                raise TrainingSetupError(
                    "text_augmentation.subword_dropout: it reads texts without the prompt that the processor puts "
                    f"before them, {processor.text_prompt!r}; leave it out"
                )
            segment = SubwordDropout(processor.tokenizer, augmentation, processor.text_kwargs["max_length"])
        equal_texts = self.args.equal_texts_are_positives
        return ContrastiveCollator(processor, self.transform_of(task), segment=segment, equal_texts=equal_texts)

    def transform_of(self, task: str) -> TrainingTransform | None:
        """The transform of the images of a task; None if it has none, or has features of them that were computed
        before."""
        return self.training_transform() if has_images(self.tasks[task]) else None

    def training_transform(self) -> TrainingTransform:
        """The transform of images in training, with `args.image_augmentation`."""
        augmentation = ImageAugmentation(**(self.args.image_augmentation or {}))
        return TrainingTransform(self.processing_class.image_processor, augmentation)

    # ---- Data ----

    def _make_views(self, train_dataset: Any) -> dict[str, SizedView | StreamView]:
        given = train_dataset if isinstance(train_dataset, dict) else {next(iter(self.task_weights)): train_dataset}
        self._check_tasks(given)
        # In the order of the method's tasks, because an epoch is one pass over the data of the first task.
        ordered = {task: given[task] for task in self.task_weights if task in given}
        views: dict[str, SizedView | StreamView] = {}
        for task, data in ordered.items():
            if isinstance(data, Dataset | IterableDataset):
                data = TaskData(as_given_corpus(data, self.args.languages))
            view = self.make_view(task, data) if isinstance(data, TaskData) else data
            views[task] = self.frozen_towers.with_features(view)
        return views

    def _check_tasks(self, tasks: Iterable[str]) -> None:
        for task in tasks:
            if task not in self.task_weights:
                raise TrainingSetupError(
                    f"{type(self).__name__} has no task {task!r}; its tasks are {list(self.task_weights)}"
                )

    def _mixture(self) -> TaskMixture | StreamMixture:
        """The data of all tasks: a stream of batches if one of them is a stream."""
        sized = {task: view for task, view in self.tasks.items() if not isinstance(view, StreamView)}
        if len(sized) == len(self.tasks):
            return TaskMixture(sized)
        if self.args.max_steps <= 0:
            raise TrainingSetupError("the length of a stream is not known: training on one needs max_steps")
        # A stream resumes from its own saved position. transformers would read all earlier batches once more.
        self.args.ignore_data_skip = True
        return StreamMixture(
            self.tasks,
            self._batch_sizes(self.args.train_batch_size),
            seed=data_seed(self.args),
            block_size=self.args.shuffle_buffer_size,
            process=self.args.process_index,
            num_processes=self.args.world_size,
            num_workers=self.args.dataloader_num_workers,
        )
