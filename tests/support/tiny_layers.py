from typing import Any


def encoder_decoder(width: int = 16, *, ffn: int = 32, layers: int = 1, **more: Any) -> dict[str, Any]:
    """The settings of both sides of a BART, mBART, M2M-100 or RC3, with two heads, and `more`."""
    sizes = {"layers": layers, "attention_heads": 2, "ffn_dim": ffn}
    sides = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in sizes.items()}
    return {"d_model": width} | sides | more
