from typing import Any

# Two stages of an EfficientNet. All seven, as narrow as a test needs them, magnify rounding errors a thousandfold.
TINY_VISION = {
    "image_size": 32,
    "width_coefficient": 1.0,
    "depth_coefficient": 1.0,
    "kernel_sizes": [3, 3],
    "in_channels": [32, 16],
    "out_channels": [16, 24],
    "depthwise_padding": [],
    "strides": [1, 2],
    "num_block_repeats": [1, 1],
    "expand_ratios": [1, 6],
}


def encoder_decoder(width: int = 16, *, ffn: int = 32, layers: int = 1, **more: Any) -> dict[str, Any]:
    """The settings of both sides of a BART, mBART, M2M-100 or RC3, with two heads, and `more`."""
    sizes = {"layers": layers, "attention_heads": 2, "ffn_dim": ffn}
    sides = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in sizes.items()}
    return {"d_model": width} | sides | more
