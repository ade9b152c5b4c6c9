"""What the commands of `growth.py` read: synthetic images, captions, translations and vectors, and tiny models.

Everything is drawn from fixed seeds and written once for each size.
"""

import json
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from PIL import Image
from tokenizers.pre_tokenizers import ByteLevel
from transformers import CLIPConfig, CLIPModel, CLIPProcessor, CLIPTokenizer
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from babelens.cli.main import main

Command = list[Any]  # the arguments of `babelens`

TAGS = re.findall("..", "endefresitptnlsvdanbfiplcsskslhrruukbgsreltrarfahehibntathviid")
SIDE, COLORS = 36, 8
WORDS, SENTENCE = 3000, 6
WIDTH = 32  # dimensions of embeddings, as those of the tiny models

TOWER = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
VISION = TOWER | {"model_type": "clip_vision_model", "image_size": 32, "patch_size": 8}
TEXT = TOWER | {"model_type": "bert", "max_position_embeddings": 64}
RC3 = {
    "max_position_embeddings": 64,
    "d_model": 16,
    "encoder_layers": 1,
    "encoder_ffn_dim": 32,
    "encoder_attention_heads": 2,
    "decoder_layers": 1,
    "decoder_ffn_dim": 32,
    "decoder_attention_heads": 2,
    "image_size": 36,
    "patch_size": 12,
    "patch_width": 8,
    "visual": "patches",
}


class Failed(Exception):
    """A command failed; with what it printed."""


class Inputs:
    """Files for the commands, below one folder.

    Args:
        folder: where they are written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def images(self, number: int) -> Path:
        """A folder of images without captions."""
        folder, new = self._folder(f"images-{number}")
        for index, image in enumerate(_drawn(number) if new else ()):
            image.save(folder / f"{index:06}.png")
        return folder

    def captions(self, images: int, languages: int = 2) -> Path:
        """A folder of images with a caption in each language."""
        folder, new = self._folder(f"captions-{images}-{languages}")
        if not new:
            return folder
        rows = []
        for index, image in enumerate(_drawn(images)):
            name = f"{index:06}.png"
            image.save(folder / name)
            rows.append({"file_name": name, "captions": {tag: sentence(tag, index) for tag in TAGS[:languages]}})
        (folder / "metadata.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
        return folder

    def translations(self, number: int, languages: int = 2) -> Path:
        """A table of translations, a row for each sentence."""
        tags = TAGS[:languages]
        lines = ["\t".join(tags), *("\t".join(sentence(tag, index) for tag in tags) for index in range(number))]
        return self._file(f"translations-{number}-{languages}.tsv", "\n".join(lines))

    def texts(self, number: int) -> Path:
        """English sentences, one in each line."""
        return self._file(f"texts-{number}.txt", "\n".join(sentence("en", index) for index in range(number)))

    def classes(self, images: int, classes: int) -> tuple[Path, Path]:
        """A folder with a folder of images for each class, and the labels of the classes in two languages."""
        folder, new = self._folder(f"classes-{images}-{classes}")
        for index, image in enumerate(_drawn(images) if new else ()):
            place = folder / f"c{index % classes:04}"
            place.mkdir(exist_ok=True)
            image.save(place / f"{index:06}.png")
        labels = {tag: {f"c{each:04}": sentence(tag, each) for each in range(classes)} for tag in TAGS[:2]}
        return folder, self._file(f"labels-{classes}.json", json.dumps(labels))

    def vectors(self, number: int, first: int = 0) -> Path:
        """A parquet file of unit vectors with ids and one column of metadata."""
        file = self.folder / f"vectors-{number}-{first}.parquet"
        if file.exists():
            return file
        random = np.random.default_rng(first)
        values = pa.float32()
        schema = pa.schema([("id", pa.string()), ("width", pa.int32()), ("embedding", pa.list_(values, WIDTH))])
        with pq.ParquetWriter(file, schema) as writer:
            for start in range(0, number, 16_384):
                rows = min(16_384, number - start)
                drawn = random.standard_normal((rows, WIDTH), dtype=np.float32)
                drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
                ids = [f"{first + start + row}.jpg" for row in range(rows)]
                columns = [
                    ids,
                    [row % 2000 for row in range(rows)],
                    pa.FixedSizeListArray.from_arrays(drawn.ravel(), WIDTH),
                ]
                writer.write_table(pa.table(columns, schema=schema))
        return file

    def recipe(self, method: str, corpus: Path, **training: Any) -> Path:
        """A recipe that trains a tiny model of a method on a corpus, without evaluation."""
        settings = {
            "per_device_train_batch_size": 32,
            "logging_steps": 1000,
            "save_strategy": "no",
            "report_to": "none",
            "use_cpu": True,
        } | (training or {"num_train_epochs": 1})
        content = RECIPES[method](self, corpus) | {"training": settings}
        return self._file(f"{method}.yaml", yaml.safe_dump(content))

    def model(self, method: str = "mural", languages: int = 2) -> Path:
        """A tiny model after one step of training; `clip` is one of transformers, for English."""
        folder = self.folder / f"model-{method}-{languages}"
        if folder.exists():
            return folder
        if method == "clip":
            _save_clip(folder)
        else:
            recipe = self.recipe(method, self.captions(64, languages), max_steps=1)
            run(["train", recipe, "--output", folder])
        return folder

    def _folder(self, name: str) -> tuple[Path, bool]:
        """A folder, and whether it is new."""
        folder = self.folder / name
        new = not folder.exists()
        folder.mkdir(exist_ok=True)
        return folder, new

    def _file(self, name: str, text: str) -> Path:
        file = self.folder / name
        file.write_text(text, "utf-8")
        return file


def forked(arguments: Command, printed: Path) -> int:
    """The id of a new process that runs `babelens` with these arguments, and prints into a file.

    It is a fork of this one, which has imported what commands import, so that imports do not hide its time.
    """
    if process := os.fork():
        return process
    status = 1
    try:
        file = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(file, stream)
        sys.argv = ["babelens", *map(str, arguments)]
        main()
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else bool(ended.code)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def run(arguments: Command) -> None:
    """Runs what is not measured."""
    with tempfile.NamedTemporaryFile() as file:
        check(os.waitpid(forked(arguments, Path(file.name)), 0)[1], arguments, Path(file.name))


def check(status: int, arguments: Command, printed: Path) -> None:
    """Raises `Failed` for a process that did not end well."""
    if os.waitstatus_to_exitcode(status):
        raise Failed(f"babelens {' '.join(map(str, arguments))}\n{printed.read_text(encoding='utf-8')}")


def sentence(tag: str, index: int) -> str:
    """The sentence of this index in a language: some of the language's words."""
    words = np.random.default_rng(index).integers(WORDS, size=SENTENCE)
    return " ".join(f"{tag}{word}" for word in words)


def _drawn(number: int) -> Iterator[Image.Image]:
    random = np.random.default_rng(0)
    for _ in range(number):
        mosaic = random.integers(0, 256, (3, 3, 3), dtype=np.uint8)
        yield Image.fromarray(mosaic).resize((SIDE, SIDE), Image.Resampling.NEAREST)


def _source(corpus: Path, **more: Any) -> dict[str, Any]:
    return {"source": str(corpus), "license": "CC0-1.0"} | more


def _mural(inputs: Inputs, corpus: Path) -> dict[str, Any]:
    return {
        "method": "mural",
        "model": {"preset": "mural-tiny", "overrides": {"text_config": TEXT, "vision_config": VISION}},
        "tokenizer": {"vocab_size": 2000},
        "image": {"resize": 36, "crop": 32},
        "train": {
            "image_text": _source(corpus),
            "text_text": _source(corpus, pairs={"from": ["en"], "to": _others(corpus)}),
        },
    }


def _others(corpus: Path) -> list[str]:
    """The languages of a corpus without English."""
    return TAGS[1 : int(corpus.name.rpartition("-")[2])]


def _etcl(inputs: Inputs, corpus: Path) -> dict[str, Any]:
    etcl = {"preset": "etcl-tiny", "overrides": {"text_config": TEXT, "vision_config": VISION}}
    return _mural(inputs, corpus) | {"method": "etcl", "model": etcl, "train": {"triplet": _source(corpus)}}


def _mla(inputs: Inputs, corpus: Path) -> dict[str, Any]:
    languages = _others(corpus)
    return {
        "method": "mla",
        "model": {"from_pretrained": str(inputs.model("clip")), "overrides": {"languages": languages}},
        "multilingual_tokenizer": {"vocab_size": 2000},
        "train": {"text_text": _source(corpus, pairs={"from": languages, "to": ["en"]})},
    }


def _student(inputs: Inputs, corpus: Path) -> dict[str, Any]:
    text = {"preset": "mkd-tiny", "training": {"max_steps": 1, "use_cpu": True, "report_to": "none"}}
    return _mla(inputs, corpus) | {"method": "mla_student", "text_model": text}


def _smalr(inputs: Inputs, corpus: Path) -> dict[str, Any]:
    return {
        "method": "smalr",
        "model": {"preset": "smalr-tiny", "overrides": {"vision_config": VISION}},
        "words": {"min_frequency": 1},
        "image": {"resize": 36, "crop": 32},
        "train": {"image_text": _source(corpus)},
    }


def _liwe(inputs: Inputs, corpus: Path) -> dict[str, Any]:
    model = {"preset": "liwe-tiny", "overrides": {"vision_config": VISION}}
    return _smalr(inputs, corpus) | {"method": "liwe", "model": model}


def _rc3(inputs: Inputs, corpus: Path) -> dict[str, Any]:
    return {
        "method": "rc3",
        "model": {"preset": "rc3-tiny", "overrides": RC3},
        "tokenizer": {"vocab_size": 2000, "lowercase": False},
        "image": {"resize": 36, "crop": 36},
        "train": {task: _source(corpus) for task in ("strict", "weak", "parallel")},
    }


RECIPES = {
    "mural": _mural,
    "etcl": _etcl,
    "mla": _mla,
    "mla_student": _student,
    "smalr": _smalr,
    "liwe": _liwe,
    "rc3": _rc3,
}


def _save_clip(folder: Path) -> None:
    """A CLIP whose tokens are letters."""
    letters = sorted(ByteLevel.alphabet())
    pieces = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = CLIPTokenizer(vocab=vocabulary, merges=[], model_max_length=64)
    images = CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    begin, end = len(pieces) - 2, len(pieces) - 1
    text = TOWER | {"vocab_size": len(pieces), "max_position_embeddings": 64}
    config = CLIPConfig(
        text_config=text | {"bos_token_id": begin, "pad_token_id": end, "eos_token_id": end},
        vision_config=TOWER | {"image_size": 32, "patch_size": 8},
        projection_dim=32,
    )
    CLIPModel(config).save_pretrained(folder)
    CLIPProcessor(images, tokenizer).save_pretrained(folder)
