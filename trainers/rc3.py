"""RC3's pre-training (Zhou et al. 2023, section 2.3): every step takes a batch of each of three data sets.

    strict     images with captions that are translations of each other; the paper gives their regions
    weak       images with texts in several languages that need not say the same; the paper gives their patches
    parallel   translations

Which objective learns from which is the model's to say (`modeling_rc3_pretraining`). Texts of other processes are no
negatives: each process has its own.
"""

from collections.abc import Mapping
from functools import cached_property, partial
from itertools import combinations, islice
from statistics import fmean
from typing import Any, ClassVar

import numpy as np
import torch
from datasets import Dataset, IterableDataset
from torch import Tensor, nn
from torch.utils.data import DataLoader

from ..configuration.configuration_rc3 import BOTH, PARALLEL, PATCHES, REGIONS, STRICT, WEAK
from ..configuration.errors import TrainingSetupError
from ..data.batching.collators import Collator, TaskCollator
from ..data.batching.mixture import SizedView, TaskBatchSampler, TaskMixture, data_seed, mixture_loader
from ..data.batching.rc3_collators import TranslationCollator, TripletCollator
from ..data.batching.views import CorpusView, Images, translation_pairs, triplets, weak_pairs
from ..modeling.modeling_rc3_pretraining import Rc3ForPreTraining
from ..processing.image_augmentation import ImageAugmentation, TrainingTransform
from .arguments import Rc3TrainingArguments
from .contrastive import TaskData
from .finiteness import check_finite
from .frozen_features import FeatureView, frozen_features
from .whole_checkpoints import WholeCheckpointTrainer


class Rc3Trainer(WholeCheckpointTrainer):
    """transformers' `Trainer` for `Rc3ForPreTraining`.

    Args:
        model: with the weights of the objectives in its configuration.
        args: `Rc3TrainingArguments`.
        processing_class: an `Rc3Processor`.
        train_dataset: a dict `strict`, `weak`, `parallel` -> corpus, `TaskData` or view (`triplets`, `weak_pairs`,
            `translation_pairs`). What no objective of some weight learns from may be missing, and is not read.
        eval_dataset: the same with any of the data sets, or a corpus, which is strictly aligned; or a dict
            name -> such.
        regions: of images, image_id -> [R, region_size], such as `RegionFeatures`; or a `RegionExtractor`, whose
            regions are computed once.
        cache_dir: of extracted regions; by default a folder in the Hugging Face datasets cache.
        kwargs: as for `Trainer`.
    """

    data_sets: ClassVar[tuple[str, ...]] = (STRICT, WEAK, PARALLEL)
    arguments_class: ClassVar[type[Rc3TrainingArguments]] = Rc3TrainingArguments

    # transformers sets these; declared for the type checker, which does not read transformers.
    control: Any
    model: Rc3ForPreTraining
    _sums: dict[str, Tensor]

    def __init__(
        self,
        model: Rc3ForPreTraining,
        args: Rc3TrainingArguments,
        *,
        processing_class: Any,
        train_dataset: dict[str, Any] | None = None,
        eval_dataset: Any | None = None,
        regions: Any | None = None,
        cache_dir: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.args, self.processing_class, self.model = args, processing_class, model  # the views below need them
        self.regions, self.cache_dir = regions, cache_dir
        self._check_known(args.data_set_batch_sizes or {})
        mixture = None
        if train_dataset is not None:
            mixture = TaskMixture(self._views(self._needed_of(train_dataset), training=True))
        super().__init__(
            model=model,
            args=args,
            processing_class=processing_class,
            train_dataset=mixture,
            eval_dataset=eval_dataset,
            data_collator=TaskCollator({name: self._collator(name) for name in self._needed}),
            **kwargs,
        )
        self.model.text_length_groups = args.text_length_groups
        self._sums, self._summed = {}, 0  # of what was lost since the last log entry, in so many batches

    # ---- Data ----

    @property
    def _needed(self) -> list[str]:
        """The data sets that objectives of some weight learn from."""
        config = self.model.config
        wanted = {
            STRICT: config.mclm_weight or config.itm_weight or config.rxvtcl_weight,
            WEAK: config.rxvtcl_weight,
            PARALLEL: config.xtcl_weight,
        }
        return [name for name in self.data_sets if wanted[name]]

    def _check_known(self, data: Mapping[str, Any]) -> None:
        for name in data:
            if name not in self.data_sets:
                raise TrainingSetupError(f"there is no data set {name!r}; RC3 has {', '.join(self.data_sets)}")

    def _needed_of(self, data: Mapping[str, Any]) -> dict[str, Any]:
        self._check_known(data)
        missing = [name for name in self._needed if name not in data]
        if missing:
            raise TrainingSetupError(
                f"objectives of the model learn from {', '.join(missing)}: give it, or set weights to 0"
            )
        return {name: data[name] for name in self._needed}

    def _views(self, data: Mapping[str, Any], *, training: bool = False) -> dict[str, SizedView]:
        return {name: self._view(name, data[name], training=training) for name in self.data_sets if name in data}

    def _view(self, name: str, data: Any, *, training: bool) -> SizedView:
        """The examples of a data set, with what its images are given as."""
        if isinstance(data, IterableDataset) or isinstance(getattr(data, "corpus", None), IterableDataset):
            raise TrainingSetupError(f"{name}: RC3 needs a Dataset, not a stream")
        view = self._texts(name, TaskData(data) if isinstance(data, Dataset) else data)
        if name == PARALLEL:
            return view
        visual = self._visual(name)
        return self._with_regions(name, view, visual, training=training) if visual in (REGIONS, BOTH) else view

    @staticmethod
    def _texts(name: str, data: Any) -> Any:
        if not isinstance(data, TaskData):
            return data
        if name == WEAK:
            return weak_pairs(data.corpus, data.languages)
        pairs = data.pairs or (list(combinations(data.languages, 2)) if data.languages else None)
        return (triplets if name == STRICT else translation_pairs)(data.corpus, pairs)

    def _visual(self, name: str) -> str:
        """What the images of a data set are given as: regions, patches or both."""
        paper, given = (REGIONS, self.args.strict_visual) if name == STRICT else (PATCHES, self.args.weak_visual)
        has = self.model.config.visual
        visual = given or (paper if has == BOTH else has)
        if has not in (visual, BOTH):
            raise TrainingSetupError(f"{name}_visual={visual!r}, and the model has layers for {has} alone")
        return visual

    def _with_regions(self, name: str, view: CorpusView, visual: str, *, training: bool) -> SizedView:
        if self.regions is None:
            raise TrainingSetupError(
                f"{name}: its images are given as {visual}: give regions=, or {name}_visual='patches'"
            )
        augmented = self.args.augmented_regions if training else 0
        shown = view if visual == BOTH else view.without_images()
        if isinstance(self.regions, Mapping):
            if augmented:
                raise TrainingSetupError(
                    "augmented_regions: there are no images to change where regions come from files"
                )
            return RegionView(shown, self.regions)
        with self.args.main_process_first(desc="regions"):
            features = self._extracted(view.images, augmented)
        return FeatureView(shown, "regions", features, view.rows)

    def _extracted(self, images: Images, augmented: int) -> np.ndarray:
        """The regions of images [n, R, region_size], or of several versions of each [n, V, R, region_size]."""
        extractor: Any = self.regions
        compute, settings = partial(extractor, images), extractor.settings
        if augmented and self._augmentation is not None:
            compute = partial(extractor.versions, images, self._augmentation, augmented)
            settings = f"{settings} {self._augmentation} {augmented}"
        return frozen_features(
            compute,
            weights=extractor.weights,
            settings=settings,
            items=(images.encoded(row) for row in range(len(images))),
            cache_dir=self.cache_dir,
        )

    @cached_property
    def _augmentation(self) -> ImageAugmentation | None:
        settings = self.args.image_augmentation
        return None if settings is None else ImageAugmentation(**settings)

    def _collator(self, name: str, *, training: bool = True) -> Collator:
        if name == PARALLEL:
            return TranslationCollator(self.processing_class)
        transform = None
        if training and self._augmentation is not None:
            transform = TrainingTransform(self.processing_class.image_processor, self._augmentation)
        probability = self.model.config.mask_probability if name == STRICT else None
        return TripletCollator(self.processing_class, probability, transform)

    def get_train_dataloader(self) -> DataLoader:
        if self.train_dataset is None:
            raise ValueError("training needs a train_dataset")
        size: int = self._train_batch_size
        sizes = dict.fromkeys(self.data_sets, size) | (self.args.data_set_batch_sizes or {})
        sampler = TaskBatchSampler(
            self.train_dataset, sizes, seed=data_seed(self.args), num_processes=self.args.world_size
        )
        return self.accelerator.prepare(mixture_loader(sampler, self.data_collator, self.args))

    # ---- One step ----

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        self.model.ends_step = self.accelerator.sync_gradients
        output = model(**inputs)
        if not output.loss.isfinite():
            for name in reversed(output):  # the sum after its parts
                check_finite(output[name], name, self.state.global_step + 1)
        self._sums = {name: self._sums.get(name, 0) + value.detach() for name, value in output.items()}
        self._summed += 1
        return (output.loss, output) if return_outputs else output.loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Adds the parts of the loss, the share of pairs that are judged rightly, and both p_avg to the training log:
        means over the batches since the last entry, and over the processes."""
        if "loss" in logs and self._summed:
            means = {name: value / self._summed for name, value in self._sums.items() if name != "loss"}
            means = {name: self.accelerator.reduce(value, "mean") for name, value in means.items()}
            for name in ("textual", "visio_textual"):
                means[f"p_avg_{name}"] = getattr(self.model, f"{name}_probability").average
            logs |= {name: round(value.item(), 4) for name, value in means.items()}
            self._sums, self._summed = {}, 0
        super().log(logs, start_time)

    # ---- Evaluation ----

    def evaluate(
        self,
        eval_dataset: Any | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> dict[str, float]:
        """Every part of the loss, without dropout and with p_avg as it stands, and `eval_itm_accuracy`: the share of
        pairs of an image and a text, half of which belong together, that are judged rightly."""
        data = self.eval_dataset if eval_dataset is None else eval_dataset
        if isinstance(data, dict) and not data.keys() & set(self.data_sets):
            parts = [self.evaluate(part, ignore_keys, f"{metric_key_prefix}_{name}") for name, part in data.items()]
            return {key: value for part in parts for key, value in part.items()}
        loader = self._eval_batches(data if isinstance(data, dict) else {STRICT: data})
        self.model.eval()
        found: dict[str, list[float]] = {}
        for batch in islice(loader, self.args.eval_batches):
            with torch.no_grad(), self.compute_loss_context_manager():
                output = self.model(**self._prepare_inputs(batch))
            for name, value in output.items():
                found.setdefault(name, []).append(value.item())
        metrics = {f"{metric_key_prefix}_{name}": round(fmean(values), 4) for name, values in found.items()}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def _eval_batches(self, data: dict[str, Any]) -> DataLoader:
        """The same batches at every evaluation, and in every process."""
        self._check_known(data)
        views = self._views(data)
        sizes = {name: min(self.args.per_device_eval_batch_size, len(view)) for name, view in views.items()}
        sampler = TaskBatchSampler(TaskMixture(views), sizes, seed=data_seed(self.args))
        collators = {name: self._collator(name, training=False) for name in views}
        return mixture_loader(sampler, TaskCollator(collators), self.args)


class RegionView:
    """A view's examples with the regions of their images, which are looked up by `image_id`."""

    def __init__(self, view: SizedView, regions: Mapping[str, np.ndarray]) -> None:
        self.view, self.regions = view, regions

    def __len__(self) -> int:
        return len(self.view)

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        return [
            example | {"regions": self.regions[example["image_id"]]} for example in self.view.__getitems__(indices)
        ]
