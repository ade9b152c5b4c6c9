"""MLA's trainer (Zhang et al. 2022, section 3.3): native language transfer and language exposure."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from datasets import IterableDataset
from torch import Tensor, nn

from ..configuration.configuration_two_tower import IMAGE_TEXT, TEXT_TEXT, TRIPLET
from ..data.batching.collators import ContrastiveCollator, ImageTransform
from ..data.batching.mixture import Collator, FeatureView, GroupedView, SizedView, TaskData, TaskMixture
from ..data.batching.views import CorpusView, image_text_pairs, translation_pairs, triplets
from ..data.corpus.corpus import languages_of
from ..inference.embedder import Embedder
from ..modeling.acquirer import plain_state_dict
from ..modeling.modeling_mla import MlaPreTrainedModel
from ..modeling.peft_mla import to_mla_model
from ..utils.errors import InputError
from ..utils.identity import contents_digest, model_identity, settings_of
from ..utils.language_matching import learned_language
from ..utils.languages import normalize_languages
from .arguments import MlaTrainingArguments
from .contrastive import ContrastiveTrainer
from .frozen_features import IMAGE, FrozenEncoder, refuse_augmentation


class NativeSide:
    """The native texts (`text_b`) of translation pairs, each paired with itself."""

    def __init__(self, pairs: CorpusView) -> None:
        self.pairs = pairs

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        examples = self.pairs.__getitems__(indices)
        return [each | {"text_a": each["text_b"], "language_a": each["language_b"]} for each in examples]

    def texts(self) -> dict[str, Sequence[str]]:
        native = self.pairs.texts()["text_b"]
        return {"text_a": native, "text_b": native}


class MlaTrainer(ContrastiveTrainer):
    """Tasks: `text_text`, native language transfer on translations into the native language; `image_text`, language
    exposure on captions. The paper trains one after the other, in two runs of this trainer; a run with both samples a
    batch, and a language, for each. `triplet`, on captions with their native translations, has both losses on each
    batch: native language transfer continues during language exposure, as in the authors' code.

    `args.languages` names the languages to train, by default all that the model has to learn. A student also learns
    the native language, whose texts are paired with themselves; if the whole student is trained (MKD), it learns from
    both texts of every translation pair, so half of the loss is on the native language. All weights that
    `args.trainable` does not name are frozen; the features of the frozen native model are cached on disk. The model
    may also be a dual encoder with MLA adapters from `get_peft_model` or `add_adapter`: they are trained in an
    `MlaModel` that shares their weights (`trainer.model`, whose checkpoints a run resumes from), and `save_model`
    writes them as PEFT does.

    Examples:
        >>> model = get_peft_model(clip, MlaAdapterConfig(language="de"))
        >>> trainer = MlaTrainer(model, args, processing_class=processor, train_dataset={"text_text": translations})
        >>> trainer.train()
        >>> model.save_pretrained("clip-de")
    """

    task_weights = {IMAGE_TEXT: 1.0, TEXT_TEXT: 1.0, TRIPLET: 1.0}
    arguments_class = MlaTrainingArguments

    def __init__(self, model: Any = None, args: MlaTrainingArguments | None = None, **kwargs: Any) -> None:
        self.adapters: Any = None  # the model of PEFT or transformers whose adapters are trained
        if getattr(model, "peft_config", None):
            if args is not None and args.trainable != "acquirers":
                raise InputError(
                    f"trainable={args.trainable!r}: the model under adapters stays frozen (use an MlaModel)"
                )
            self.adapters, model = model, to_mla_model(model, share_weights=True)
            # The processor gets the languages of the adapters, whichever languages it was made for.
            if (processor := copy.copy(kwargs.get("processing_class"))) is not None:
                processor.languages = list(model.config.languages)
                kwargs["processing_class"] = processor
        super().__init__(model, args, **kwargs)
        if self.adapters is not None:
            self.adapters.to(self.model.device)  # including buffers, which the models do not share

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Saves the model, or its adapters as PEFT does; checkpoints always contain the whole model."""
        if self.adapters is None or _internal_call:
            super().save_model(output_dir, _internal_call)
        elif self.args.should_save:
            folder = output_dir or self.args.output_dir
            self.adapters.save_pretrained(folder)
            self.processing_class.save_pretrained(folder)

    def prepare(self, model: MlaPreTrainedModel, train_dataset: Any) -> TaskMixture:
        args = self.args
        learned = model.config.learned_languages
        self.languages = [learned_language(tag, learned) for tag in normalize_languages(args.languages or learned)]
        for name in ("text_text_objective", "image_text_objective"):
            if getattr(args, name) is not None:
                setattr(model.config, name, getattr(args, name))
        model.check_objectives()
        model.set_trainable(args.trainable, self.languages, temperature=args.train_temperature)
        if not self.languages and args.trainable == "acquirers":
            raise InputError("there is nothing to train: the model has not acquired a language (add_language)")
        reading = {"batch_size": args.per_device_eval_batch_size, "device": args.device}
        self._native = Embedder(model.native_model, self.processing_class.native, **reading)
        return super().prepare(model, train_dataset)

    @property
    def _captioned(self) -> list[str]:
        """The languages of the captions in the training data."""
        native = [self.processing_class.native_language]
        return {"acquirers": self.languages, "native": native, "all": native + self.languages}[self.args.trainable]

    def make_view(self, task: str, data: TaskData) -> SizedView:
        if isinstance(data.corpus, IterableDataset):
            raise InputError(f"{task}: MLA needs a Dataset, not a stream, because it selects data by language")
        native = self.processing_class.native_language
        present = languages_of(data.corpus)
        if task == IMAGE_TEXT:
            languages = data.languages or [tag for tag in self._captioned if tag in present]
            views = {tag: image_text_pairs(data.corpus, [tag]) for tag in languages}
        else:
            pairs = data.pairs or [(tag, native) for tag in self.languages if tag in present]
            if any(other != native for _, other in pairs):
                raise InputError(f"a language is acquired from its translations into {native!r}, not from {pairs}")
            make = triplets if task == TRIPLET else translation_pairs
            views = {tag: make(data.corpus, [(tag, native)]) for tag, _ in pairs}
        trained = ", ".join(self._captioned)
        if not views:
            raise InputError(f"{task}: the data has no texts in {trained}, only in {list(present)}")
        if untrained := [tag for tag in views if tag not in self._captioned]:
            raise InputError(f"{task}: the data is in {untrained}, but {self.args.trainable!r} trains {trained}")
        if task == TEXT_TEXT and getattr(self.model.config, "strategy", None) == "distillation":
            views = _with_both_sides(views, native)
        if self._caches_features:
            if task != TEXT_TEXT:
                refuse_augmentation(self.args, IMAGE)
            views = self._with_features(task, views)
        return GroupedView(views, one_at_a_time=not self.args.mix_languages)

    def training_transform(self) -> ImageTransform:
        """As in `ContrastiveTrainer`; without `image_augmentation`, images are prepared as for inference."""
        is_as_in_use = self.args.image_augmentation is None and not self._caches_features
        return self._as_in_use if is_as_in_use else super().training_transform()

    def _as_in_use(self, images: list[Any], seeds: list[int]) -> Tensor:
        pixels: Tensor = self.processing_class(images=images, return_tensors="pt")["pixel_values"]
        return pixels.contiguous(memory_format=torch.channels_last)

    @property
    def _caches_features(self) -> bool:
        return self.args.trainable == "acquirers" and self.args.cache_frozen_features

    def make_collator(self, task: str) -> Collator:
        reader, equal_texts = self._native.processor, self.args.equal_texts_are_positives
        return ContrastiveCollator(self.processing_class, self.training_transform(), reader, equal_texts=equal_texts)

    def _with_features(self, task: str, views: dict[str, Any]) -> dict[str, Any]:
        teacher = self._teacher()
        images = None if task == TEXT_TEXT else teacher.image_features(next(iter(views.values())).images)
        featured: dict[str, SizedView] = dict(views)
        for tag, view in views.items():
            if images is not None:
                featured[tag] = FeatureView(view.without_images(), "image_features", images, view.rows)
            if task != IMAGE_TEXT:
                featured[tag] = teacher.with_texts(featured[tag], view, ("text_b",))
        return featured

    def _teacher(self) -> FrozenEncoder:
        model, processor = self._native.model, self._native.processor
        weights, settings = plain_state_dict(model), settings_of(model.config)  # without the acquirers, which are off

        def identity(without: str, reader: Any) -> str:
            own = {name: value for name, value in weights.items() if not name.startswith(without)}
            return contents_digest(own, model_identity(nn.Identity(), reader, settings))

        return FrozenEncoder(
            self._native,
            self.args,
            self.cache_dir,
            text=identity("vision_model", processor),
            image=identity("text_model", processor.image_processor),
            language=self.processing_class.native_language,
        )


def _with_both_sides(views: dict[str, Any], native: str) -> dict[str, Any]:
    """The translation pairs of each language and, instead of pairs of the native language, the native texts of all
    other languages: each pair gives two errors (Reimers and Gurevych 2020, equation 1)."""
    others = {tag: view for tag, view in views.items() if tag != native}
    if native not in views or not others:
        return views
    return {f"{native} with {tag}": NativeSide(view) for tag, view in others.items()} | others
