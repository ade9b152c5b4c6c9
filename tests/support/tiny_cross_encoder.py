"""An untrained `Rc3ForImageTextRetrieval` for images, for regions or for both, with its processor."""

from collections.abc import Iterable

import torch
from transformers import AutoImageProcessor, AutoProcessor

from babelens import Rc3Config, Rc3ForImageTextRetrieval
from babelens.processing.image_processing_mural import MuralImageProcessor
from babelens.processing.processing_rc3 import Rc3Processor, square_image_processor
from babelens.processing.tokenizer_training import train_bpe
from tests.support.tiny_layers import encoder_decoder


def tiny_cross_encoder(
    texts: Iterable[str], languages: list[str], *, visual: str = "patches", region_size: int = 6
) -> tuple[Rc3ForImageTextRetrieval, Rc3Processor]:
    """The same at every call; its initial weights are wide, so scores depend on the inputs."""
    AutoProcessor.register(Rc3Config, Rc3Processor, exist_ok=True)
    AutoImageProcessor.register(Rc3Config, image_processor_classes={"pil": MuralImageProcessor}, exist_ok=True)
    tokenizer, regions = train_bpe(texts, 400, min_frequency=1), {"region_size": region_size, "max_regions": 5}
    processor = Rc3Processor.new(tokenizer, languages, square_image_processor(16), **regions)
    sizes = encoder_decoder(patch_width=16, image_size=16, patch_size=8, max_position_embeddings=128)
    torch.manual_seed(0)
    config = Rc3Config(**sizes, init_std=0.5, visual=visual, **processor.config_fields())
    return Rc3ForImageTextRetrieval(config).eval(), processor
