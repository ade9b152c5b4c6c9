"""MLA's configuration (Zhang et al. 2022): a frozen dual encoder, the languages it acquired, and what they share.

The defaults are the paper's: CLIP ViT-B/32, five languages beside English, acquirers of width 256, M-BERT's vocabulary
(sections 3.2 and 4.1).
"""

from typing import ClassVar, Literal

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, PreTrainedConfig
from transformers.configuration_utils import SubConfigSpec

from .hub_code import HubCodeMixin
from .languages import normalize_language
from .strict_config import StrictConfig


@strict
class MlaConfig(HubCodeMixin, StrictConfig):
    """
    Args:
        base_config: The dual encoder that acquires languages, by default CLIP ViT-B/32; a dict names its `model_type`
            (`clip`, `siglip`, `align`, `mural`).
        native_language: What the dual encoder reads without acquirers.
        languages: The acquired languages, in the order in which they were acquired; `language_ids` count from 1 in
            this order, and 0 is native.
        acquirer: `mlp`, or `linear`, one matrix (table 1).
        acquirer_size: Width of the hidden layer of `mlp` acquirers.
        vocab_size: Of the vocabulary that the acquired languages share.
        embedding_size: Width of its table.
        sep_token_id: Its [SEP], at which texts end and whose state is pooled.
        train_embedding: Whether table and projection are trained together with the acquirers, as in the paper. Frozen,
            they stay what they are for the languages acquired before.
        text_text_objective: `mse` between un-normalised features (native language transfer, section 3.3), or `nce`
            (table 3).
        image_text_objective: `nce` (language exposure, section 3.3), or `mse` (table 3).
        logit_scale: What multiplies the cosines in `nce` while the native model is frozen (section 3.3).
    """

    model_type = "mla"
    auto_classes = ("AutoConfig",)
    sub_configs_defaults: ClassVar[dict[str, SubConfigSpec]] = {
        "base_config": SubConfigSpec(config_class=AutoConfig, model_type="clip", init_kwargs={})
    }

    base_config: dict | PreTrainedConfig | None = None
    native_language: str = "en"
    languages: list[str] | tuple[str, ...] = ("de", "fr", "cs", "zh", "ja")
    acquirer: Literal["mlp", "linear"] = "mlp"
    acquirer_size: int = 256
    vocab_size: int = 119_547
    embedding_size: int = 768
    sep_token_id: int = 102
    train_embedding: bool = True
    text_text_objective: Literal["mse", "nce"] = "mse"
    image_text_objective: Literal["nce", "mse"] = "nce"
    logit_scale: float | int = 100.0

    def __post_init__(self, **kwargs: object) -> None:
        self.native_language = normalize_language(self.native_language)
        self.languages = [normalize_language(language) for language in self.languages]
        for language in self.languages:
            if self.languages.count(language) > 1:
                raise ValueError(f"languages={self.languages} names {language!r} twice")
        if self.native_language in self.languages:
            raise ValueError(f"{self.native_language!r} is the native language: there is nothing to acquire")
        for name in ("acquirer_size", "vocab_size", "embedding_size", "logit_scale"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}={getattr(self, name)} must be positive")
        if not 0 <= self.sep_token_id < self.vocab_size:
            raise ValueError(f"sep_token_id={self.sep_token_id} is not in a vocabulary of {self.vocab_size}")
        super().__post_init__(**kwargs)

    @property
    def known_languages(self) -> list[str]:
        """The native language and the acquired ones; `language_ids` are places in this list."""
        return [self.native_language, *self.languages]


__all__ = ["MlaConfig"]
