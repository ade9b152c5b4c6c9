"""Configuration of MLA's two baselines: a multilingual student beside a frozen dual encoder (Zhang et al. 2022, tables
4 and 7).

The defaults are the paper's: M-BERT as the text encoder beside CLIP ViT-B/32.
"""

from typing import ClassVar, Literal

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, PreTrainedConfig
from transformers.configuration_utils import SubConfigSpec

from .configuration_mla_base import MlaBaseConfig
from .configuration_two_tower import TextPooling, check_text_head

M_BERT = {"vocab_size": 119_547}  # bert-base-multilingual-cased


@strict
class MlaStudentConfig(MlaBaseConfig):
    """Configuration of an `MlaStudentModel`.

    The arguments of `MlaBaseConfig` are accepted too; `acquirer` and `acquirer_size` matter for `acquisition` only.

    Args:
        text_config: Configuration of the student's text encoder, any of transformers: BERT, XLM-R, mT5's encoder. A
            dictionary may name its `model_type`; the default is `bert`.
        strategy: `distillation` trains the whole student (MKD, table 7). `acquisition` freezes its text encoder and
            trains cross-modal acquirers after each of its blocks (CMA, table 4). `projection` freezes its text encoder
            and trains the projection alone.
        text_pooling: How one vector is read from the states of a text: `cls`, the first token's; `mean`, the mean over
            its tokens (E5); `eos`, the last token's; `pooler`, the encoder's own pooling layer.
        text_prompt: What the processor puts before every text that the student reads, such as E5's `"query: "`.
        native_texts: Which text encoder reads texts in the native language: the `student`, which then learns that
            language too, or the `native` model, whose embeddings of them stay bitwise the same.
        text_hidden_size: Width of a hidden layer in the student's projection; by default, the projection is a linear
            layer, as in the paper. With a frozen text encoder, a hidden layer brings languages closer.
        text_layer_norm: Whether the text features are normalized to mean 0 and variance 1 before the projection (a
            layer normalization without weights).
        text_dropout: Probability that a pooled feature of a text is zeroed in training, before the projection; in a
            hidden layer, it applies once more.

    Raises:
        LanguageTagError: if a tag names no language.
        ValueError: if a key is unknown, or a value is impossible.

    Examples:
        >>> config = MlaStudentConfig(languages=["de", "fr"], strategy="acquisition", acquirer_size=64)
        >>> model = MlaStudentModel(config)
    """

    model_type = "mla_student"
    auto_classes = ("AutoConfig",)
    sub_configs_defaults: ClassVar[dict[str, SubConfigSpec]] = {
        **MlaBaseConfig.sub_configs_defaults,
        "text_config": SubConfigSpec(config_class=AutoConfig, model_type="bert", init_kwargs=M_BERT),
    }

    text_config: dict | PreTrainedConfig | None = None
    strategy: Literal["distillation", "acquisition", "projection"] = "distillation"
    text_pooling: TextPooling = "cls"
    text_prompt: str = ""
    native_texts: Literal["student", "native"] = "student"
    text_hidden_size: int | None = None
    text_layer_norm: bool = False
    text_dropout: float | int = 0.0

    def __post_init__(self, **kwargs: object) -> None:
        check_text_head(self)
        super().__post_init__(**kwargs)

    @property
    def learned_languages(self) -> list[str]:
        """The languages that the student reads: all, or all but the native one."""
        return self.known_languages if self.native_texts == "student" else list(self.languages)


__all__ = ["MlaStudentConfig"]
