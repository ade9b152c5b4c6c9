"""MLA's configuration (Zhang et al. 2022): a frozen dual encoder, the languages it acquired, and what they share.

The defaults are the paper's: CLIP ViT-B/32, five languages beside English, acquirers of width 256, M-BERT's vocabulary
(sections 3.2 and 4.1).
"""

from huggingface_hub.dataclasses import strict

from .configuration_mla_base import MlaBaseConfig


@strict
class MlaConfig(MlaBaseConfig):
    """`languages` stand in the order in which they were acquired; `language_ids` are places in `known_languages`.

    Args, beside `MlaBaseConfig`'s:
        vocab_size: Of the vocabulary that the acquired languages share.
        embedding_size: Width of its table.
        sep_token_id: Its [SEP], at which texts end and whose state is pooled.
        train_embedding: Whether table and projection are trained together with the acquirers, as in the paper. Frozen,
            they stay what they are for the languages acquired before.
    """

    model_type = "mla"
    auto_classes = ("AutoConfig",)

    vocab_size: int = 119_547
    embedding_size: int = 768
    sep_token_id: int = 102
    train_embedding: bool = True

    def __post_init__(self, **kwargs: object) -> None:
        for name in ("vocab_size", "embedding_size"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}={getattr(self, name)} must be positive")
        if not 0 <= self.sep_token_id < self.vocab_size:
            raise ValueError(f"sep_token_id={self.sep_token_id} is not in a vocabulary of {self.vocab_size}")
        super().__post_init__(**kwargs)


__all__ = ["MlaConfig"]
