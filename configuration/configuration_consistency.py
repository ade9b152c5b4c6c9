"""Configuration of SMALR's cross-lingual consistency (Burns et al. 2020, section 3.4), by default the paper's CLC-C:
ten languages and 32 hidden units, 352 parameters."""

from typing import Literal

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from ..utils.hub_mixin import HubCodeMixin
from ..utils.languages import normalize_languages
from .configuration_two_tower import check_positive


@strict
class CrossLingualConsistencyConfig(HubCodeMixin, PreTrainedConfig):
    """Configuration of `CrossLingualConsistency`, which combines the scores of a query and its translations: by their
    `mean` (CLC-A, no parameters) or by an `mlp` (CLC-C), whose initial weights `seed` determines. `languages` are
    BCP-47 tags in the order of the score matrices."""

    model_type = "cross_lingual_consistency"
    auto_classes = ("AutoConfig",)

    languages: list[str] | tuple[str, ...] = ("en", "de", "fr", "cs", "zh", "ja", "ar", "af", "ko", "ru")
    aggregation: Literal["mean", "mlp"] = "mlp"
    hidden_size: int = 32
    seed: int = 0

    def __post_init__(self, **kwargs: object) -> None:
        given, self.languages = self.languages, normalize_languages(self.languages)
        if not given or len(given) != len(self.languages):
            raise ValueError(f"languages={list(given)}: name at least one language, and each only once")
        check_positive(self, "hidden_size")
        super().__post_init__(**kwargs)
