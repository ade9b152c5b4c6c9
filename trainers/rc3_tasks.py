"""Fine-tuning of RC3 on five tasks: the batches and the evaluation of each task, and the trainer (Zhou et al. 2023,
section 3 and appendix B).

    Rc3ForVisualEntailment          XVNLI    labelled rows with an image
    Rc3ForVisualQuestionAnswering   xGQA     the same; a score for each answer
    Rc3ForVisualReasoning           MaRVL    the same with two images
    Rc3ForImageTextRetrieval        ITR      a caption corpus
    Rc3ForConditionalGeneration     MMT      a caption corpus with texts in two languages
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from datasets import Dataset
from torch import Tensor, nn

from ..data.batching.mixture import Collator, FeatureView, TaskData, TaskMixture
from ..data.batching.rc3 import (
    CandidateCollator,
    LabelCollator,
    LabelledExamples,
    Regions,
    TargetCollator,
    TaskInputs,
    image_vectors,
    most_similar,
)
from ..data.batching.views import CorpusView, image_text_pairs, triplets
from ..data.corpus.corpus import languages_of
from ..evaluation.ranking import over_languages
from ..evaluation.tasks import Results, label_accuracy, matching_recall, translation_quality
from ..inference.backbones import RegionExtractor
from ..modeling.modeling_rc3_tasks import (
    Rc3ForConditionalGeneration,
    Rc3ForImageTextRetrieval,
    Rc3ForVisualEntailment,
    Rc3ForVisualQuestionAnswering,
    Rc3ForVisualReasoning,
)
from ..processing.augmentation import ImageAugmentation, TrainingTransform
from ..utils.errors import InputError, requires
from .arguments import Rc3TaskTrainingArguments
from .base import BabelensTrainer


@dataclass(frozen=True)
class Rc3Task:
    """A task for fine-tuning RC3, on labelled rows with images unless a subclass says otherwise."""

    name: str  # in recipes and reports
    model: type[Any]
    metrics: tuple[str, ...] = ("accuracy",)  # that `evaluate` returns, the main metric first
    as_scores: bool = False  # whether a row has a score for each label

    def examples(self, data: TaskData) -> Any:
        return LabelledExamples(data.corpus, data.languages)

    def collator(self, inputs: TaskInputs, examples: Any) -> Collator:
        """Returns the function from examples and their seeds to the inputs and labels of the model."""
        labels = inputs.config.id2label
        return LabelCollator(inputs, [labels[index] for index in sorted(labels)], as_scores=self.as_scores)

    def check_measures(self) -> None:
        """Checks that the packages that `evaluate` needs are installed, before a long training run."""

    def evaluate(self, model: Any, processor: Any, data: TaskData, **options: Any) -> Results:
        """Returns language -> metric -> percent; options are `regions`, `batch_size`, and `ranks`, to which tasks that
        rank add the ranks of single queries by language."""
        return label_accuracy(model, processor, self.examples(data), **options)


@dataclass(frozen=True)
class RetrievalTask(Rc3Task):
    metrics: tuple[str, ...] = ("r1", "t2i_r1", "i2t_r1")

    def examples(self, data: TaskData) -> FeatureView:
        view = image_text_pairs(data.corpus, data.languages)
        return FeatureView(view, "row", view.rows, np.arange(len(view)))

    def collator(self, inputs: TaskInputs, examples: FeatureView) -> Collator:
        corpus: Any = examples.view
        images = corpus.images if "image" in corpus.corpus.column_names else None
        ids = list(corpus.corpus["image_id"])
        vectors = image_vectors(images, ids, inputs.regions if inputs.config.has_regions else None)
        return CandidateCollator(inputs, corpus, most_similar(vectors, ids))

    def evaluate(self, model: Any, processor: Any, data: TaskData, **options: Any) -> Results:
        languages = data.languages or list(languages_of(data.corpus))
        return matching_recall(model, processor, data.corpus, languages, **options)


@dataclass(frozen=True)
class TranslationTask(Rc3Task):
    metrics: tuple[str, ...] = ("bleu", "chrf")

    def examples(self, data: TaskData) -> CorpusView:
        return triplets(data.corpus, data.pairs)

    def collator(self, inputs: TaskInputs, examples: Any) -> Collator:
        return TargetCollator(inputs)

    def check_measures(self) -> None:
        with requires("sacrebleu"):
            import sacrebleu as sacrebleu

    def evaluate(self, model: Any, processor: Any, data: TaskData, ranks: Any = None, **options: Any) -> Results:
        return translation_quality(model, processor, self.examples(data), **options)


RC3_TASKS = {
    task.name: task
    for task in (
        Rc3Task("visual-entailment", Rc3ForVisualEntailment),
        Rc3Task("visual-question-answering", Rc3ForVisualQuestionAnswering, as_scores=True),
        Rc3Task("visual-reasoning", Rc3ForVisualReasoning),
        RetrievalTask("image-text-retrieval", Rc3ForImageTextRetrieval),
        TranslationTask("translation", Rc3ForConditionalGeneration),
    )
}


def task_of(model: Any) -> Rc3Task:
    for task in RC3_TASKS.values():
        if isinstance(model, task.model):
            return task
    raise TypeError(f"{type(model).__name__} is not a model for one of RC3's tasks: {', '.join(RC3_TASKS)}")


class Rc3TaskTrainer(BabelensTrainer):
    """transformers' `Trainer` for RC3's tasks; the class of the model determines the task. It takes the task's data,
    or `TaskData` with their languages (the paper trains only on English), and evaluates the same, or a dict name ->
    data, in each language. `regions` are `RegionFeatures`, or a `RegionExtractor`, which computes them batch by
    batch."""

    arguments_class: ClassVar[type[Rc3TaskTrainingArguments]] = Rc3TaskTrainingArguments

    def __init__(self, model: Any = None, args: Any = None, *, regions: Regions | None = None, **kwargs: Any) -> None:
        self.regions = regions
        super().__init__(model, args, **kwargs)
        self.task = task_of(self.model)
        if self.args.metric_for_best_model == "loss":  # transformers' default; each task has its own main metric
            self.args.metric_for_best_model, self.args.greater_is_better = self.task.metrics[0], True
        if self.args.max_text_length is not None:
            self.processing_class.max_text_length = self.args.max_text_length
        if self.args.generation is not None:
            if not isinstance(self.model, Rc3ForConditionalGeneration):
                raise InputError(f"generation: {type(self.model).__name__} does not generate texts")
            self.model.generation_config.update(**self.args.generation)

    def prepare(self, model: Any, train_dataset: Dataset | TaskData) -> TaskMixture:
        processor = self.processing_class
        options: dict[str, Any] = {}
        if self.args.image_augmentation is not None:
            augmentation = ImageAugmentation(**self.args.image_augmentation)
            options["transform"] = TrainingTransform(processor.image_processor, augmentation)
            if isinstance(self.regions, RegionExtractor) and self.regions.can_augment:
                options["training_regions"] = partial(self.regions, augmentation=augmentation)
        inputs = TaskInputs(processor, model.config, self.regions, **options)
        examples = self.task.examples(_task_data(train_dataset))
        collate = self.task.collator(inputs, examples)
        collate(examples.__getitems__([0]), [0])  # raises errors that concern all of the data before training
        return TaskMixture({self.task.name: examples}, {self.task.name: collate})

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, dict[str, Tensor]], return_outputs: bool = False, **kwargs: Any
    ) -> Any:
        output = model(**inputs[self.task.name])
        self.check_loss(output.loss, self.task.name)
        return (output.loss, output) if return_outputs else output.loss

    def measure(self, data: Dataset | TaskData) -> dict[str, float]:
        """Returns the metrics of the task in percent, such as `accuracy` and `accuracy_<language>`."""
        reading = {"regions": self.regions, "batch_size": self.args.per_device_eval_batch_size}
        results = self.task.evaluate(self.model, self.processing_class, _task_data(data), **reading)
        metrics: dict[str, float] = {}
        for name in self.task.metrics:
            metrics |= over_languages(name, {language: values[name] for language, values in results.items()})
        return metrics


def _task_data(data: Dataset | TaskData) -> TaskData:
    return data if isinstance(data, TaskData) else TaskData(data)
