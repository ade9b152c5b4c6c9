"""What `photos/locked` does, as a plain script of torch and transformers: the time that babelens is compared with.

    python benchmarks/plain_photos.py --photos FOLDER --image IMAGE_TOWER --text TEXT_TOWER

It computes the features of all photographs and English captions with the frozen towers, trains two linear heads on
them, and prints the seconds of each part, in the precision that babelens chooses on the machine.
"""

import argparse
import json
import time
from pathlib import Path

import torch
from PIL import Image
from torch import nn
from transformers import AutoImageProcessor, AutoModel, AutoTokenizer

from babelens.trainers.precision import fastest_precision

STEPS, BATCH, WIDTH, RATE = 1200, 512, 512, 1e-3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("photos", "image", "text"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args()
    folder = Path(given.photos)
    rows = [json.loads(line) for line in (folder / "metadata.jsonl").read_text(encoding="utf-8").splitlines()]
    pairs = [(k, text) for k, row in enumerate(rows) for text in row["captions"]["en"]]
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=fastest_precision("cpu").name == "bfloat16")

    start = time.perf_counter()
    tower = AutoModel.from_pretrained(given.image).eval().to(memory_format=torch.channels_last)
    processor = AutoImageProcessor.from_pretrained(given.image, backend="pil")
    images = []
    with torch.inference_mode(), autocast:
        for k in range(0, len(rows), 16):
            batch = [Image.open(folder / row["file_name"]).convert("RGB") for row in rows[k : k + 16]]
            pixels = processor(batch, return_tensors="pt")["pixel_values"].contiguous(
                memory_format=torch.channels_last
            )
            images.append(tower(pixel_values=pixels).pooler_output.flatten(1).float())
    image_features = torch.cat(images)
    seconds = {"images": time.perf_counter() - start}

    start = time.perf_counter()
    encoder, tokenizer = AutoModel.from_pretrained(given.text).eval(), AutoTokenizer.from_pretrained(given.text)
    order = sorted(range(len(pairs)), key=lambda k: len(pairs[k][1]))
    text_features = torch.empty(len(pairs), encoder.config.hidden_size)
    with torch.inference_mode(), autocast:
        for k in range(0, len(order), 16):
            chosen = order[k : k + 16]
            texts = [f"query: {pairs[n][1]}" for n in chosen]
            inputs = tokenizer(texts, padding=True, truncation=True, max_length=64, return_tensors="pt")
            mask = inputs["attention_mask"][..., None]
            states = encoder(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).last_hidden_state
            text_features[chosen] = ((states * mask).sum(1) / mask.sum(1)).float()
    seconds["texts"] = time.perf_counter() - start

    start = time.perf_counter()
    rows_of = torch.tensor([k for k, _ in pairs])
    image_head = nn.Sequential(nn.Dropout(0.5), nn.Linear(image_features.shape[1], WIDTH))
    text_head = nn.Sequential(nn.Dropout(0.3), nn.Linear(text_features.shape[1], WIDTH))
    temperature = nn.Parameter(torch.tensor(0.07))
    weights = [*image_head.parameters(), *text_head.parameters(), temperature]
    optimizer = torch.optim.AdamW(weights, lr=RATE, betas=(0.9, 0.98), weight_decay=0.1, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=STEPS, pct_start=0.1)
    order_of_pairs = torch.randperm(len(pairs))
    targets = torch.arange(BATCH)
    for step in range(STEPS):
        begin = step * BATCH % (len(pairs) - BATCH)
        chosen = order_of_pairs[begin : begin + BATCH]
        with autocast:
            left = nn.functional.normalize(image_head(image_features[rows_of[chosen]]).float(), dim=-1)
            right = nn.functional.normalize(text_head(text_features[chosen]).float(), dim=-1)
        logits = left @ right.T / temperature.clamp_min(0.01)
        same = rows_of[chosen][:, None] == rows_of[chosen]
        logits = logits.masked_fill(same & ~torch.eye(BATCH, dtype=torch.bool), float("-inf"))
        loss = nn.functional.cross_entropy(logits, targets) + nn.functional.cross_entropy(logits.T, targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        schedule.step()
    seconds["training"] = time.perf_counter() - start
    total = sum(seconds.values())
    print(", ".join(f"{name} {value:.0f} s" for name, value in seconds.items()) + f", together {total:.0f} s")


if __name__ == "__main__":
    main()
