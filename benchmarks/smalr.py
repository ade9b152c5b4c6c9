"""SMALR beside its family and beside transformers: parameters, texts in a second, and memory.

    python benchmarks/smalr.py parameters
    python benchmarks/smalr.py speed
    python benchmarks/smalr.py memory

`parameters` counts those of SMALR and of the family that it is compared with, in ten languages at the paper's sizes
(Burns et al. 2020, section 5 and figure 3), in instantiated models without weights. How large the vocabularies are,
the paper says of English alone: 25 126 words (MSCOCO), 61 % of which occur fewer than four times. Those of ten
languages together follow from another of its numbers, that words make up 93 % of MULE: 309 000. Nor does it say how
many latent tokens are in use after the first stage, on which SMALR's number depends (`--latent-tokens`). At test time,
a text is rows of a table that was made before, which the paper does not count. LIWE needs all that it has.

The sides of `speed` and `memory`, with random weights: SMALR in ten languages at the paper's sizes, compressed and as
it is trained; `mural-tiny`, MURAL with two text layers of width 128; and CLIP ViT-B/32's text tower. All encode the
same captions through `Embedder.encode_text`, from strings to vectors: four names of emoji each, in ten languages by
turns. The transformers read them as word pieces, of a vocabulary of 16 000 that was trained on them; CLIP's own would
make more pieces of most languages. In `speed` the sides take turns in one process; printed are medians, and the ratios
of the times with quartiles, with two threads and with one. `memory` prints the peak of the resident set (Linux's
`VmHWM`) in a process of its own for each side that loads the saved model and encodes the captions, and what of it is
Python with torch and babelens.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from loss import MEBIBYTE, resident_peak
from torch import nn
from transformers import CLIPConfig, CLIPModel, CLIPProcessor, PreTrainedTokenizerFast
from turns import by_turns, machine, quartiles

from babelens import (
    CrossLingualConsistency,
    CrossLingualConsistencyConfig,
    Embedder,
    LiweModel,
    MuralModel,
    MuralProcessor,
    SmalrModel,
    SmalrProcessor,
    load_preset,
)
from babelens.configuration.configuration_smalr import SMALR_LANGUAGES
from babelens.data.emoji.benchmark import load_emoji
from babelens.modeling.modeling_dual_encoder import count_parameters
from babelens.processing.image_processing_mural import MuralImageProcessor
from babelens.processing.processing_smalr import frequent_words
from babelens.processing.tokenizer_training import train_wordpiece

ENGLISH, OTHER = 25_126, 31_500  # words of English, and of each of the nine others on average
FREQUENT = 0.39  # share of the words that occur four times or more
FASTTEXT_SIZE = 300
LATENT_TOKENS = 15_000  # in use, of 40 000
TRAINED = 20_000_000  # SMALR's parameters, at most
NAMES_IN_A_CAPTION = 4
WORD_PIECES = 16_000

Captions = list[tuple[str, str]]  # (text, language)

app = typer.Typer(pretty_exceptions_enable=False)

# ---- Parameters ----

_LIWE = ("s-liwe", "l-liwe")
_OWN_WORDS: dict[str, Any] = {
    "specific_words": None,
    "latent_tokens": 0,
    "mask_weight": 0.0,
    "word_size": FASTTEXT_SIZE,
}
_UNALIGNED: dict[str, Any] = {"adversarial_weight": 0.0}


@dataclass(frozen=True)
class Row:
    """A model, and what the paper says of its parameters."""

    title: str
    settings: dict[str, Any] = field(default_factory=dict)
    paper: str = ""
    preset: str = "smalr-base"

    def counts(self) -> tuple[int, int]:
        """Trained, and needed at test time."""
        with torch.device("meta"):
            config = load_preset(self.preset, **self.settings)
            model = LiweModel(config) if self.preset in _LIWE else SmalrModel(config)
        if isinstance(model, LiweModel):
            return count_parameters(model), count_parameters(model)
        needed = count_parameters(model.text_model) + count_parameters(model.image_branch)
        return count_parameters(model) - sum(map(count_parameters, _untrained(model))), needed


def _untrained(model: SmalrModel) -> list[nn.Module]:
    """Layers for losses that have no weight: they are there, but learn nothing."""
    alignment, config = model.alignment, model.config
    layers = [] if config.mask_weight else [alignment.fill_sentence, alignment.fill_text]
    return layers if config.adversarial_weight else [*layers, alignment.classifier]


def rows(latent_tokens: int = LATENT_TOKENS) -> list[Row]:
    """Of the table, in its order."""
    ten = {"vocabulary_sizes": [ENGLISH, *[OTHER] * 9]}
    frequent = [round(size * FREQUENT) for size in ten["vocabulary_sizes"]]
    latent = ten | {"latent_tokens": latent_tokens}
    mule = ten | _OWN_WORDS
    mapped = [0, *(size - own for size, own in zip(ten["vocabulary_sizes"][1:], frequent[1:], strict=True))]
    english = {"languages": ["en"], "vocabulary_sizes": [ENGLISH]} | _OWN_WORDS | _UNALIGNED
    return [
        Row("SMALR", latent, "below 20; 7.1 at test time"),
        Row("HEM", latent | {"mask_weight": 0.0}),
        Row("LA", latent | {"specific_words": 0, "mask_weight": 0.0}),
        Row("MULE", mule, "5 times SMALR"),
        Row("EmbN, English alone", english),
        Row("PAR-EmbN", mule | _UNALIGNED | {"language_branches": True}),
        Row("MULE, words that occur 4 times or more", mule | {"vocabulary_sizes": frequent}),
        Row("MULE, the others mapped to English", mule | {"dictionary_words": mapped}),
        *(Row(f"MULE, words of {size} numbers (PCA)", mule | {"word_size": size}) for size in (50, 100, 200)),
        Row("S-LIWE", paper="an eighth of MULE; above 7.1", preset="s-liwe"),
        Row("L-LIWE", paper="above SMALR", preset="l-liwe"),
    ]


def consistency_parameters() -> int:
    """CLC-C's for ten languages."""
    return count_parameters(CrossLingualConsistency(CrossLingualConsistencyConfig(languages=SMALR_LANGUAGES)))


def table(latent_tokens: int = LATENT_TOKENS) -> str:
    """Millions of parameters, beside what the paper says."""
    lines = ["| ten languages, millions of parameters | trained | at test time | the paper |", "|---|--:|--:|---|"]
    for row in rows(latent_tokens):
        trained, needed = row.counts()
        lines.append(f"| {row.title} | {trained / 1e6:.1f} | {needed / 1e6:.1f} | {row.paper} |")
    return "\n".join(lines)


@app.command()
def parameters(
    latent_tokens: Annotated[int, typer.Option(help="Those in use after the first stage.")] = LATENT_TOKENS,
) -> None:
    """Print the table."""
    print(table(latent_tokens))
    print(f"\nCLC-C: {consistency_parameters()} parameters.")
    smalr = rows(latent_tokens)[0]
    spare = TRAINED - smalr.counts()[0]
    most = latent_tokens + spare // load_preset(smalr.preset).hidden_size
    print(f"SMALR trains fewer than {TRAINED / 1e6:.0f} million with up to {most} latent tokens in use.")


# ---- Speed and memory: the sides ----


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
        seconds = by_turns({name: partial(encode, each, captions) for name, each in embedders.items()}, rounds)
        print("| | texts/s | time, by that of compressed SMALR (quartiles) |\n|---|--:|---|")
        for name, durations in seconds.items():
            ratio = quartiles(durations / seconds["SMALR, compressed"])
            print(f"| {name} | {count / np.median(durations):.0f} | {ratio} |", flush=True)


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
    print(f"\n{machine(threads)}; {len(captions)} captions of {words:.1f} words, {more}\n")


if __name__ == "__main__":
    app()
