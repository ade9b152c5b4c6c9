"""Images and texts per second: `Embedder` compared with sentence-transformers and open_clip, on the same CLIP.

    pip install --no-deps -r benchmarks/requirements.txt
    python benchmarks/encoding.py

A CLIP ViT-B/32 with random weights encodes JPEG files and captions to vectors of unit length. All sides take turns in
one process, each with its default batch size (open_clip has none: 64). open_clip's transforms need torchvision, whose
wheels need the CUDA build of torch: this file repeats them with Pillow.
"""

import random
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from unittest.mock import MagicMock

import numpy as np
import torch
import typer
from PIL import Image
from sentence_transformers import SentenceTransformer
from transformers import CLIPConfig, CLIPModel, CLIPProcessor, CLIPTokenizer
from transformers.image_utils import OPENAI_CLIP_MEAN, OPENAI_CLIP_STD
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from turns import Clock, by_turns

from babelens import Embedder

BATCH = 64
Side = Callable[[], object]
WORDS = "a the two red small old dog bicycle street woman water near holding under market mountain with of"


def main(
    images: Annotated[int, typer.Option(help="Number of JPEGs.")] = 500,
    texts: Annotated[int, typer.Option(help="Number of captions.")] = 2000,
    pixels: Annotated[int, typer.Option(help="Longer side of the JPEGs.")] = 640,
    rounds: Annotated[int, typer.Option(help="Number of turns of each side.")] = 5,
    threads: Annotated[int, typer.Option(help="Number of threads of torch.")] = 1,
) -> None:
    """Print items in a second, and the ratios of `Embedder` to the others."""
    torch.set_num_threads(threads)
    print(f"torch {torch.__version__}, {threads} threads\n")
    clock = time.process_time if threads == 1 else time.perf_counter
    with tempfile.TemporaryDirectory() as folder:
        files = write_jpegs(Path(folder, "images"), images, pixels)
        sides = clips(Path(folder, "clip"), files, captions(texts))
        measure("images", images, {name: side for name, (side, _) in sides.items()}, rounds, clock)
        measure("texts", texts, {name: side for name, (_, side) in sides.items()}, rounds, clock)


def measure(what: str, count: int, sides: dict[str, Side], rounds: int, clock: Clock) -> None:
    taken = by_turns(sides, rounds, clock)
    print(f"| {what} | per second | time relative to {next(iter(sides))}'s |\n|---|---|---|")
    own, *_ = taken.values()
    for name, values in taken.items():
        print(f"| {name} | {count / np.median(values):.1f} | {np.median(np.divide(values, own)):.2f} |", flush=True)
    print()


def clips(folder: Path, files: list[Path], texts: list[str]) -> dict[str, tuple[Side, Side]]:
    open_clip = imported_open_clip()
    tokenizer = open_clip.get_tokenizer("ViT-B-32")
    named = {"<start_of_text>": "<|startoftext|>", "<end_of_text>": "<|endoftext|>"}
    vocabulary = {named.get(piece, piece): number for piece, number in tokenizer.encoder.items()}
    merges = [pair for pair, _ in sorted(tokenizer.bpe_ranks.items(), key=lambda item: item[1])]
    torch.manual_seed(0)
    CLIPModel(CLIPConfig()).save_pretrained(folder)
    reader = CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=77)
    CLIPProcessor(CLIPImageProcessorPil(), reader).save_pretrained(folder)
    theirs = SentenceTransformer(str(folder), device="cpu")
    plain = open_clip.create_model("ViT-B-32-quickgelu").eval()

    @torch.no_grad()
    def in_batches(encode: Callable[..., object], read: Callable[[list[Any]], object], items: list[Any]) -> None:
        for start in range(0, len(items), BATCH):
            encode(read(items[start : start + BATCH]), normalize=True)

    paths = [str(file) for file in files]
    unit = {"normalize_embeddings": True}
    sides: dict[str, tuple[Side, Side]] = {}
    for name, dtype in (("Embedder", None), ("Embedder in bfloat16", torch.bfloat16)):
        embedder = Embedder.from_pretrained(folder, dtype=dtype)
        of_texts = partial(embedder.encode_text, texts, language="en", show_progress=False)
        sides[name] = partial(embedder.encode_image, files, show_progress=False), of_texts
    sides["sentence-transformers"] = partial(theirs.encode, paths, **unit), partial(theirs.encode, texts, **unit)
    of_images = partial(in_batches, plain.encode_image, pixels_of, files)
    sides["open_clip"] = of_images, partial(in_batches, plain.encode_text, tokenizer, texts)
    return sides


def imported_open_clip() -> Any:
    for name in ("torchvision", "torchvision.transforms", "torchvision.transforms.functional", "torchvision.ops.misc"):
        sys.modules.setdefault(name, MagicMock())
    import open_clip

    return open_clip


def pixels_of(files: list[Path]) -> torch.Tensor:
    return torch.stack([transformed(file) for file in files])


def transformed(file: Path) -> torch.Tensor:
    image = Image.open(file).convert("RGB")
    scale = 224 / min(image.size)
    image = image.resize([round(side * scale) for side in image.size], Image.Resampling.BICUBIC)
    left, top = ((side - 224) // 2 for side in image.size)
    pixels = torch.from_numpy(np.array(image.crop((left, top, left + 224, top + 224)))).permute(2, 0, 1)
    mean, std = (torch.tensor(values)[:, None, None] for values in (OPENAI_CLIP_MEAN, OPENAI_CLIP_STD))
    return (pixels.float().div(255) - mean) / std


def write_jpegs(folder: Path, count: int, pixels: int) -> list[Path]:
    """Random colors that change smoothly, with some noise: the files are as large as photographs."""
    folder.mkdir()
    files = []
    for number in range(count):
        generator = np.random.default_rng(number)
        colors = Image.fromarray(generator.integers(0, 256, (15, 20, 3), dtype=np.uint8))
        smooth = np.asarray(colors.resize((pixels, pixels * 3 // 4), Image.Resampling.BICUBIC), dtype=np.int16)
        noisy = (smooth + generator.integers(-12, 13, smooth.shape)).clip(0, 255).astype(np.uint8)
        files.append(folder / f"{number:05}.jpg")
        Image.fromarray(noisy).save(files[-1], quality=85)
    return files


def captions(count: int) -> list[str]:
    generator = random.Random(0)
    return [" ".join(generator.choices(WORDS.split(), k=generator.randint(3, 30))) for _ in range(count)]


if __name__ == "__main__":
    typer.run(main)
