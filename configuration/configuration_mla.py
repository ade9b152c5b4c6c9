"""Configuration of MLA (Zhang et al. 2022): a frozen dual encoder, the languages it acquired, and what these share.

The defaults are the paper's: CLIP ViT-B/32, five languages beside English, acquirers of width 256, and M-BERT's
vocabulary (sections 3.2 and 4.1).
"""

from huggingface_hub.dataclasses import strict

from .configuration_mla_base import MlaBaseConfig
from .text_towers import declared_text_tower


@strict
class MlaConfig(MlaBaseConfig):
    """Configuration of an `MlaModel`.

    `languages` are in the order in which they were acquired. A `language_id` is an index into `known_languages`: 0 for
    the native language, k for the k-th acquired one.

    The arguments of `MlaBaseConfig` are accepted too.

    Args:
        vocab_size: Size of the vocabulary that the acquired languages share.
        embedding_size: Width of the embedding table of that vocabulary.
        sep_token_id: Id of the token that ends every text in that vocabulary: BERT's [SEP], XLM-R's </s>. A native
            model that pools at its end-of-text token pools the state of this one.
        train_embedding: Whether the embedding table and its projection are trained together with the acquirers, as in
            the paper. If they stay frozen, earlier languages are not changed by later ones.
        text_tower: Where the native model has the parts of its text tower, for a kind that MLA does not support by
            itself: `path`, `embeddings`, `blocks` and `pooling`, as in `TextTower`.

    Raises:
        LanguageTagError: if a tag names no language.
        ModelKindError: if `text_tower` is incomplete.
        ValueError: if a key is unknown, or a value is impossible.

    Examples:
        >>> config = MlaConfig(base_config=CLIPConfig(), languages=["de", "uk"])
        >>> model = MlaModel(config)
    """

    model_type = "mla"
    auto_classes = ("AutoConfig",)

    vocab_size: int = 119_547
    embedding_size: int = 768
    sep_token_id: int = 102
    train_embedding: bool = True
    text_tower: dict[str, str] | None = None

    def __post_init__(self, **kwargs: object) -> None:
        for name in ("vocab_size", "embedding_size"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}={getattr(self, name)} must be positive")
        if not 0 <= self.sep_token_id < self.vocab_size:
            raise ValueError(f"sep_token_id={self.sep_token_id} is not in a vocabulary of {self.vocab_size}")
        if self.text_tower is not None:
            declared_text_tower(self.text_tower)
        super().__post_init__(**kwargs)


__all__ = ["MlaConfig"]
