import torch


def block(name: str, width: int, generator: torch.Generator) -> dict[str, torch.Tensor]:
    shapes = {"attn.in_proj_weight": (3 * width, width), "attn.in_proj_bias": (3 * width,)}
    layers = {"attn.out_proj": (width, width), "mlp.c_fc": (4 * width, width), "mlp.c_proj": (width, 4 * width)}
    shapes |= {f"{layer}.weight": shape for layer, shape in layers.items()}
    shapes |= {f"{layer}.bias": shape[:1] for layer, shape in layers.items()}
    shapes |= {f"ln_{number}.{part}": (width,) for number in (1, 2) for part in ("weight", "bias")}
    return {f"{name}.{part}": torch.randn(*shape, generator=generator) / 4 for part, shape in shapes.items()}


def text_tower(width: int, space: int, words: int, positions: int, *, blocks: int = 1) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    weights = {}
    for number in range(blocks):
        weights |= block(f"transformer.resblocks.{number}", width, generator)
    shapes = {"token_embedding.weight": (words, width), "positional_embedding": (positions, width)}
    shapes |= {"ln_final.weight": (width,), "ln_final.bias": (width,), "text_projection": (width, space)}
    weights |= {name: torch.randn(*shape, generator=generator) for name, shape in shapes.items()}
    return weights | {"logit_scale": torch.tensor(4.0)}
