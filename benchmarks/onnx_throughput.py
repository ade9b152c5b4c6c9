"""Texts and images per second of ONNX graphs in onnxruntime, compared with the same towers in torch.

    python benchmarks/onnx_throughput.py

The towers have random weights and the shapes of CLIP ViT-B/32, and of multilingual MiniLM's text tower (six layers of
width 384), in float32 and with weights of 8 bits. The times are the processor's, which other work on the machine
disturbs less, without reading images and tokenizing. Batches of one are queries as they come.
"""

import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import onnxruntime
import torch
import typer
from torch import Tensor, nn
from transformers import BertConfig, CLIPConfig, CLIPModel
from turns import Step, by_turns, quartiles

from babelens import MuralConfig, MuralModel
from babelens.inference.onnx.export import Tower, convert, write_graph
from babelens.inference.onnx.model import open_graph

PRECISIONS = ("fp32", "int8")
SMALL_TEXT = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
# The smallest possible image tower; it is not timed.
NO_IMAGES = {"image_size": 32, "kernel_sizes": [3], "in_channels": [32], "out_channels": [16], "depthwise_padding": []}
NO_IMAGES |= {"strides": [1], "num_block_repeats": [1], "expand_ratios": [1], "hidden_dim": 384}


def main(
    batch_sizes: Annotated[str, typer.Option(help="Comma-separated list.")] = "1,16",
    tokens: Annotated[int, typer.Option(help="Number of tokens of each text.")] = 16,
    rounds: Annotated[int, typer.Option(help="Number of rounds.")] = 7,
) -> None:
    """Print a table of rates, and of their ratios to torch."""
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, onnxruntime {onnxruntime.__version__}, {tokens} tokens\n")
    print("| tower, batch | torch, per second of a core | onnxruntime fp32 / torch | onnxruntime int8 / torch |")
    print("|---|---|---|---|")
    torch.manual_seed(0)
    clip = CLIPModel(CLIPConfig()).eval()
    config = MuralConfig(text_config=BertConfig(**SMALL_TEXT), vision_config=NO_IMAGES, image_head=True)
    small = MuralModel(config).eval()
    towers: list[tuple[str, nn.Module, str]] = [
        ("CLIP ViT-B/32, images", clip, "image"),
        ("CLIP ViT-B/32, texts", clip, "text"),
        ("6 layers of width 384, texts", small, "text"),
    ]
    for title, model, tower in towers:
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            sessions = graphs(model, tower, Path(folder), tokens)
            for size in map(int, batch_sizes.split(",")):
                inputs = made(tower, size, tokens)
                arrays = {name: value.numpy() for name, value in inputs.items()}
                steps: dict[str, Step] = {"torch": partial(Tower(model, tower), inputs)}
                steps |= {name: partial(session.run, None, arrays) for name, session in sessions.items()}
                taken = by_turns(steps, rounds, time.process_time)
                cells = [quartiles(taken["torch"] / taken[name]) for name in PRECISIONS]
                rate = size / np.median(taken["torch"])
                print(f"| {title}, {size} | {rate:.1f} | {' | '.join(cells)} |", flush=True)


def graphs(model: nn.Module, tower: str, folder: Path, tokens: int) -> dict[str, onnxruntime.InferenceSession]:
    traced, paths = made(tower, 2, tokens), {name: folder / f"{name}.onnx" for name in PRECISIONS}
    write_graph(model, tower, traced, paths["fp32"])
    convert(paths["fp32"], paths["int8"], "int8")
    return {name: open_graph(path) for name, path in paths.items()}


def made(tower: str, size: int, tokens: int) -> dict[str, Tensor]:
    if tower == "image":
        return {"pixel_values": torch.randn(size, 3, 224, 224)}
    ids = torch.randint(3, 30000, (size, tokens))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


if __name__ == "__main__":
    typer.run(main)
