"""SMALR's trainer: the latent vocabulary first, then words, sentences and pictures together (Burns et al. 2020)."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..configuration.tasks import IMAGE_TEXT, TEXT_TEXT
from ..data.captioned_pictures import CaptionedPictures
from ..data.collators import identity_label
from ..processing.image_augmentation import ImageAugmentation, TrainingTransform
from .arguments import SmalrTrainingArguments
from .contrastive import ContrastiveTrainer, TaskData
from .frozen_features import FeatureView, frozen_features
from .mixture import SizedView


class SmalrTrainer(ContrastiveTrainer):
    """Tasks: `text_text` learns the latent vocabulary of a `SmalrLatentModel` from sentences of the same picture;
    `image_text` trains a `SmalrModel`. Both take a caption corpus whose pictures have captions in all languages.

    A batch has `sentences_per_picture` sentences of each picture in every language. A backbone of the model is frozen,
    and its features are computed once, unless `cache_frozen_features` is off.

    Args:
        model, args, processing_class, train_dataset, eval_dataset, kwargs: as for `ContrastiveTrainer`.
        cache_dir: of frozen features; by default a folder in the Hugging Face datasets cache.
    """

    task_weights = {IMAGE_TEXT: 1.0, TEXT_TEXT: 1.0}
    arguments_class = SmalrTrainingArguments

    def __init__(
        self, model: nn.Module, args: SmalrTrainingArguments, *, cache_dir: str | None = None, **kwargs: Any
    ) -> None:
        self.cache_dir = cache_dir
        self._backbone = getattr(model, "vision_model", None)
        self._is_frozen = self._backbone is not None and args.cache_frozen_features
        if self._is_frozen:
            self._backbone.requires_grad_(False)
        super().__init__(model, args, **kwargs)

    def make_view(self, task: str, data: TaskData) -> SizedView:
        languages = data.languages or self.args.languages or self.processing_class.languages
        view = CaptionedPictures(data.corpus, languages, with_pictures=task == IMAGE_TEXT)
        if task == IMAGE_TEXT and self._is_frozen:
            with self.args.main_process_first(desc="frozen features"):
                return FeatureView(view.without_pictures(), "image_features", self._features(view), view.rows)
        return view

    def _features(self, view: CaptionedPictures) -> np.ndarray:
        """The backbone's features of all pictures of a corpus, [rows, width]."""
        pictures, processor = view.pictures, self.processing_class.image_processor
        return frozen_features(
            lambda: self.model_features(pictures),
            weights=self._backbone.state_dict(),
            settings=f"{self._backbone.config.to_json_string()}\n{processor.to_json_string()}",
            items=(pictures.encoded(row) for row in range(len(pictures))),
            cache_dir=self.cache_dir,
        )
