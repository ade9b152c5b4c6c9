"""transformers' pipelines `feature-extraction`, with a language, and `image-feature-extraction`: embeddings.

    embed = pipeline("feature-extraction", model="runs/mural")
    embed(["ein rotes Auto", "un chien"], language=["de", "fr"], batch_size=32)  # [[[0.03, …]], [[…]]]
    embed(["ein rotes Auto", "un chien"], language=["de", "fr"], task="text_text")  # where MURAL compares texts
    pipeline("image-feature-extraction", model="runs/mural")(["a.jpg", "b.jpg"], batch_size=32)

Each text and image has one vector of unit length, [1, d] as a nested list, or as a tensor with `return_tensors=True`.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.pipelines.feature_extraction import FeatureExtractionPipeline
from transformers.pipelines.image_feature_extraction import ImageFeatureExtractionPipeline

from ..configuration.configuration_two_tower import head_of_task
from ..modeling.modeling_dual_encoder import as_output, normalize
from ..processing.text_inputs import default_language, takes_language
from ..utils.errors import InputError, ModelFolderError
from ..utils.languages import language_for_each
from .pipeline_inputs import Rows, as_rows, fetched, stated


class MultilingualFeatureExtractionPipeline(FeatureExtractionPipeline):
    """Embeds texts in any language.

    It takes what transformers' pipeline takes, and `language`: the BCP-47 tag of all texts, or a list with one tag for
    each. Items of data sets and generators may be `{"text": "…", "language": "de"}`. Texts are prepared by the model's
    own processor, in batches: MLA reads acquired languages, SMALR and LIWE read words, and prompts such as E5's are
    not left out. A language may be left out as in `Embedder.encode_text`. For models whose processor reads no language
    it is transformers' own pipeline. `task` chooses the head of a model that has one for each task.
    """

    hub_task: ClassVar[tuple[str, str]] = ("feature-extraction", "AutoModel")
    _load_processor = None  # where the model has one
    _load_tokenizer = None  # models of words have none
    tokenizer: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not callable(self.tokenizer):  # a word processor's `tokenizer` has only ids
            self.tokenizer = None
        if self.tokenizer is None and not takes_language(self.processor):
            raise ModelFolderError("feature-extraction needs the tokenizer or the processor of the model")

    def __call__(self, inputs: Any, *, language: str | list[str] | None = None, **kwargs: Any) -> Any:
        """The embeddings of a text, or of each text of a list, a data set or a generator: [1, d] for each, as nested
        lists or as a tensor.

        Args:
            language: the tag of all texts or, for a list of texts, a list with one tag for each.
            kwargs: `task`, the head of a model that has one for each task: MURAL's `"text_text"` gives the space in
                which it compares texts with texts, and by default texts are in the space of the images; and what
                transformers' pipeline takes, with `tokenize_kwargs` for the processor.
        """
        if language is None or isinstance(language, str):
            return super().__call__(inputs, **kwargs, **({} if language is None else {"language": language}))
        if not isinstance(inputs, list):
            raise InputError("a list of languages needs a list of texts; other items name theirs by {'language': …}")
        tags = language_for_each(language, len(inputs))
        rows = [{"text": text, "language": tag} for text, tag in zip(inputs, tags, strict=True)]
        return super().__call__(rows, **kwargs)

    def _sanitize_parameters(
        self, language: str | None = None, task: str | None = None, **given: Any
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        of_texts, _, postprocessing = super()._sanitize_parameters(**given)
        tokenizing = {"tokenize_kwargs": of_texts} if of_texts else {}
        forward = tokenizing | ({"head": head} if (head := head_of_task(self.model, task)) else {})
        return tokenizing | ({} if language is None else {"language": language}), forward, postprocessing

    def preprocess(
        self, inputs: Any, language: str | None = None, tokenize_kwargs: dict[str, Any] | None = None
    ) -> Any:
        """A text with its language, for the processor; or a model's inputs where the processor reads no language."""
        if isinstance(inputs, Mapping):
            inputs, language = inputs["text"], stated(inputs, "language", language)
        if language is not None:
            (language,) = language_for_each(language, 1)
        if takes_language(self.processor):
            return {"text": inputs, "language": language or default_language(self.processor)}
        return super().preprocess(inputs, **tokenize_kwargs or {})

    def _forward(
        self, model_inputs: Rows, tokenize_kwargs: dict[str, Any] | None = None, head: dict[str, str] | None = None
    ) -> Any:
        if "language" in model_inputs:
            rows = as_rows(model_inputs)
            model_inputs = self.processor(**rows, return_tensors="pt", **tokenize_kwargs or {}).to(self.device)
        if head:
            features = as_output(self.model.get_text_features(**model_inputs, **head)).pooler_output
            return BaseModelOutputWithPooling(pooler_output=normalize(features))
        return _embeddings_alone(super()._forward(model_inputs))


class ImageEmbeddingPipeline(ImageFeatureExtractionPipeline):
    """Embeds images, which the model's own processor opens: transparency lies on white, as in training.

    It takes what transformers' pipeline takes, which it is for models without a processor of babelens.
    """

    hub_task: ClassVar[tuple[str, str]] = ("image-feature-extraction", "AutoModel")
    _load_processor = None  # where the model has one

    def preprocess(self, image: Any, timeout: float | None = None, **image_processor_kwargs: Any) -> Any:
        """The model's inputs."""
        if not takes_language(self.processor):
            return super().preprocess(image, timeout=timeout, **image_processor_kwargs)
        images = [fetched(image, timeout)]
        return self.processor(images=images, return_tensors="pt", **image_processor_kwargs).to(self.dtype)

    def _forward(self, model_inputs: Rows) -> Any:
        return _embeddings_alone(super()._forward(model_inputs))


def _embeddings_alone(output: Any) -> Any:
    """A dual encoder's embeddings [N, d], without what cannot be divided into rows, such as the temperature; another
    model's output unchanged."""
    found = [output.get(name) for name in ("text_embeds", "image_embeds") if output.get(name) is not None]
    return BaseModelOutputWithPooling(pooler_output=found[0]) if len(found) == 1 else output
