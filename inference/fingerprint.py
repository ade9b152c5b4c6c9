"""The fingerprint of a dual encoder and its processor is the model's identity; indexes and shards have it by this
name."""

from ..configuration.identity import model_identity as image_fingerprint

__all__ = ["image_fingerprint"]
