"""Configuration of a `RidgeModel`: regression from characters and encoder features to a dual encoder's embeddings."""

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from .configuration_mla import MlaBaseConfig
from .configuration_two_tower import TextPooling, check_positive


@strict
class VectorSpaceConfig(PreTrainedConfig):
    """Configuration of a `VectorSpaceModel`: the width of the vectors, and the name of their table or model."""

    model_type = "vector_space"

    projection_dim: int = 512
    source: str = ""


if VectorSpaceConfig.model_type not in CONFIG_MAPPING:
    AutoConfig.register(VectorSpaceConfig.model_type, VectorSpaceConfig)


@strict
class RidgeConfig(MlaBaseConfig):
    """Configuration of a `RidgeModel`; of `MlaBaseConfig`, only the native model and the languages apply.

    Args:
        text_config, text_pooling, text_prompt: As in `TwoTowerConfig`, for the frozen text encoder that also reads the
            languages; with `text_config=None`, the model reads only characters.
        ngram_rows: Number of rows into which the character n-grams of each language are hashed.
        rank: Number of predicted directions of the embeddings; at most their width.
        gloss_weights: Weights of the native embedding of the word-by-word translation, relative to the predicted
            direction: one for the shared map, then one for each language. Empty without glossaries.
    """

    model_type = "ridge"
    auto_classes = ("AutoConfig",)

    languages: list[str] | tuple[str, ...] = ()
    text_config: dict | PreTrainedConfig | None = None
    text_pooling: TextPooling = "cls"
    text_prompt: str = ""
    ngram_rows: int = 8192
    shortest_ngram: int = 2
    longest_ngram: int = 5
    rank: int = 192
    gloss_weights: list[float] | tuple[float, ...] = ()

    def __post_init__(self, **kwargs: object) -> None:
        check_positive(self, "ngram_rows", "rank", "shortest_ngram")
        if self.shortest_ngram > self.longest_ngram:
            raise ValueError(f"longest_ngram={self.longest_ngram} must be at least shortest_ngram")
        if len(self.gloss_weights) not in (0, 1 + len(self.languages)):
            raise ValueError(f"{len(self.languages)} languages need one more gloss_weights than that")
        if isinstance(self.text_config, dict):
            self.text_config = AutoConfig.for_model(**self.text_config)
        super().__post_init__(**kwargs)
        self.rank = min(self.rank, self.projection_dim)


__all__ = ["RidgeConfig", "VectorSpaceConfig"]
