"""RC3 fine-tuned on a task: transformers' `Trainer`, and what each of the five tasks makes of its data (Zhou et al.
2023, section 3 and appendix B).

    Rc3ForVisualEntailment          XVNLI    labelled rows with an image
    Rc3ForVisualQuestionAnswering   xGQA     the same; a score for each answer
    Rc3ForVisualReasoning           MaRVL    the same with two images
    Rc3ForImageTextRetrieval        ITR      a caption corpus
    Rc3ForConditionalGeneration     MMT      a caption corpus with texts in two languages
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from datasets import Dataset
from torch import Tensor, nn
from torch.utils.data import DataLoader

from ..data.batching.collators import Collator, TaskCollator
from ..data.batching.mixture import SizedView, TaskBatchSampler, TaskMixture, data_seed, mixture_loader
from ..data.batching.retrieval_candidates import CandidateCollator, NumberedRows, image_vectors, nearest
from ..data.batching.task_inputs import LabelCollator, LabelledExamples, Regions, TargetCollator, TaskInputs
from ..data.batching.views import image_text_pairs, triplets
from ..data.corpus.corpus import languages_of
from ..evaluation.tasks import (
    Results,
    label_accuracy,
    matching_recall,
    sacrebleu_metrics,
    translation_quality,
)
from ..inference.region_extraction import RegionExtractor
from ..modeling.modeling_rc3_tasks import (
    Rc3ForConditionalGeneration,
    Rc3ForImageTextRetrieval,
    Rc3ForVisualEntailment,
    Rc3ForVisualQuestionAnswering,
    Rc3ForVisualReasoning,
)
from ..processing.image_augmentation import ImageAugmentation, TrainingTransform
from .arguments import Rc3TaskTrainingArguments
from .contrastive import TaskData
from .finiteness import check_finite
from .whole_checkpoints import WholeCheckpointTrainer


@dataclass(frozen=True)
class Rc3Task(ABC):
    """A task by its name in recipes.

    Args:
        name: in recipes and reports.
        model: that is trained on it.
        metrics: of `evaluate`, the one that counts first.
    """

    name: str
    model: type[Any]
    metrics: tuple[str, ...]

    @abstractmethod
    def examples(self, data: TaskData) -> SizedView:
        """What is trained on."""

    @abstractmethod
    def collator(self, inputs: TaskInputs, examples: Any) -> Collator:
        """From examples to batches."""

    def check_measures(self) -> None:
        """Before a long training.

        Raises:
            ImportError: when what `evaluate` measures with is not installed.
        """
        return

    @abstractmethod
    def evaluate(
        self, model: Any, processor: Any, data: TaskData, regions: Regions | None, batch_size: int
    ) -> Results:
        """Numbers in percent by language."""


@dataclass(frozen=True)
class LabelTask(Rc3Task):
    """A text with an image, or two, has one of several labels."""

    as_scores: bool = False
    metrics: tuple[str, ...] = ("accuracy",)

    def examples(self, data: TaskData) -> LabelledExamples:
        return LabelledExamples(data.corpus, data.languages)

    def collator(self, inputs: TaskInputs, examples: LabelledExamples) -> Collator:
        labels = inputs.config.id2label
        return LabelCollator(inputs, [labels[number] for number in sorted(labels)], as_scores=self.as_scores)

    def evaluate(
        self, model: Any, processor: Any, data: TaskData, regions: Regions | None, batch_size: int
    ) -> Results:
        return label_accuracy(model, processor, self.examples(data), regions=regions, batch_size=batch_size)


@dataclass(frozen=True)
class RetrievalTask(Rc3Task):
    """Captions find images, and images captions."""

    metrics: tuple[str, ...] = ("r1", "t2i_r1", "i2t_r1")

    def examples(self, data: TaskData) -> NumberedRows:
        return NumberedRows(image_text_pairs(data.corpus, data.languages))

    def collator(self, inputs: TaskInputs, examples: NumberedRows) -> Collator:
        corpus = examples.view
        images = corpus.images if "image" in corpus.corpus.column_names else None
        ids = list(corpus.corpus["image_id"])
        vectors = image_vectors(images, ids, inputs.regions if inputs.config.has_regions else None)
        return CandidateCollator(inputs, corpus, nearest(vectors, ids))

    def evaluate(
        self, model: Any, processor: Any, data: TaskData, regions: Regions | None, batch_size: int
    ) -> Results:
        languages = data.languages or list(languages_of(data.corpus))
        return matching_recall(model, processor, data.corpus, languages, regions=regions, batch_size=batch_size)


@dataclass(frozen=True)
class TranslationTask(Rc3Task):
    """A text is written in another language, with a look at its image."""

    metrics: tuple[str, ...] = ("bleu", "chrf")

    def examples(self, data: TaskData) -> SizedView:
        return triplets(data.corpus, data.pairs)

    def collator(self, inputs: TaskInputs, examples: Any) -> Collator:
        return TargetCollator(inputs)

    def check_measures(self) -> None:
        sacrebleu_metrics()

    def evaluate(
        self, model: Any, processor: Any, data: TaskData, regions: Regions | None, batch_size: int
    ) -> Results:
        view = triplets(data.corpus, data.pairs)
        return translation_quality(model, processor, view, regions=regions, batch_size=batch_size)


RC3_TASKS = {
    task.name: task
    for task in (
        LabelTask("visual-entailment", Rc3ForVisualEntailment),
        LabelTask("visual-question-answering", Rc3ForVisualQuestionAnswering, as_scores=True),
        LabelTask("visual-reasoning", Rc3ForVisualReasoning),
        RetrievalTask("image-text-retrieval", Rc3ForImageTextRetrieval),
        TranslationTask("translation", Rc3ForConditionalGeneration),
    )
}


def task_of(model: Any) -> Rc3Task:
    """The task that a model is for.

    Raises:
        TypeError: for a model that is for none of them.
    """
    for task in RC3_TASKS.values():
        if isinstance(model, task.model):
            return task
    raise TypeError(f"{type(model).__name__} is for none of RC3's tasks: {', '.join(RC3_TASKS)}")


class Rc3TaskTrainer(WholeCheckpointTrainer):
    """transformers' `Trainer` for RC3's tasks; which one follows from the model.

    Args:
        model: one of those above.
        args: `Rc3TaskTrainingArguments`.
        processing_class: an `Rc3Processor`.
        train_dataset: the task's data, a dataset or `TaskData`, which says in which languages; the paper trains on
            English alone.
        eval_dataset: the same, or a dict name -> such, evaluated in each of its languages.
        regions: of images: `RegionFeatures`, or a `RegionExtractor`, which finds them anew whenever they are read.
        kwargs: as for `Trainer`.

    Raises:
        CorpusError: for data with an answer that is none of the model's.
        InputError: for data with one image where the model reads two, or the reverse.
    """

    arguments_class: ClassVar[type[Rc3TaskTrainingArguments]] = Rc3TaskTrainingArguments

    # transformers sets these; declared for the type checker, which does not read transformers.
    model: Any
    control: Any

    def __init__(
        self,
        model: nn.Module,
        args: Rc3TaskTrainingArguments,
        *,
        processing_class: Any,
        train_dataset: Dataset | TaskData | None = None,
        eval_dataset: Dataset | TaskData | dict[str, Dataset | TaskData] | None = None,
        regions: Regions | None = None,
        **kwargs: Any,
    ) -> None:
        self.task, self.regions = task_of(model), regions
        if args.max_text_length is not None:
            processing_class.max_text_length = args.max_text_length
        if args.generation:
            model.generation_config.update(**args.generation)
        super().__init__(
            model=model,
            args=args,
            processing_class=processing_class,
            eval_dataset=eval_dataset,
            data_collator=TaskCollator({}),
            **kwargs,
        )
        if train_dataset is not None:
            self._set_training_data(_task_data(train_dataset), processing_class)

    # ---- Training ----

    def _set_training_data(self, data: TaskData, processor: Any) -> None:
        inputs = TaskInputs(processor, self.model.config, self.regions, **self._augmented(processor))
        examples = self.task.examples(data)
        self.train_dataset = TaskMixture({self.task.name: examples})
        collate = self.task.collator(inputs, examples)
        collate(examples.__getitems__([0]), [0])  # what is wrong with all of the data is better said now
        self.data_collator = TaskCollator({self.task.name: collate})

    def _augmented(self, processor: Any) -> dict[str, Any]:
        """What training sees in the place of images as they are."""
        if self.args.image_augmentation is None:
            return {}
        augmentation = ImageAugmentation(**self.args.image_augmentation)
        changes: dict[str, Any] = {"transform": TrainingTransform(processor.image_processor, augmentation)}
        if isinstance(self.regions, RegionExtractor) and self.regions.can_augment:
            changes["training_regions"] = partial(self.regions, augmentation=augmentation)
        return changes

    def get_train_dataloader(self) -> DataLoader:
        if self.train_dataset is None:
            raise ValueError("training needs a train_dataset")
        sampler = TaskBatchSampler(
            self.train_dataset, self._train_batch_size, seed=data_seed(self.args), num_processes=self.args.world_size
        )
        return self.accelerator.prepare(mixture_loader(sampler, self.data_collator, self.args))

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, dict[str, Tensor]], return_outputs: bool = False, **kwargs: Any
    ) -> Any:
        output = model(**inputs[self.task.name])
        check_finite(output.loss, self.task.name, self.state.global_step + 1)
        return (output.loss, output) if return_outputs else output.loss

    # ---- Evaluation ----

    def evaluate(
        self,
        eval_dataset: Any | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> dict[str, float]:
        """The task's metrics in percent: `eval_accuracy_<language>`, and `eval_accuracy`, the mean over languages."""
        data = self.eval_dataset if eval_dataset is None else eval_dataset
        if isinstance(data, dict):
            parts = [self.evaluate(part, ignore_keys, f"{metric_key_prefix}_{name}") for name, part in data.items()]
            return {key: value for part in parts for key, value in part.items()}
        results = self.task.evaluate(
            self.model,
            self.processing_class,
            _task_data(data),
            self.regions,
            self.args.per_device_eval_batch_size,
        )
        metrics: dict[str, float] = {}
        for name in self.task.metrics:
            found = {language: numbers[name] for language, numbers in results.items()}
            metrics[f"{metric_key_prefix}_{name}"] = sum(found.values()) / len(found)
            metrics |= {f"{metric_key_prefix}_{name}_{language}": value for language, value in found.items()}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics


def _task_data(data: Dataset | TaskData) -> TaskData:
    return data if isinstance(data, TaskData) else TaskData(data)
