"""MLA's trainer: native language transfer and language exposure (Zhang et al. 2022, section 3.3).

`text_text` on pairs (language, native language) is native language transfer, `image_text` on captions in the acquired
languages is language exposure. The paper trains one after the other, in two runs of this trainer; both at once keeps
the first while the second goes on.
"""

import json
from typing import Any

import numpy as np
from torch import Tensor, nn

from ..configuration.tasks import IMAGE_TEXT, TEXT_TEXT
from ..configuration.languages import normalize_languages
from ..data.corpus import languages_of
from ..data.views import CorpusView, image_text_pairs, translation_pairs
from ..evaluation.embedder import Embedder
from ..modeling.modeling_mla import MlaModel
from .arguments import MlaTrainingArguments
from .contrastive import ContrastiveTrainer, TaskData
from .frozen_features import frozen_features
from .mixture import GroupedView, SizedView


class MlaTrainer(ContrastiveTrainer):
    """Tasks: `text_text` on translations between each language and the native one, `image_text` on captions.

    `args.languages` says which acquired languages are trained, by default all of the model's. Everything that
    `args.trainable` does not name is frozen; features of the frozen native model come from a cache on disk.

    Args:
        model, args, processing_class, train_dataset, eval_dataset, kwargs: as for `ContrastiveTrainer`.
        cache_dir: of frozen features; by default a folder in the Hugging Face datasets cache.
    """

    task_weights = {IMAGE_TEXT: 1.0, TEXT_TEXT: 1.0}
    arguments_class = MlaTrainingArguments

    def __init__(
        self, model: MlaModel, args: MlaTrainingArguments, *, cache_dir: str | None = None, **kwargs: Any
    ) -> None:
        self.cache_dir = cache_dir
        self.languages = normalize_languages(args.languages or model.config.languages)
        model.set_trainable(args.trainable, self.languages)
        self._embedder = Embedder(model, kwargs["processing_class"], batch_size=args.per_device_eval_batch_size)
        # A step of one language has no gradient for the others' acquirers.
        args.ddp_find_unused_parameters = args.trainable != "native"
        super().__init__(model, args, **kwargs)

    @property
    def _captioned(self) -> list[str]:
        """The languages of captions that are trained on."""
        native = [self._embedder.model.config.native_language]
        return {"acquirers": self.languages, "native": native, "all": native + self.languages}[self.args.trainable]

    def make_view(self, task: str, data: TaskData) -> SizedView:
        native = self._embedder.model.config.native_language
        present = languages_of(data.corpus)
        if task == IMAGE_TEXT:
            languages = data.languages or [tag for tag in self._captioned if tag in present]
            views = {tag: image_text_pairs(data.corpus, [tag]) for tag in languages}
            add = self._with_image_features
        else:
            pairs = data.pairs or [(tag, native) for tag in self.languages if tag in present]
            if any(other != native for _, other in pairs):
                raise ValueError(f"a language is acquired from its translations into {native!r}, not from {pairs}")
            views = {tag: translation_pairs(data.corpus, [(tag, native)]) for tag, _ in pairs}
            add = self._with_teacher_features
        if not views:
            raise ValueError(f"{task}: the data has no text in {', '.join(self._captioned)}, only in {list(present)}")
        if self.args.trainable == "acquirers" and self.args.cache_frozen_features:
            with self.args.main_process_first(desc="frozen features"):
                views = add(views)
        return GroupedView(views, one_at_a_time=not self.args.mix_languages)

    # ---- Frozen features ----

    def _with_teacher_features(self, views: dict[str, CorpusView]) -> dict[str, SizedView]:
        """Native texts' features beside the texts, computed once for every text that there is."""
        native = self._embedder.model.config.native_language
        texts = {tag: [example["text_b"] for example in view.__getitems__(range(len(view)))] for tag, view in views.items()}
        distinct = list(dict.fromkeys(text for column in texts.values() for text in column))
        features = self._frozen(
            lambda: self._embedder.encode_text(distinct, language=native, normalize=False),
            [text.encode() for text in distinct],
            without="vision_model",
        )
        place = {text: number for number, text in enumerate(distinct)}
        return {
            tag: FeatureView(view, "paired_text_features", features, np.array([place[text] for text in texts[tag]]))
            for tag, view in views.items()
        }

    def _with_image_features(self, views: dict[str, CorpusView]) -> dict[str, SizedView]:
        """Pictures' features in their place."""
        pictures = next(iter(views.values())).pictures
        features = self._frozen(
            lambda: self._embedder.encode_image(pictures, normalize=False),
            [pictures.encoded(row) for row in range(len(pictures))],
            without="text_model",
        )
        return {
            tag: FeatureView(view.without_pictures(), "image_features", features, view.rows)
            for tag, view in views.items()
        }

    def _frozen(self, compute: Any, items: list[bytes], without: str) -> np.ndarray:
        model, processor = self._embedder.model, self._embedder.processor
        reading = [model.config.base_config.to_json_string(), json.dumps(processor.to_dict(), default=str)]
        if without != "text_model":
            reading.append(processor.tokenizer.backend_tokenizer.to_str())
        weights: dict[str, Tensor] = model.native_state_dict()
        return frozen_features(
            compute,
            weights={name: value for name, value in weights.items() if not name.startswith(without)},
            settings="\n".join(reading),
            items=items,
            cache_dir=self.cache_dir,
        )

    def create_optimizer(self, model: nn.Module | None = None) -> Any:
        if not any(parameter.requires_grad for parameter in self.model.parameters()):
            raise ValueError("nothing is to be trained: the model has acquired no language, or its parts are frozen")
        return super().create_optimizer(model)


class FeatureView:
    """A view's examples with one of several features each, as column `name`.

    Args:
        view: the examples [N].
        name: of the column.
        features: [n, d].
        places: which feature each example has [N].
    """

    def __init__(self, view: SizedView, name: str, features: np.ndarray, places: np.ndarray) -> None:
        self.view, self.name, self.features, self.places = view, name, features, places

    def __len__(self) -> int:
        return len(self.view)

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        examples = self.view.__getitems__(indices)
        chosen = self.features[self.places[indices]]
        return [example | {self.name: feature} for example, feature in zip(examples, chosen, strict=True)]
