"""Configuration of SMALR (Burns et al. 2020), and of the methods in the paper's comparison:

    SMALR              the defaults
    HEM                mask_weight=0
    LA                 specific_words=0
    MULE               specific_words=None, latent_tokens=0, mask_weight=0, vector_weight=5e-7
    EmbN               MULE with adversarial_weight=0, trained on one language, without the warm-up
    PAR-EmbN           EmbN with language_branches=True, trained on several languages
    dictionary mapping MULE with dictionary_words, the numbers of words that share the embedding of another word

The vocabularies apply frequency thresholds; `word_size` is the width of the word vectors after PCA.
"""

from typing import ClassVar

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, PreTrainedConfig
from transformers.configuration_utils import SubConfigSpec

from ..utils.languages import normalize_languages
from .configuration_two_tower import DualEncoderConfig, check_positive, check_probabilities

SMALR_LANGUAGES = ("en", "de", "fr", "cs", "zh", "ja", "ar", "af", "ko", "ru")

# The first ids in the vocabulary of every language; known words start at `SPECIAL_IDS`.
PADDING_ID, MASK_ID, UNKNOWN_ID = 0, 1, 2
SPECIAL_IDS = 3


@strict
class SmalrConfig(DualEncoderConfig):
    """Configuration of a `SmalrModel`. It also accepts the arguments of `DualEncoderConfig`; `matryoshka_dims` apply
    to images and whole sentences, but not to word embeddings, which no search compares.

    Args:
        vocabulary_sizes: Number of words of each language, in descending order of frequency; by default 10 000 each.
        vector_size: Width of the vectors that assign latent tokens, 300 in the paper; by default `word_size`.
        specific_words: Number of most frequent words of each language with their own embedding, a projection of their
            word vector (FastText's, after PCA); K in section 3.1, `None` for all words.
        dictionary_words: Number of words at the end of each vocabulary that use the embedding of another word, which a
            dictionary names (section 4); all others must have their own.
        latent_tokens: Number of tokens, shared by all languages, that embed the words without their own embedding.
        exploration_tokens, exploration_probability: M and p in section 3.1, for drawing one of the M best tokens.
        hidden_size: Width of the universal word embeddings, of the sentence encoder, and of the shared space.
        language_branches: Whether each language has its own sentence encoder; neighborhood constraints then apply only
            to the final embeddings, as in PAR-EmbN.
        vision_config, image_feature_size, temperature: As in `LiweConfig`.
        triplet_margin, triplet_violations: m in equation 1, and N in section 3.1.
        sentence_weight, mask_weight, adversarial_weight, neighborhood_weight: lambda_1 to lambda_4 (equations 3, 4).
        vector_weight: Weight of half the squared distance of the word vectors from their initial values, averaged over
            the languages (5e-7 in MULE's code). With 0, as in equation 4, the initial vectors are not kept.
    """

    model_type = "smalr"
    auto_classes = ("AutoConfig",)
    sub_configs_defaults: ClassVar[dict[str, SubConfigSpec]] = {
        "vision_config": SubConfigSpec(AutoConfig, "align_vision_model", optional=True)
    }
    attribute_map: ClassVar[dict[str, str]] = {"projection_dim": "hidden_size"}

    languages: list[str] | tuple[str, ...] = SMALR_LANGUAGES
    vocabulary_sizes: list[int] | tuple[int, ...] = ()
    word_size: int = 50
    vector_size: int | None = None
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
    neighborhood_weight: float | int = 5e-2
    mask_probability: float | int = 0.2
    vector_weight: float | int = 0.0
    compressed: bool = False
    initializer_range: float | int = 0.02

    def __post_init__(self, **kwargs: object) -> None:
        self.languages = normalize_languages(list(self.languages))
        self.vocabulary_sizes = list(self.vocabulary_sizes) or [10_000] * len(self.languages)
        self.dictionary_words = list(self.dictionary_words) or [0] * len(self.languages)
        if not len(self.languages) == len(self.vocabulary_sizes) == len(self.dictionary_words):
            raise ValueError(
                f"{len(self.languages)} languages need as many vocabulary_sizes and dictionary_words, not "
                f"{len(self.vocabulary_sizes)} and {len(self.dictionary_words)}"
            )
        sizes = zip(self.dictionary_words, self.vocabulary_sizes, strict=True)
        if any(not 0 <= words <= size for words, size in sizes):
            raise ValueError(f"dictionary_words={self.dictionary_words} exceed the {self.vocabulary_sizes} words")
        if any(self.dictionary_words) and (self.specific_words is not None or self.latent_tokens):
            raise ValueError("dictionary_words require specific_words=None and latent_tokens=0")
        own = max(self.vocabulary_sizes) if self.specific_words is None else self.specific_words
        if own < max(self.vocabulary_sizes) and not self.latent_tokens:
            raise ValueError("words without their own embedding (specific_words) need latent_tokens")
        names = ("exploration_probability", "mask_probability", "image_dropout")
        check_probabilities(**{name: getattr(self, name) for name in names})
        check_positive(self, "temperature", "triplet_violations")
        super().__post_init__(**kwargs)
        self.check_widths()

    @property
    def specific_sizes(self) -> list[int]:
        """Number of words of each language that have their own embedding."""
        if self.specific_words is not None:
            return [min(size, self.specific_words) for size in self.vocabulary_sizes]
        return [size - words for size, words in zip(self.vocabulary_sizes, self.dictionary_words, strict=True)]
