"""RC3's pre-training (Zhou et al. 2023, section 2.3): every step takes a batch from each of three data sets.

    strict     images, in the paper as regions, with captions that are translations of each other
    weak       images, in the paper as patches, with texts in several languages
    parallel   translation pairs

The batches of a step, one per process, are in one pair of languages, and XTCL contrasts the texts of all of them.
R-XVtCL and ITM take the negatives of an image from one other image of the same process. `modeling_rc3_pretraining`
describes which objective is trained on which data set.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property, partial
from itertools import islice
from statistics import fmean
from typing import Any, ClassVar

import torch
from accelerate.utils import send_to_device
from datasets import Dataset, IterableDataset
from torch import Tensor, nn
from torch.utils.data import DataLoader

from ..configuration.configuration_rc3 import BOTH, PARALLEL, PATCHES, REGIONS, STRICT, WEAK
from ..data.batching.mixture import (
    Collator,
    FeatureView,
    GroupedView,
    SizedView,
    TaskData,
    TaskMixture,
    TaskSampler,
    one_pair_at_a_time,
)
from ..data.batching.rc3 import TranslationCollator, TripletCollator
from ..data.batching.views import CorpusView, StreamView, translation_pairs, triplets, weak_pairs
from ..modeling.modeling_rc3_pretraining import Rc3ForPreTraining
from ..processing.augmentation import ImageAugmentation, TrainingTransform
from ..utils.errors import InputError
from .arguments import Rc3TrainingArguments, data_seed
from .base import BabelensTrainer, mixture_loader
from .frozen_features import features_of_images
from .large_batches import gather_rows


class Rc3Trainer(BabelensTrainer):
    """transformers' `Trainer` for `Rc3ForPreTraining`.

    Args:
        train_dataset: a dict `strict`, `weak`, `parallel` -> corpus, `TaskData` or view (`triplets`, `weak_pairs`,
            `translation_pairs`), without those whose objectives all have the weight 0.
        eval_dataset: a dict with any of these; a corpus, which is used as `strict`; or a dict name -> one of these.
        regions: a mapping image_id -> [R, region_size], such as `RegionFeatures`, or a `RegionExtractor`, which
            computes the regions of all images once, in `cache_dir` (by default in the Hugging Face datasets cache).
    """

    data_sets: ClassVar[tuple[str, ...]] = (STRICT, WEAK, PARALLEL)
    arguments_class: ClassVar[type[Rc3TrainingArguments]] = Rc3TrainingArguments
    batch_sizes_argument = "data_set_batch_sizes"

    model: Rc3ForPreTraining
    _sums: dict[str, Tensor]

    def __init__(
        self, model: Any = None, args: Any = None, *, regions: Any = None, cache_dir: str | None = None, **kwargs: Any
    ) -> None:
        self.regions, self.cache_dir = regions, cache_dir
        super().__init__(model, args, **kwargs)
        # Sums of the parts of the loss since the last log entry, and the number of batches in them.
        self._sums, self._summed = {}, 0

    def prepare(self, model: Rc3ForPreTraining, train_dataset: dict[str, Any]) -> TaskMixture:
        self._check_known([*(self.args.data_set_batch_sizes or {}), *train_dataset])
        visual = {self._visual(name) for name in self._needed if name != PARALLEL}
        if visual == {PATCHES} and self.args.augmented_regions:
            raise InputError("augmented_regions has no effect: all images are given as patches")
        if visual == {REGIONS} and self.args.image_augmentation is not None and not self.args.augmented_regions:
            raise InputError("image_augmentation has no effect without augmented_regions: there are no patches")
        if missing := [name for name in self._needed if name not in train_dataset]:
            raise InputError(f"no data for {', '.join(missing)}: give them, or set the weights of objectives to 0")
        if self.args.parallel_captions and (STRICT not in train_dataset or PARALLEL not in self._needed):
            raise InputError("parallel_captions needs strict and parallel data, and xtcl_weight above 0")
        views = {name: self._view(name, train_dataset, training=True) for name in self._needed}
        return TaskMixture(views, {name: self._collator(name) for name in self._needed})

    @property
    def _needed(self) -> list[str]:
        config = self.model.config
        weights = {
            STRICT: config.mclm_weight or config.itm_weight or config.rxvtcl_weight,
            WEAK: config.rxvtcl_weight,
            PARALLEL: config.xtcl_weight,
        }
        return [name for name in self.data_sets if weights[name]]

    def _check_known(self, data: Iterable[str]) -> None:
        if unknown := [name for name in data if name not in self.data_sets]:
            raise InputError(f"unknown data set {unknown[0]!r}; RC3 has {', '.join(self.data_sets)}")

    def _view(self, name: str, data: Mapping[str, Any], *, training: bool) -> GroupedView:
        """The examples of a data set by pair of languages, with regions if its images are given as regions."""
        texts = self._texts(name, data[name])
        if name == PARALLEL:
            captions = [self._texts(STRICT, data[STRICT])] if training and self.args.parallel_captions else []
            views = [texts, *(view.without_images() for view in captions)]
            return one_pair_at_a_time(*zip(views, views, strict=True))
        visual = self._visual(name)
        if visual != REGIONS and "image" not in texts.columns:
            raise InputError(f"{name}: the data has no images, and {name}_visual is {visual!r}")
        given = texts if visual == PATCHES else self._with_regions(name, texts, visual, training=training)
        return one_pair_at_a_time((texts, given))

    @staticmethod
    def _texts(name: str, data: Any) -> CorpusView:
        """The examples of a data set with their images, in any order."""
        if isinstance(data, IterableDataset | StreamView) or isinstance(
            getattr(data, "corpus", None), IterableDataset
        ):
            raise InputError(
                f"{name}: RC3 samples each batch from one pair of languages and cannot use a stream (streaming=False)"
            )
        if isinstance(data, Dataset):
            data = TaskData(data)
        if not isinstance(data, TaskData):
            return data
        if name == WEAK:
            return weak_pairs(data.corpus, data.languages)
        return (triplets if name == STRICT else translation_pairs)(data.corpus, data.pairs, data.languages)

    def _visual(self, name: str) -> str:
        """Returns whether the images of a data set are given as `regions`, `patches` or `both`."""
        paper, asked = (REGIONS, self.args.strict_visual) if name == STRICT else (PATCHES, self.args.weak_visual)
        layers = self.model.config.visual
        visual = asked or (paper if layers == BOTH else layers)
        if layers not in (visual, BOTH):
            raise InputError(f"{name}_visual={visual!r}, but the model only has layers for {layers}")
        return visual

    def _with_regions(self, name: str, view: CorpusView, visual: str, *, training: bool) -> SizedView:
        if self.regions is None:
            raise InputError(f"{name}: its images are given as {visual}: give regions=, or {name}_visual='patches'")
        augmented = self.args.augmented_regions if training else 0
        examples = view if visual == BOTH else view.without_images()
        if isinstance(self.regions, Mapping):
            if augmented:
                raise InputError(
                    "augmented_regions needs a RegionExtractor: files have no regions of augmented images"
                )
            return FeatureView(examples, "regions", self.regions)
        extractor, images = self.regions, view.images
        compute, identity = partial(extractor, images), extractor.identity
        if augmented:
            compute = partial(extractor.versions, images, self._augmentation, augmented)
            identity = f"{identity} {self._augmentation} {augmented}"
        features = features_of_images(compute, images, identity, self.cache_dir)
        return FeatureView(examples, "regions", features, view.rows)

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

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        output = model(**inputs, ends_step=self.accelerator.sync_gradients, gather=gather_rows)
        if not output.loss.isfinite():
            for name in reversed(output):  # the parts before their sum
                self.check_loss(output[name], name)
        self._sums = {name: self._sums.get(name, 0) + value.detach() for name, value in output.items()}
        self._summed += 1
        return (output.loss, output) if return_outputs else output.loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Logs the parts of the loss, the accuracy of image-text matching, and both p_avg, averaged over the processes
        and the batches since the last entry."""
        if "loss" in logs and self._summed:
            means = {name: value / self._summed for name, value in self._sums.items() if name != "loss"}
            means = {name: self.accelerator.reduce(value, "mean") for name, value in means.items()}
            for name in ("textual", "visio_textual"):
                means[f"p_avg_{name}"] = getattr(self.model, f"{name}_probability").average
            logs |= {name: round(value.item(), 4) for name, value in means.items()}
            self._sums, self._summed = {}, 0
        super().log(logs, start_time)

    def is_named(self, data: Any) -> bool:
        return isinstance(data, dict) and not data.keys() & set(self.data_sets)

    def measure(self, data: Any) -> dict[str, float]:
        """Returns every part of the loss, without dropout and with p_avg unchanged, and `itm_accuracy`: the share of
        image-text pairs, half matching, that are classified correctly."""
        loader = self._eval_batches(data if isinstance(data, dict) else {STRICT: data})
        self.model.eval()
        results: dict[str, list[float]] = {}
        for batch in islice(loader, self.args.eval_batches):
            with torch.no_grad(), self.compute_loss_context_manager():
                output = self.model(**send_to_device(batch, self.args.device))
            for name, value in output.items():
                results.setdefault(name, []).append(value.item())
        return {name: round(fmean(values), 4) for name, values in results.items()}

    def _eval_batches(self, data: dict[str, Any]) -> DataLoader:
        """The batches of an evaluation, which are the same every time and in every process."""
        self._check_known(data)
        views = {name: self._view(name, data, training=False) for name in self.data_sets if name in data}
        size = self.args.per_device_eval_batch_size
        sizes = {name: min(size, *view.sizes) for name, view in views.items()}
        mixture = TaskMixture(dict(views), {name: self._collator(name, training=False) for name in views})
        return mixture_loader(TaskSampler(mixture, sizes, seed=data_seed(self.args)), self.args)
