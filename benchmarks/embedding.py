"""Images in a second of `babelens embed`: decoding in threads beside the model, against one after the other.

    python benchmarks/embedding.py --images 384 --workers 1

The images are synthetic JPEGs in tar shards, the model is a CLIP with random weights. Both ways run alternately in one
process. The last rows compare threads with processes for the preparation alone (decoding, resizing, scaling), with as
many of them as there are workers and one more.
"""

import io
import multiprocessing
import tarfile
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from PIL import Image
from tokenizers import Tokenizer, models
from transformers import CLIPConfig, CLIPModel, CLIPProcessor, PreTrainedTokenizerFast
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from turns import seconds

from babelens import Embedder
from babelens.inference.streaming.job import EmbeddingJob
from babelens.inference.streaming.worker import embed_source
from babelens.processing.images import open_image

SHARD = 64
TOWER = {"num_hidden_layers": 12, "projection_dim": 512}


def main(
    images: Annotated[int, typer.Option(help="Number of images.")] = 384,
    width: Annotated[int, typer.Option(help="Width of the ViT: 768 is that of ViT-B/32.")] = 192,
    pixels: Annotated[int, typer.Option(help="Longer side of the JPEGs.")] = 640,
    workers: Annotated[int, typer.Option(help="Threads that prepare images.")] = 1,
    rounds: Annotated[int, typer.Option(help="Number of runs of each way.")] = 5,
) -> None:
    """Print images in a second and the ratio of both ways."""
    torch.set_num_threads(1)
    embedder = Embedder(*random_clip(width), batch_size=32)
    files = [jpeg(number, pixels) for number in range(images)]
    with tempfile.TemporaryDirectory() as folder:
        write_tars(Path(folder, "tars"), files)
        ways = {"one after the other": 0, f"{workers} beside the model": workers}
        rates: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(rounds):
            for name, threads in ways.items():
                job = EmbeddingJob(f"{folder}/tars", Path(folder, f"out{turn}-{threads}"), workers=threads)
                rates[name].append(images / seconds(lambda job=job: embed_source(embedder, job, model="random")))
    report(rates)
    batches = [files[start : start + 32] for start in range(0, images, 32)]
    count = workers + 1
    before = time.process_time()
    list(map(Preparation(embedder.processor), batches))
    print(f"preparation: {1000 * (time.process_time() - before) / images:.1f} ms of processor time for an image\n")
    processor = embedder.processor
    with ThreadPoolExecutor(count) as threads, multiprocessing.get_context("fork").Pool(count) as processes:
        prepare = Preparation(processor)
        rates = {f"{count} threads, preparation alone": [], f"{count} processes": []}
        for _ in range(rounds):
            for each, pool in zip(rates.values(), (threads, processes), strict=True):
                each.append(images / seconds(lambda pool=pool: list(pool.map(prepare, batches))))
    report(rates)


class Preparation:
    """Prepares a batch and returns its pixels, as a data loader's process would send them."""

    def __init__(self, processor: CLIPProcessor) -> None:
        self.processor = processor

    def __call__(self, batch: list[bytes]) -> np.ndarray:
        return self.processor(images=[open_image(file) for file in batch], return_tensors="np")["pixel_values"]


def random_clip(width: int) -> tuple[CLIPModel, CLIPProcessor]:
    """A CLIP whose image tower is a ViT/32 of this width, with random weights."""
    vision = TOWER | {"hidden_size": width, "intermediate_size": 4 * width, "num_attention_heads": width // 64}
    text = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 1}
    torch.manual_seed(0)
    model = CLIPModel(CLIPConfig(vision_config=vision | {"patch_size": 32}, text_config=text, projection_dim=512))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"a": 0}, unk_token="a")))
    return model.eval(), CLIPProcessor(CLIPImageProcessorPil(), tokenizer)


def jpeg(number: int, pixels: int) -> bytes:
    """A smooth random image."""
    colors = np.random.default_rng(number).integers(0, 256, (15, 20, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(colors).resize((pixels, pixels * 3 // 4), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
    return file.getvalue()


def write_tars(folder: Path, files: list[bytes]) -> None:
    folder.mkdir()
    for start in range(0, len(files), SHARD):
        with tarfile.open(folder / f"{start // SHARD:05}.tar", "w") as tar:
            for number, file in enumerate(files[start : start + SHARD], start):
                member = tarfile.TarInfo(f"{number:06}.jpg")
                member.size = len(file)
                tar.addfile(member, io.BytesIO(file))


def report(rates: dict[str, list[float]]) -> None:
    for name, values in rates.items():
        print(f"{name:36} {np.median(values):6.0f} images/s (median of {len(values)})", flush=True)
    first, second = rates.values()
    print(f"ratio {np.median(np.divide(second, first)):.2f} (median of the rounds)\n", flush=True)


if __name__ == "__main__":
    typer.run(main)
