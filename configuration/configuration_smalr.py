"""SMALR's configuration (Burns et al. 2020), and by it that of the family that the paper compares it with.

    SMALR              the defaults
    HEM                mask_weight=0
    LA                 specific_words=0
    MULE               specific_words=None, mask_weight=0
    EmbN               MULE with adversarial_weight=0, trained on one language
    PAR-EmbN           EmbN with language_branches=True, trained on several
    dictionary mapping MULE with dictionary_words, which says how many words have no embedding of their own

Frequency thresholds are a matter of the vocabularies, PCA reduction of `word_size`.
"""

from typing import ClassVar

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, PreTrainedConfig

from .hub_code import HubCodeMixin
from .languages import normalize_languages
from .strict_config import StrictConfig

SMALR_LANGUAGES = ("en", "de", "fr", "cs", "zh", "ja", "ar", "af", "ko", "ru")

# The first ids in the vocabulary of every language; known words follow from `SPECIAL_IDS` on.
PADDING_ID, MASK_ID, UNKNOWN_ID = 0, 1, 2
SPECIAL_IDS = 3


@strict
class SmalrConfig(HubCodeMixin, StrictConfig):
    """
    Args:
        languages: Languages of texts, in the order of their ids.
        vocabulary_sizes: Words of each language's vocabulary, by falling frequency (default: 10 000 each).
        word_size: Width of the word vectors, FastText's after a principal component analysis (section 3.1).
        specific_words: How many of each language's most frequent words have an embedding of their own, a projection of
            their word vector (K in section 3.1); `None`: all.
        dictionary_words: How many words at the end of each language's vocabulary have the embedding of another word,
            which a dictionary gives for them (section 4); all others must have their own. Default: none.
        latent_tokens: Size of the vocabulary that the languages share, whose tokens embed all other words.
        exploration_tokens: M, and ...
        exploration_probability: p of section 3.1: while words are assigned to latent tokens, with probability p one of
            the M best is drawn instead of the best.
        hidden_size: Width of the universal word embeddings, of the sentence encoder, and of the shared space.
        language_branches: A sentence encoder and an output layer for each language.
        vision_config: A transformers vision backbone for training on pixels; `None`: images are given as features.
        image_feature_size: Width of the images' features; with a backbone, its own.
        image_hidden_size: Width of the image branch's first layer.
        image_dropout: After that layer.
        temperature: Divides the cosines in `logits_per_image`; of no effect on training.
        triplet_margin: m of equation 1.
        triplet_violations: N: of an anchor's triplets, that many of the most violated are learned from.
        sentence_weight: lambda 1 of equation 3.
        mask_weight, adversarial_weight, neighbourhood_weight: lambda 2 to 4 of equation 4.
        mask_probability: Share of a sentence's words that is masked (section 3.2).
        compressed: Whether the universal embedding of every word stands in a table, computed once (`compress`).
        initializer_range: Standard deviation of the normal initialisation of embeddings.
    """

    model_type = "smalr"
    auto_classes = ("AutoConfig",)
    sub_configs: ClassVar[dict[str, type[PreTrainedConfig]]] = {"vision_config": AutoConfig}
    attribute_map: ClassVar[dict[str, str]] = {"projection_dim": "hidden_size"}

    languages: list[str] | tuple[str, ...] = SMALR_LANGUAGES
    vocabulary_sizes: list[int] | tuple[int, ...] = ()
    word_size: int = 50
    specific_words: int | None = 5000
    dictionary_words: list[int] | tuple[int, ...] = ()
    latent_tokens: int = 40_000
    exploration_tokens: int = 20
    exploration_probability: float | int = 0.2
    hidden_size: int = 512
    language_branches: bool = False
    vision_config: dict | PreTrainedConfig | None = None
    image_feature_size: int = 2048
    image_hidden_size: int = 2048
    image_dropout: float | int = 0.5
    temperature: float | int = 0.05
    triplet_margin: float | int = 0.05
    triplet_violations: int = 10
    sentence_weight: float | int = 1.5
    mask_weight: float | int = 1e-4
    adversarial_weight: float | int = 1e-6
    neighbourhood_weight: float | int = 5e-2
    mask_probability: float | int = 0.2
    compressed: bool = False
    initializer_range: float | int = 0.02

    def __post_init__(self, **kwargs: object) -> None:
        self.languages = normalize_languages(list(self.languages))
        self.vocabulary_sizes = list(self.vocabulary_sizes) or [10_000] * len(self.languages)
        if len(self.vocabulary_sizes) != len(self.languages):
            raise ValueError(
                f"{len(self.languages)} languages need as many vocabulary_sizes, not {len(self.vocabulary_sizes)}"
            )
        self.dictionary_words = list(self.dictionary_words) or [0] * len(self.languages)
        if len(self.dictionary_words) != len(self.languages) or any(
            not 0 <= words <= size for words, size in zip(self.dictionary_words, self.vocabulary_sizes, strict=False)
        ):
            raise ValueError(
                f"dictionary_words={self.dictionary_words} must be a number for each language, of the words of its "
                f"vocabulary ({self.vocabulary_sizes})"
            )
        if any(self.dictionary_words) and (self.specific_words is not None or self.latent_tokens):
            raise ValueError(
                "dictionary_words need a model whose other words have embeddings of their own: "
                "specific_words=None and latent_tokens=0"
            )
        if (
            self.specific_words is not None
            and self.specific_words < max(self.vocabulary_sizes)
            and not self.latent_tokens
        ):
            raise ValueError("words without an embedding of their own (specific_words) need latent_tokens")
        for name in ("exploration_probability", "mask_probability", "image_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} is a probability below 1")
        for name in ("temperature", "triplet_violations"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}={getattr(self, name)} must be positive")
        if isinstance(self.vision_config, dict):
            self.vision_config = AutoConfig.for_model(**self.vision_config)
        super().__post_init__(**kwargs)

    @property
    def specific_sizes(self) -> list[int]:
        """How many words of each language have an embedding of their own."""
        if self.specific_words is not None:
            return [min(size, self.specific_words) for size in self.vocabulary_sizes]
        return [size - words for size, words in zip(self.vocabulary_sizes, self.dictionary_words, strict=True)]


__all__ = ["SmalrConfig"]
