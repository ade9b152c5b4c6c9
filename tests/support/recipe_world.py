"""A folder in which every recipe can be run in a moment: published data sets (`published_layouts`), tiny models
instead of the Hub's, and two steps of training."""

import json
import re
import runpy
import shlex
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from transformers import AutoConfig, ConvNextImageProcessorPil, ResNetConfig, ResNetModel
from typer.testing import CliRunner

from babelens.cli.main import app
from babelens.configuration.configuration_two_tower import image_width
from babelens.training.recipe_file import RECIPES, find_recipe, parse, read_recipe, run_name, shipped_recipes
from tests.support.published_layouts import write_emoji, write_opus, write_published
from tests.support.published_rc3 import PATCHES, write_mbart
from tests.support.tiny_backbones import saved_backbone
from tests.support.tiny_native import saved, tiny_bert, tiny_clip
from tests.support.translation_models import save_nllb

NAMES = shipped_recipes()


def save_resnet(folder: Path) -> None:
    ResNetModel(ResNetConfig(embedding_size=8, hidden_sizes=[8, 2048], depths=[1, 1])).save_pretrained(folder)
    ConvNextImageProcessorPil(size={"shortest_edge": 32}).save_pretrained(folder)


HUB: dict[str, Callable[[Path], object]] = {
    "openai/clip-vit-base-patch32": lambda folder: saved(tiny_clip(), folder),
    "openai/clip-vit-base-patch16": lambda folder: saved(tiny_clip(), folder),
    "openai/clip-vit-large-patch14": lambda folder: saved(tiny_clip(), folder),
    "google-bert/bert-base-multilingual-cased": lambda folder: saved(tiny_bert(), folder),
    "sentence-transformers/LaBSE": lambda folder: saved(tiny_bert(), folder),
    "sentence-transformers/all-MiniLM-L6-v2": lambda folder: saved(tiny_bert(), folder),
    "intfloat/multilingual-e5-small": lambda folder: saved(tiny_bert(layers=4), folder),
    "microsoft/resnet-152": save_resnet,
    "google/efficientnet-b0": lambda folder: saved_backbone("efficientnet", folder),
    "facebook/nllb-200-distilled-600M": save_nllb,
}
# The recipes that train the bases of other recipes, by the first folder of their names.
TRAINED_BY = {f"runs/{run_name(name)}": name for name in NAMES}
PRESETS = {
    "mural-base": "mural-tiny",
    "mural-large": "mural-tiny",
    "align-base": "align-tiny",
    "align-l2": "align-tiny",
    "etcl-base": "etcl-tiny",
    "smalr-base": "smalr-tiny",
    "s-liwe": "liwe-tiny",
    "l-liwe": "liwe-tiny",
}
ROOT = Path(__file__).parents[2]
_TRANSLATE = "examples/translate_captions.py"
_NUMBERS = {
    "max_steps": 2,
    "num_train_epochs": 1,
    "per_device_train_batch_size": 2,
    "per_device_eval_batch_size": 4,
    "eval_steps": 2,
    "save_steps": 2,
    "logging_steps": 1,
    "warmup_steps": 1,
    "dataloader_num_workers": 0,
    "dataloader_persistent_workers": False,
    "eval_batches": 1,
    "augmented_regions": 1,
    "sentences_per_image": 1,
}


class World:
    """Runs recipes in the current folder, which it fills, each once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        write_published()
        write_mbart()
        for path, name in (("data/eobt", "mural/base"), ("data/ccmatrix", "etcl/base")):
            write_opus(path, read_recipe(name)["train"]["text_text"]["pairs"]["to"])
        write_emoji(folder / "emoji.parquet")
        self._trained: dict[tuple[str, str], Path] = {}
        for name in ("smalr/smalr", "smalr/smalr:mscoco"):
            [features] = [words for words in header_commands(name, own=True) if words[1] == "features"]
            self.run(*(self._replaced(word, name) for word in features[1:]), "--crop", "32")

    def stand_in(self, hub_id: str) -> str:
        folder = self.folder / "hub" / hub_id.replace("/", "--")
        if not folder.exists():
            HUB[hub_id](folder)
        return str(folder)

    def train(self, name: str, settings: str = "") -> Path:
        if (name, settings) not in self._trained:
            self._translate(name)
            output = self.folder / "out" / f"{name} {settings}".replace("/", "-").strip()
            changes = {**self._given(name), **self.small(name), **self._set_by(shlex.split(settings), name)}
            command = ["train", name, "--output", str(output)]
            self.run(*command, *(word for key, value in changes.items() for word in ("--set", f"{key}={value}")))
            self._trained[name, settings] = output
        return self._trained[name, settings]

    def evaluate(self, name: str) -> bool:
        """Evaluates by the commands in the header, or of what is extended; False if none: training evaluates it."""
        commands = header_commands(name)
        for _, *words in commands:
            if words[0] == "evaluate":
                words[2] = str(self.train(name))
                self.run(*(self._replaced(word, name) for word in words))
        return any(words[1] == "evaluate" for words in commands)

    def _translate(self, name: str) -> None:
        for _, *words in header_commands(name):
            if words[0] == _TRANSLATE and not Path(words[words.index("--output") + 1]).exists():
                runpy.run_path(str(ROOT / _TRANSLATE))["main"]([self._replaced(word, name) for word in words[1:]])

    def _given(self, name: str) -> dict[str, str]:
        """The settings of the command in the header; capitals are a user's own files, which recipes name as well."""
        for words in header_commands(name, own=True):
            if words[1:3] == ["train", name]:
                return self._set_by(words, name)
        return {}

    def _set_by(self, words: list[str], name: str) -> dict[str, str]:
        pairs = (word.split("=", 1) for option, word in pairwise(words) if option == "--set")
        return {key: self._replaced(value, name) for key, value in pairs if not value.isupper()}

    def small(self, name: str) -> dict[str, str]:
        content = read_recipe(name)
        changes: dict[str, Any] = {"training.use_cpu": True, "training.precision": "float32"}
        parts = {f"stages.{stage['name']}.": stage for stage in content.get("stages") or ()}
        for part, given in (parts | {"": content, "text_model.": content.get("text_model") or {}}).items():
            for key, value in given.get("training", {}).items():
                if key in _NUMBERS and value:
                    changes[f"{part}training.{key}"] = _NUMBERS[key]
                elif key.endswith("_batch_sizes"):
                    changes[f"{part}training.{key}"] = dict.fromkeys(value, 2)
        if not {"max_steps", "num_train_epochs"} & content["training"].keys() and not content.get("stages"):
            changes["training.max_steps"] = 2
        if content["method"] == "rc3" and content["model"].get("from_pretrained") == "runs/mbart-50-trimmed":
            changes |= {f"model.overrides.{key}": value for key, value in PATCHES.items()}
            changes |= {"image.resize": 32, "image.crop": 32}
        if content.get("backbone") in HUB and "region_size" in content["model"].get("overrides", {}):
            changes["model.overrides.region_size"] = image_width(
                AutoConfig.from_pretrained(self.stand_in(content["backbone"]))
            )
        if preset := PRESETS.get(content["model"].get("preset", "")):
            changes["model.preset"] = preset
            if content["method"] in ("mural", "etcl"):
                changes |= {"image.resize": 36, "image.crop": 32}
            if content["method"] == "smalr":
                sizes = {"hidden_size": 16, "image_hidden_size": 16, "word_size": 4}
                changes |= {f"model.overrides.{key}": value for key, value in sizes.items()}
                if content["model"].get("overrides", {}).get("latent_tokens") != 0:
                    changes["model.overrides.latent_tokens"] = 8
        for key, value in _leaves(content):
            if key.endswith("vocab_size"):
                changes[key] = 420 if content["method"] == "rc3" else 900
            elif (other := self._replaced(value, name)) != value:
                changes[key] = other
        return {key: json.dumps(value) if not isinstance(value, str) else value for key, value in changes.items()}

    def _replaced(self, value: Any, name: str) -> Any:
        if isinstance(value, list):
            replaced = [self._replaced(each, name) for each in value]
            return value if replaced == value else json.dumps(replaced)
        if isinstance(value, dict):
            return {key: self._replaced(each, name) for key, each in value.items()}
        if not isinstance(value, str):
            return value
        if value in HUB:
            return self.stand_in(value)
        trained_by = TRAINED_BY.get(value)
        return value if trained_by is None or trained_by == name else str(self.train(trained_by))

    def run(self, *arguments: str) -> str:
        done = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
        assert done.exit_code == 0, f"{shlex.join(arguments)}\n{done.output}"
        return done.output


def header_commands(name: str, *, own: bool = False) -> list[list[str]]:
    """The commands in the comment above a recipe or a variant, in words; kinds of commands that it lacks come from the
    recipe that it extends, unless `own`."""
    base, _, variant = name.partition(":")
    file = find_recipe(base)
    text = file.read_text(encoding="utf-8")
    comments = (
        re.search(rf"((?:^  #.*\n)+)  {re.escape(variant)}:$", text, re.M)
        if variant
        else re.match(r"((?:#.*\n)*)", text)
    )
    lines = "".join(line.strip() + "\n" for line in comments[1].splitlines()) if comments else ""
    joined = re.sub(r"\\\n#\s*|\n#\s+(?=--)", " ", lines)
    shown = [line.removeprefix("#").strip() for line in joined.splitlines()]
    started = (re.sub(r"^(python .*-m |[A-Z_]+=\S+ )babelens", "babelens", line) for line in shown)
    wanted = ("babelens ", f"python {_TRANSLATE}")
    commands = [shlex.split(line, comments=True) for line in started if line.startswith(wanted)]
    content = parse(text)
    if variant:
        parents = content["variants"][variant].get("extends")
        parent = parents[0] if isinstance(parents, list) else parents
        above = f"{base}:{parent}" if parent else base
    elif "extends" in content:
        of_file, _, of_variant = content["extends"].partition(":")
        folder = str((file.parent / of_file).resolve().relative_to(RECIPES.resolve()))
        above = f"{folder}:{of_variant}" if of_variant else folder
    else:
        return commands
    kinds = {words[1] for words in commands}
    return commands if own else commands + [words for words in header_commands(above) if words[1] not in kinds]


def _leaves(content: Any, place: str = "") -> list[tuple[str, Any]]:
    """(dotted key, value) of nested mappings, of named lists too."""
    if isinstance(content, dict):
        return [leaf for key, value in content.items() for leaf in _leaves(value, f"{place}.{key}" if place else key)]
    if isinstance(content, list) and content and all(isinstance(each, dict) and "name" in each for each in content):
        parts = {each["name"]: {key: value for key, value in each.items() if key != "name"} for each in content}
        return _leaves(parts, place)
    return [(place, content)]
