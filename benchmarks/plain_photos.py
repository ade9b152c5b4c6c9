"""What `photos/locked` and `photos/mural` do, as a plain script of torch and transformers: the time that babelens is
compared with.

    python benchmarks/plain_photos.py --photos FOLDER --image IMAGE_TOWER --text TEXT_TOWER
    python benchmarks/plain_photos.py --photos FOLDER --image IMAGE_TOWER --text BERT --translations FILE.jsonl

It computes the features of all photographs and texts with the frozen towers, trains heads on them, and prints the
seconds of each part, in the precision that babelens chooses on the machine. With translations, it then computes the
states below the three upper layers of the text tower, and trains these with the heads.
"""

import argparse
import itertools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn
from transformers import AutoImageProcessor, AutoModel, AutoTokenizer

from babelens.trainers.precision import fastest_precision

BATCH, TRANSLATIONS, WIDTH, RATE, LAYER_RATE = 512, 128, 512, 1e-3, 2e-3
BFLOAT16 = fastest_precision("cpu").name == "bfloat16"
GROUPS, UPPER = 4, 3


def autocast() -> torch.autocast:
    return torch.autocast("cpu", torch.bfloat16, enabled=BFLOAT16)


def image_features(folder: Path, names: list[str], source: str) -> Tensor:
    tower = AutoModel.from_pretrained(source).eval().to(memory_format=torch.channels_last)
    processor = AutoImageProcessor.from_pretrained(source, backend="pil")
    found = []
    with torch.inference_mode(), autocast():
        for k in range(0, len(names), 16):
            batch = [Image.open(folder / name).convert("RGB") for name in names[k : k + 16]]
            pixels = processor(batch, return_tensors="pt")["pixel_values"]
            pixels = pixels.contiguous(memory_format=torch.channels_last)
            found.append(tower(pixel_values=pixels).pooler_output.flatten(1).float())
    return torch.cat(found)


def encoded(encoder: Any, tokenizer: Any, texts: list[str], layer: int | None) -> Any:
    """Pooled features [n, d] of the texts, or the states [t, d] after a layer, with the lengths [n] of the texts."""
    states: list[Any] = [None] * len(texts)
    order = sorted(range(len(texts)), key=lambda k: len(texts[k]))
    with torch.inference_mode(), autocast():
        for k in range(0, len(order), 16):
            chosen = order[k : k + 16]
            prompted = [f"query: {texts[n]}" for n in chosen]
            inputs = tokenizer(prompted, padding=True, truncation=True, max_length=64, return_tensors="pt")
            output = encoder(**inputs, output_hidden_states=layer is not None)
            mask = inputs["attention_mask"]
            if layer is None:
                found = pooled(output.last_hidden_state, mask).float()
            else:
                found = output.hidden_states[layer].to(torch.bfloat16 if BFLOAT16 else torch.float32)
            for row, n in enumerate(chosen):
                states[n] = found[row].clone() if layer is None else found[row, : mask[row].sum()].clone()
    if layer is None:
        return torch.stack(states)
    return torch.cat(states), torch.tensor([len(each) for each in states])


def pooled(states: Tensor, mask: Tensor) -> Tensor:
    return (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


def contrastive(left: Tensor, right: Tensor, temperature: Any, images: Tensor | None = None) -> Tensor:
    logits, targets = left @ right.T / temperature, torch.arange(len(left))
    if images is not None:
        same = (images[:, None] == images) & ~torch.eye(len(images), dtype=torch.bool)
        logits = logits.masked_fill(same, float("-inf"))
    return nn.functional.cross_entropy(logits, targets) + nn.functional.cross_entropy(logits.T, targets)


def batches(count: int, size: int) -> Iterator[Tensor]:
    while True:
        order = torch.randperm(count)
        yield from order[: count - count % size].split(size)


def train(
    images: Tensor,
    captions: Tensor,
    pairs: Tensor | None,
    embed: Callable[[Tensor], Tensor],
    heads: tuple[nn.Module, nn.Module, nn.Parameter],
    layers: list[nn.Parameter],
    *,
    steps: int,
    size: int,
) -> None:
    """Trains heads, and layers, on `captions` [n, 2] (index of the text, index of the image) and `pairs` [m, 2] of
    texts, of which a step takes `size`."""
    image_head, text_head, temperature = heads
    own = [*image_head.parameters(), *text_head.parameters(), temperature]
    groups = [{"params": own, "lr": RATE}, {"params": layers, "lr": LAYER_RATE}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.98), weight_decay=0.1, fused=True)
    rates = [RATE, LAYER_RATE]
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rates, total_steps=steps, pct_start=0.1)
    some, others = batches(len(captions), BATCH), batches(0 if pairs is None else len(pairs), size)
    for _ in range(steps):
        texts, rows = captions[next(some)].T
        translated = torch.empty(0, 2, dtype=torch.long) if pairs is None else pairs[next(others)]
        with autocast():
            found = text_head(embed(torch.cat([texts, *translated.T])))
            left = nn.functional.normalize(image_head(images[rows]).float(), dim=-1)
        found, *both = nn.functional.normalize(found.float(), dim=-1).split([len(texts), *[len(translated)] * 2])
        loss = contrastive(left, found, temperature.clamp_min(0.01), rows)
        if pairs is not None:
            loss = loss + contrastive(*both, 0.1)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_([*own, *layers], 1.0)
        optimizer.step()
        schedule.step()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("photos", "image", "text"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--translations", type=Path)
    given = parser.parse_args()
    folder, seconds = Path(given.photos), {}

    def timed(name: str, start: float) -> None:
        seconds[name] = time.perf_counter() - start

    rows = [json.loads(line) for line in (folder / "metadata.jsonl").read_text(encoding="utf-8").splitlines()]
    english = [(each["text"], k) for k, row in enumerate(rows) for each in row["captions"] if each["language"] == "en"]
    sentences = []
    if given.translations is not None:
        sentences = [json.loads(line) for line in given.translations.read_text(encoding="utf-8").splitlines()]
    # A translation of a caption is another caption of its photograph.
    photo_of = dict(english)
    english += [(text, photo_of[each["en"]]) for each in sentences for tag, text in each.items() if tag != "en"]
    texts = list(dict.fromkeys([text for text, _ in english] + [text for each in sentences for text in each.values()]))
    index = {text: k for k, text in enumerate(texts)}
    captions = torch.tensor([(index[text], row) for text, row in english])
    both = [two for each in sentences for two in itertools.combinations(each.values(), 2)]
    pairs = torch.tensor([(index[left], index[right]) for left, right in both]) if both else None

    start = time.perf_counter()
    images = image_features(folder, [row["file_name"] for row in rows], given.image)
    timed("images", start)
    start = time.perf_counter()
    encoder, tokenizer = AutoModel.from_pretrained(given.text).eval(), AutoTokenizer.from_pretrained(given.text)
    features = encoded(encoder, tokenizer, texts, None)
    timed("texts", start)

    start = time.perf_counter()
    width, hidden = features.shape[1], 1024
    text_head: nn.Module = nn.Sequential(nn.Dropout(0.3), nn.Linear(width, WIDTH))
    if pairs is not None:
        drop, norm = nn.Dropout(0.2), nn.LayerNorm(width, elementwise_affine=False)
        text_head = nn.Sequential(norm, drop, nn.Linear(width, hidden), nn.GELU(), drop, nn.Linear(hidden, WIDTH))
    image_head = nn.Sequential(nn.Dropout(0.5), nn.Linear(images.shape[1], WIDTH))
    heads = (image_head, text_head, nn.Parameter(torch.tensor(0.07)))
    steps = 1200 if pairs is None else 800
    train(images, captions, pairs, features.__getitem__, heads, [], steps=steps, size=BATCH)
    timed("heads", start)

    if pairs is not None:
        start = time.perf_counter()
        frozen = len(encoder.encoder.layer) - UPPER
        states, lengths = encoded(encoder, tokenizer, texts, frozen)
        ends = lengths.cumsum(0)
        timed("states", start)
        start = time.perf_counter()
        upper = encoder.encoder.layer[frozen:].train()

        def embed(chosen: Tensor) -> Tensor:
            order = lengths[chosen].argsort()
            found = []
            for some in chosen[order].tensor_split(GROUPS):
                mask = torch.arange(int(lengths[some].max())) < lengths[some][:, None]
                tokens = torch.zeros(*mask.shape, width, dtype=states.dtype)
                tokens[mask] = torch.cat([states[ends[n] - lengths[n] : ends[n]] for n in some.tolist()])
                tokens, attended = tokens.float(), torch.zeros(len(some), 1, 1, mask.shape[1])
                attended.masked_fill_(~mask[:, None, None], torch.finfo(torch.float32).min)
                for layer in upper:
                    output = layer(tokens, attention_mask=attended)
                    tokens = output[0] if isinstance(output, tuple) else output
                found.append(pooled(tokens.float(), mask))
            return torch.cat(found)[order.argsort()]

        train(images, captions, pairs, embed, heads, [*upper.parameters()], steps=300, size=TRANSLATIONS)
        timed("layers", start)
    total = sum(seconds.values())
    print(", ".join(f"{name} {value:.0f} s" for name, value in seconds.items()) + f", together {total:.0f} s")


if __name__ == "__main__":
    main()
