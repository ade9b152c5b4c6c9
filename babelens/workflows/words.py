"""Recipes of methods that learn from the words of texts in several languages, and from a backbone's features of
images: what those of SMALR and LIWE share."""

from functools import cached_property
from typing import Any

from transformers import PreTrainedConfig, PreTrainedModel, ProcessorMixin

from ..configuration.presets import load_preset
from ..configuration.tasks import IMAGE_TEXT
from ..data.batching.captioned_images import CaptionedImages
from ..inference.backbones import load_backbone
from .base import RecipeRun
from .recipe import Stage, WordsSource


class WordDualEncoderRun(RecipeRun):
    """`words` says how texts are read, `backbone` whose vision tower sees the images."""

    in_pipelines = False
    sections_of_new = ("image", "words", "backbone")

    @cached_property
    def languages(self) -> list[str]:
        return self.recipe.model.overrides.get("languages") or self.image_languages

    def count_examples(self, task: str, stage: Stage) -> int | None:
        data = self._task_data(task, stage)
        return len(CaptionedImages(data.corpus, data.languages, with_images=task == IMAGE_TEXT))

    @property
    def readable_languages(self) -> list[str] | None:
        return self.languages

    @property
    def _words(self) -> WordsSource:
        return self.recipe.words or WordsSource()

    def vocabulary(self, processor: ProcessorMixin) -> ProcessorMixin:
        return processor

    def _preset(self, **words: Any) -> PreTrainedConfig:
        """The recipe's configuration, with the backbone's; `words` are not the recipe's to say."""
        source = self.recipe.model
        vision = {"vision_config": self._backbone.config} if self._backbone is not None else self._feature_size
        return load_preset(source.preset or "", **vision | source.overrides | words)

    @property
    def _feature_size(self) -> dict[str, int]:
        """The width of the features that a corpus has in the place of images."""
        corpus = self.corpora[IMAGE_TEXT]
        if "features" not in corpus.column_names:
            return {}
        return {"image_feature_size": len(corpus[0]["features"])}

    @cached_property
    def _backbone(self) -> Any | None:
        return None if self.recipe.backbone is None else load_backbone(self.recipe.backbone, **self.code)

    def _with_backbone(self, model: Any) -> PreTrainedModel:
        if model.vision_model is not None and self._backbone is not None:
            model.vision_model.load_state_dict(self._backbone.state_dict())
        return model
