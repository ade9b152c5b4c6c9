"""The trainers of SMALR (Burns et al. 2020) and LIWE (Wehrmann et al. 2019), on images with multilingual captions."""

from functools import partial
from typing import Any

import numpy as np
import torch
from datasets.utils.logging import tqdm
from transformers.trainer_utils import TrainOutput

from ..configuration.configuration_two_tower import IMAGE_TEXT, TEXT_TEXT
from ..data.batching.collators import CaptionedImages, SentenceCollator
from ..data.batching.mixture import Collator, FeatureView, SizedView, TaskData, TaskMixture
from ..data.batching.views import Images
from ..modeling.modeling_dual_encoder import pool_image
from ..utils.identity import model_identity
from .arguments import LiweTrainingArguments, SmalrTrainingArguments
from .contrastive import ContrastiveTrainer
from .frozen_features import IMAGE, features_of_images, refuse_augmentation


class WordDualEncoderTrainer(ContrastiveTrainer):
    """Trains on a caption corpus whose images have captions in all languages. A batch has `sentences_per_image`
    captions per image in every language, or in `languages_per_batch` languages. The features of the frozen backbone
    are computed once for all images, unless `cache_frozen_features` is false."""

    def prepare(self, model: Any, train_dataset: Any) -> TaskMixture:
        # The frozen backbone, whose features are computed once; None if it is trained or the model has none.
        self._backbone: Any = getattr(model, "vision_model", None) if self.args.cache_frozen_features else None
        if self._backbone is not None:
            self._backbone.requires_grad_(False)
        return super().prepare(model, train_dataset)

    def make_view(self, task: str, data: TaskData) -> SizedView:
        languages = data.languages or self.args.languages or getattr(self.processing_class, "languages", None)
        view = CaptionedImages(data.corpus, languages, with_images=task == IMAGE_TEXT)
        if self._backbone is None or not isinstance(view.images, Images):
            return view
        refuse_augmentation(self.args, IMAGE)
        identity = model_identity(self._backbone, self.processing_class.image_processor)
        compute = partial(self._compute_features, view.images)
        features = features_of_images(compute, view.images, identity, self.cache_dir)
        view.images = None  # replaced by their features
        return FeatureView(view, "image_features", features, view.rows)

    def make_collator(self, task: str) -> Collator:
        args, transform = self.args, self.training_transform()
        batch = args.sentences_per_image, args.languages_per_batch, args.world_size
        return SentenceCollator(self.processing_class, transform, *batch)

    def objective_options(self) -> dict[str, Any]:
        step = self.state.global_step
        return {"step": step, "progress": step / max(self.state.max_steps, 1)}

    @torch.no_grad()
    def _compute_features(self, images: Images) -> np.ndarray:
        """The backbone's features of all images of a corpus, [rows, width]."""
        backbone = self._backbone.to(self.args.device).eval()
        size, features = self.args.per_device_eval_batch_size, []
        for start in tqdm(range(0, len(images), size), desc="features of images"):
            inputs = self.processing_class(images=images[start : start + size], return_tensors="pt")
            features.append(pool_image(backbone(**inputs.to(self.args.device))).float().cpu().numpy())
        return np.concatenate(features)


class SmalrTrainer(WordDualEncoderTrainer):
    """Tasks: `image_text` trains a `SmalrModel`. Without it, `text_text` learns from sentences of the same image: with
    a `SmalrLatentModel`, the latent vocabulary; with a `SmalrModel`, the projections of its words, while the word
    vectors stay unchanged (MULE's warm-up)."""

    task_weights = {IMAGE_TEXT: 1.0, TEXT_TEXT: 1.0}
    arguments_class = SmalrTrainingArguments

    def train(self, resume_from_checkpoint: str | bool | None = None, **kwargs: Any) -> TrainOutput:
        embedding = getattr(self.model, "word_embedding", None)
        if embedding is None or IMAGE_TEXT in self.tasks:
            return super().train(resume_from_checkpoint, **kwargs)
        was_trained = embedding.specific.requires_grad
        embedding.specific.requires_grad_(False)
        try:
            return super().train(resume_from_checkpoint, **kwargs)
        finally:
            embedding.specific.requires_grad_(was_trained)


class LiweTrainer(WordDualEncoderTrainer):
    """One task, `image_text`. During training, the loss shifts from all negatives to the hardest one."""

    task_weights = {IMAGE_TEXT: 1.0}
    arguments_class = LiweTrainingArguments
