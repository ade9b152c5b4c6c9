"""Encoding texts with SMALR beside transformers: texts in a second, and the memory of a process that does no more.

    python benchmarks/smalr_speed.py speed
    python benchmarks/smalr_speed.py memory

Sides, with random weights: SMALR in ten languages at the paper's sizes (`smalr_parameters.py`), compressed and as it
is trained; `mural-tiny`, MURAL with two text layers of width 128; and CLIP ViT-B/32's text tower. All encode the same
captions through `Embedder.encode_text`, from strings to vectors: four names of emoji each, in ten languages by turns.
The transformers read them as word pieces, of a vocabulary of 16 000 that was trained on them; CLIP's own would make
more pieces of most languages.

In `speed` the sides take turns in one process; printed are medians, and of the times by turns the ratios with
quartiles, with two threads and with one. `memory` prints the peak of the resident set (Linux's `VmHWM`) in a process
of its own for each side that loads the saved model and encodes the captions, and what of it is Python with torch and
babelens.
"""

import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import transformers
import typer
from loss import MEBIBYTE, resident_peak
from smalr_parameters import ENGLISH, LATENT_TOKENS, OTHER
from transformers import CLIPConfig, CLIPModel, CLIPProcessor, PreTrainedTokenizerFast

from babelens import Embedder, MuralModel, MuralProcessor, SmalrModel, SmalrProcessor, load_preset
from babelens.configuration.configuration_smalr import SMALR_LANGUAGES
from babelens.data.emoji.benchmark import load_emoji
from babelens.processing.image_processing_mural import MuralImageProcessor
from babelens.processing.processing_smalr import frequent_words
from babelens.processing.tokenizer_training import train_wordpiece

NAMES_IN_A_CAPTION = 4
WORD_PIECES = 16_000

Captions = list[tuple[str, str]]  # (text, language)

app = typer.Typer(pretty_exceptions_enable=False)


# ---- The sides ----


def smalr(captions: Captions, *, compressed: bool) -> Embedder:
    """The captions' words come first in the vocabularies; made-up ones fill them to the paper's sizes."""
    vocabularies = {}
    for language in SMALR_LANGUAGES:
        words = frequent_words((text for text, tag in captions if tag == language), language)
        size = ENGLISH if language == "en" else OTHER
        vocabularies[language] = [*words, *(f"{language}{number:05}" for number in range(size - len(words)))]
    sizes = [len(words) for words in vocabularies.values()]
    model = SmalrModel(load_preset("smalr-base", vocabulary_sizes=sizes, latent_tokens=LATENT_TOKENS))
    processor = SmalrProcessor(MuralImageProcessor(), vocabularies)
    return Embedder(model.compress() if compressed else model, processor)


def mural(captions: Captions) -> Embedder:
    tokenizer = word_pieces(captions)
    config = load_preset("mural-tiny", text_config={"vocab_size": len(tokenizer)})
    model = MuralModel._from_config(config, attn_implementation="eager")  # as its recipe has it
    return Embedder(model, MuralProcessor(MuralImageProcessor(), tokenizer))


def clip(captions: Captions) -> Embedder:
    """The text tower of ViT-B/32, beside next to nothing for images."""
    tokenizer = word_pieces(captions)
    tokenizer.model_max_length = 77
    ends = {"eos_token_id": tokenizer.sep_token_id, "bos_token_id": tokenizer.cls_token_id}
    vision = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = CLIPConfig(text_config=ends, vision_config=vision)
    return Embedder(CLIPModel(config), CLIPProcessor(MuralImageProcessor(), tokenizer))


SIDES: dict[str, Callable[[Captions], Embedder]] = {
    "SMALR, compressed": lambda captions: smalr(captions, compressed=True),
    "SMALR": lambda captions: smalr(captions, compressed=False),
    "mural-tiny": mural,
    "CLIP ViT-B/32's text tower": clip,
}


def make_captions(count: int) -> Captions:
    """Names of emoji, four in a caption, in the languages by turns."""
    rng = np.random.default_rng(0)
    corpus = load_emoji(vendors="noto", languages=list(SMALR_LANGUAGES))
    names: dict[str, list[str]] = {language: [] for language in SMALR_LANGUAGES}
    for caption in (caption for row in corpus["captions"] for caption in row):
        names[caption["language"]].append(caption["text"])
    languages = [SMALR_LANGUAGES[number % len(SMALR_LANGUAGES)] for number in range(count)]
    return [(" ".join(rng.choice(names[language], NAMES_IN_A_CAPTION)), language) for language in languages]


def word_pieces(captions: Captions) -> PreTrainedTokenizerFast:
    return train_wordpiece((text for text, _ in captions), WORD_PIECES)


def encode(embedder: Embedder, captions: Captions) -> np.ndarray:
    texts, languages = zip(*captions, strict=True)
    return embedder.encode_text(texts, language=languages)


def by_turns(embedders: dict[str, Embedder], captions: Captions, rounds: int) -> dict[str, list[float]]:
    """Seconds of each side's turns, after one that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in embedders}
    for _ in range(rounds + 1):
        for name, embedder in embedders.items():
            start = time.perf_counter()
            encode(embedder, captions)
            seconds[name].append(time.perf_counter() - start)
    return {name: durations[1:] for name, durations in seconds.items()}


# ---- Commands ----


@app.command()
def speed(
    count: Annotated[int, typer.Option(help="Number of captions.")] = 320,
    rounds: Annotated[int, typer.Option(help="Number of rounds; each times both sides once.")] = 7,
) -> None:
    """Texts in a second, and the ratios of SMALR's time to the others'."""
    captions = make_captions(count)
    embedders = {name: side(captions) for name, side in SIDES.items()}
    for threads in (2, 1):
        torch.set_num_threads(threads)
        print_setting(captions, threads, f"{rounds} rounds")
        seconds = by_turns(embedders, captions, rounds)
        print("| | texts/s | time, by that of compressed SMALR (quartiles) |\n|---|--:|---|")
        first = np.array(seconds["SMALR, compressed"])
        for name, durations in seconds.items():
            low, middle, high = np.quantile(durations / first, [0.25, 0.5, 0.75])
            print(f"| {name} | {count / np.median(durations):.0f} | {middle:.2f} ({low:.2f}–{high:.2f}) |", flush=True)


@app.command()
def memory(count: Annotated[int, typer.Option(help="Number of captions.")] = 640) -> None:
    """Peak memory of a process that loads a side and encodes the captions."""
    captions = make_captions(count)
    print_setting(captions, 1, "a process for each side")
    print("| | peak MiB | of it torch and babelens | model file, MiB |\n|---|--:|--:|--:|")
    for name, side in SIDES.items():
        with tempfile.TemporaryDirectory() as folder:
            embedder = side(captions)
            embedder.model.save_pretrained(folder)
            embedder.processor.save_pretrained(folder)
            size = (Path(folder) / "model.safetensors").stat().st_size
            command = [sys.executable, __file__, "peak", folder]
            done = subprocess.run(command, input=json.dumps(captions), capture_output=True, text=True, check=True)
        before, peak = json.loads(done.stdout.splitlines()[-1])
        print(f"| {name} | {peak / MEBIBYTE:.0f} | {before / MEBIBYTE:.0f} | {size / MEBIBYTE:.0f} |", flush=True)


@app.command(hidden=True)
def peak(folder: str) -> None:
    """For `memory`: bytes at the beginning and at the highest; captions come from standard input."""
    torch.set_num_threads(1)
    captions = [(text, language) for text, language in json.load(sys.stdin)]
    before = resident_peak()
    encode(Embedder.from_pretrained(folder), captions)
    print(json.dumps([before, resident_peak()]))


def print_setting(captions: Captions, threads: int, more: str) -> None:
    words = np.mean([len(text.split()) for text, language in captions if language not in ("zh", "ja")])
    print(f"\n{platform.machine()}, {threads} threads, torch {torch.__version__}, transformers ", end="")
    print(f"{transformers.__version__}; {len(captions)} captions of {words:.1f} words, {more}\n")


if __name__ == "__main__":
    app()
