"""Training on images with texts in several languages, the features of a frozen backbone computed once: what the
trainers of SMALR and LIWE share."""

from typing import Any

import numpy as np
import torch
from datasets.utils.logging import tqdm
from torch import Tensor, nn

from ..configuration.tasks import IMAGE_TEXT
from ..data.batching.captioned_images import CaptionedImages
from ..data.batching.collators import Collator, identity_label
from ..data.batching.mixture import SizedView
from ..data.batching.views import Images
from ..modeling.modeling_dual_encoder import pool_image
from ..processing.image_augmentation import TrainingTransform
from .arguments import WordDualEncoderTrainingArguments
from .contrastive import ContrastiveTrainer, TaskData
from .frozen_features import FeatureView, frozen_features


class WordDualEncoderTrainer(ContrastiveTrainer):
    """Takes a caption corpus whose images have captions in all languages. A batch has `sentences_per_image`
    sentences of each image in every language, or in `languages_per_batch` of them.

    A backbone of the model is frozen, and its features are computed once, unless `cache_frozen_features` is off.

    Args:
        model, args, processing_class, train_dataset, eval_dataset, kwargs: as for `ContrastiveTrainer`.
        cache_dir: of frozen features; by default a folder in the Hugging Face datasets cache.
    """

    def __init__(
        self,
        model: nn.Module,
        args: WordDualEncoderTrainingArguments,
        *,
        cache_dir: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.cache_dir = cache_dir
        # Frozen, so that its features can be computed once.
        self._backbone: Any = getattr(model, "vision_model", None) if args.cache_frozen_features else None
        if self._backbone is not None:
            self._backbone.requires_grad_(False)
        # A language's projection and branch may be missing from a batch.
        args.ddp_find_unused_parameters = True
        super().__init__(model, args, **kwargs)

    # ---- Data ----

    def make_view(self, task: str, data: TaskData) -> SizedView:
        languages = data.languages or self.args.languages or getattr(self.processing_class, "languages", None)
        view = CaptionedImages(data.corpus, languages, with_images=task == IMAGE_TEXT)
        if self._backbone is None or view.images is None:
            return view
        with self.args.main_process_first(desc="frozen features"):
            features = self._features(view.images)
        return FeatureView(view.without_images(), "image_features", features, view.rows)

    def make_collator(self, task: str) -> Collator:
        return SentenceCollator(
            self.processing_class,
            self.training_transform(),
            self.args.sentences_per_image,
            self.args.languages_per_batch,
        )

    def _features(self, images: Images) -> np.ndarray:
        """The backbone's features of all images of a corpus, [rows, width]."""
        processor = self.processing_class.image_processor
        return frozen_features(
            lambda: self._compute_features(images),
            weights=self._backbone.state_dict(),
            settings=f"{self._backbone.config.to_json_string()}\n{processor.to_json_string()}",
            items=(images.encoded(row) for row in range(len(images))),
            cache_dir=self.cache_dir,
        )

    @torch.no_grad()
    def _compute_features(self, images: Images) -> np.ndarray:
        backbone = self._backbone.to(self.args.device).eval()
        size, found = self.args.per_device_eval_batch_size, []
        for start in tqdm(range(0, len(images), size), desc="features of images"):
            inputs = self.processing_class(images=images[start : start + size], return_tensors="pt")
            found.append(pool_image(backbone(**inputs.to(self.args.device))).float().cpu().numpy())
        return np.concatenate(found)


class SentenceCollator:
    """Images with captions in several languages and their seeds -> a model's inputs and `positives`.

    Args:
        processor: the model's.
        transform: images and their seeds -> pixel values [M, 3, H, W].
        sentences: drawn for each image in each language; where there are fewer captions, they come again.
        languages: that many, drawn for each batch; by default all.
    """

    def __init__(
        self, processor: Any, transform: TrainingTransform, sentences: int, languages: int | None = None
    ) -> None:
        self.processor, self.transform, self.sentences = processor, transform, sentences
        self.languages = languages

    def __call__(self, examples: list[dict[str, Any]], seeds: list[int]) -> dict[str, Tensor]:
        texts, languages, language_ids, labels = [], [], [], []
        drawn = self._drawn_languages(list(examples[0]["captions"]), seeds[0])
        for example, seed in zip(examples, seeds, strict=True):
            rng = np.random.Generator(np.random.PCG64(seed))
            for number, language in drawn.items():
                captions = example["captions"][language]
                order = rng.permutation(len(captions))
                texts += [captions[order[k % len(order)]] for k in range(self.sentences)]
                languages += [language] * self.sentences
                language_ids += [number] * self.sentences
                labels += [identity_label(example["image_id"])] * self.sentences
        encoded = self.processor(text=texts, language=languages, return_tensors="pt")
        # A processor whose languages have vocabularies of their own numbers them itself.
        batch = {"language_ids": torch.tensor(language_ids)} | dict(encoded)
        if "image" in examples[0]:
            batch["pixel_values"] = self.transform([example["image"] for example in examples], seeds)
        if "image_features" in examples[0]:
            batch["image_features"] = torch.from_numpy(np.stack([example["image_features"] for example in examples]))
        if batch.keys() & {"pixel_values", "image_features"}:
            batch["text_labels"] = torch.tensor(labels)
            batch["image_labels"] = torch.tensor([identity_label(example["image_id"]) for example in examples])
        batch["positives"] = torch.tensor([labels])
        return batch

    def _drawn_languages(self, languages: list[str], seed: int) -> dict[int, str]:
        """The languages of a batch by their number among all, drawn with the first example's seed."""
        if self.languages is None or self.languages >= len(languages):
            return dict(enumerate(languages))
        rng = np.random.default_rng([seed, len(languages)])
        numbers = sorted(rng.choice(len(languages), self.languages, replace=False).tolist())
        return {number: languages[number] for number in numbers}
