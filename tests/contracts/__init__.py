# ruff: noqa: F401
"""Contracts that a method's test classes inherit. A method needs a fixture that builds a tiny model and its processor,
the same at every call: `factory(**options) -> (model in eval mode, processor)`.

    class TestSmalr(ConfigContract, DualEncoderContract, ProcessorContract, PublishingContract):
        factory = "make_smalr"

A class may add `options` for the factory, `training_batches` for other tasks, and the attributes below.
"""

from .common import (
    CAPTIONS,
    LANGUAGES,
    TEXTS,
    assert_equal,
    drawn_images,
    embeddings,
    image_text_batch,
    split,
    translation_batch,
)
from .configurations import ConfigContract
from .dual_encoders import DualEncoderContract
from .exports import BATCH, Called, check_compiled, check_export
from .loading import LoadingContract
from .processors import ProcessorContract
from .publishing import PublishedModelContract, PublishingContract
from .visio_texts import TINY_RC3, answers, visio_textual_batch
