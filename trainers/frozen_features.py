"""A cache on disk for the features of a frozen model.

The key of a cached file is a digest of everything that the features depend on: the weights and the configuration of
the model, the settings of its processor, and every input. A change of any of them changes the key.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np
import torch
from datasets import config
from datasets.utils.logging import tqdm
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from ..configuration.errors import NonFiniteError
from ..configuration.files import atomic_file, made
from ..configuration.identity import code_of, contents_digest, model_identity, settings_of
from ..configuration.locks import in_turn
from ..configuration.machine import available_memory
from ..modeling.encoding import autocasting, evaluation_mode
from .arguments import ContrastiveTrainingArguments
from .checkpoints import save_errors
from .lower_layers import LowerLayers, Texts, TextStates, frozen_lower_layers

logger = logging.getLogger(__name__)

DEFAULT_CACHE = Path(config.HF_DATASETS_CACHE) / "babelens" / "features"
_CHECKED_AT_ONCE = 2**16  # rows


def frozen_features(
    compute: Callable[[], np.ndarray],
    *,
    weights: dict[str, Tensor],
    settings: str,
    items: Iterable[bytes],
    cache_dir: str | Path | None = None,
) -> np.ndarray:
    """Returns `compute()`, or its cached result, float32 [N, d]; otherwise as `frozen_tensor`."""
    found = frozen_tensor(
        lambda: torch.from_numpy(np.ascontiguousarray(compute())),
        weights=weights,
        settings=settings,
        items=items,
        cache_dir=cache_dir,
    )
    array: np.ndarray = found.numpy()
    return array


def frozen_tensor(
    compute: Callable[[], Tensor],
    *,
    weights: dict[str, Tensor],
    settings: str,
    items: Iterable[bytes],
    cache_dir: str | Path | None = None,
) -> Tensor:
    """Returns `compute()`, or its cached result for the same weights, settings and items.

    The result is mapped from the file: processes of one machine share its memory. While another process computes the
    same features, this one waits for them, and logs that it does.

    Args:
        compute: computes the features of all items, [N, ...] of any floating-point type.
        weights: the weights of the frozen model.
        settings: the configuration of the model and the settings of its processor, as text.
        items: the inputs as bytes, in order.
        cache_dir: the folder of the cache; by default a folder in the Hugging Face datasets cache. If a file in it is
            damaged, a warning names it, and the features are computed again.

    Raises:
        NonFiniteError: if a feature is NaN or infinite.
        SaveError: if the features cannot be written.
    """
    folder = Path(cache_dir or DEFAULT_CACHE)
    file = folder / f"{contents_digest(weights, settings, items)}.safetensors"
    kept = _kept(file)
    if kept is not None:
        return kept
    with made(folder), in_turn(file):
        # Another process may have computed them while this one waited for it.
        kept = _kept(file) if file.is_file() else None
        if kept is None:
            logger.info("computing features that are not in %s", folder)
            TemporaryDirectory(dir=folder).cleanup()  # raises before hours of computing if nothing can be written here
            features = compute()
            if not _is_finite(features):
                raise NonFiniteError(f"{len(features)} features of a frozen model: some are NaN or infinite")
            with atomic_file(file) as unfinished, save_errors(file):
                save_file({"features": features.contiguous()}, unfinished)
            kept = load_file(file)["features"]
    return kept


def _kept(file: Path) -> Tensor | None:
    """The features in a file; None if there is no file or it is damaged."""
    if not file.is_file():
        return None
    try:
        features: Tensor = load_file(file)["features"]
        if not _is_finite(features):
            raise ValueError("it holds numbers that are NaN or infinite")
        return features
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        logger.warning("%s is damaged (%s): its features are computed again", file, error)
        return None


def _is_finite(features: Tensor) -> bool:
    return all(bool(part.isfinite().all()) for part in features.split(_CHECKED_AT_ONCE))


# ---- Half-frozen text towers ----
#
# A text tower of which the upper layers are trained: the states below them are computed once for all epochs and
# runs, and kept on disk.


class HalfFrozenText:
    """The frozen lower layers of a model's text tower, and their states of the texts of a training.

    Args:
        model: a model with a `text_model`.
        processor: its processor.
        args: training arguments: the precision of the states, and the number of texts that are read at a time.
        cache_dir: the folder of the states.
    """

    def __init__(
        self, model: Any, processor: Any, args: ContrastiveTrainingArguments, *, cache_dir: str | Path | None = None
    ) -> None:
        self.model, self.processor, self.args, self.cache_dir = model, processor, args, cache_dir
        self.layers = LowerLayers(model.text_model, frozen_lower_layers(model.text_model))
        self._texts: dict[str, None] = {}
        self._tokens: list[list[int]] = []
        self._states: TextStates | None = None
        self._digest = ""
        self._frozen: list[Tensor] = []
        self._skipping = ExitStack()

    @classmethod
    def of(cls, model: Any, processor: Any, args: ContrastiveTrainingArguments, **options: Any) -> Self | None:
        """Returns the frozen lower layers of the text tower of a model, which has trained layers above them; None
        where there are none, and where their states cannot be computed before the training."""
        tower = getattr(model, "text_model", None)
        if tower is None or not any(weight.requires_grad for weight in tower.parameters()):
            return None
        # Texts that change at random have other states in each step. Compiled layers, and the copies of a model that
        # DataParallel makes, are not skipped.
        if args.text_augmentation is not None or args.torch_compile or args.n_gpu > 1:
            return None
        return cls(model, processor, args, **options) if frozen_lower_layers(tower) else None

    def add(self, texts: Iterable[str]) -> None:
        """Adds texts, whose states `compute` computes."""
        self._texts |= dict.fromkeys(texts)

    def compute(self) -> None:
        """Computes the states of the texts that were added, or reads them from disk."""
        texts, self._texts = list(self._texts), {}
        if texts:
            self._tokens = self.processor(text=texts, language="und", padding=False)["input_ids"]
            self._compute()

    def start(self, *, is_sharded: bool) -> None:
        """Lets the lower layers pass on the states of texts while the tower is trained, until `stop`.

        Args:
            is_sharded: whether no process has whole weights. Otherwise the states are computed anew if their layers or
                the weights of these have changed since, as when a checkpoint is resumed.
        """
        self.stop()
        if self._states is not None and not is_sharded:
            count = frozen_lower_layers(self.model.text_model)
            if count != self.layers.count or contents_digest(self.layers.weights()) != self._digest:
                self.layers, self._states = LowerLayers(self.model.text_model, count), None
                if count:
                    self._compute()
        if self._states is not None:
            # Those that are whole: afterwards, a layer may have other ones in their places (FSDP).
            self._frozen = [*self.layers.weights().values()]
            self._skipping.enter_context(self.layers.skipped(self._of))

    def stop(self) -> None:
        """Lets all layers run again."""
        self._skipping.close()

    def _compute(self) -> None:
        tower, args = self.model.text_model.to(self.args.device), self.args
        # The decisions, too, are made in turn: a process that leaves it out would keep the others waiting.
        with args.main_process_first(desc="states of a half-frozen text tower"):
            width = self._width_of_states()
            if width is None:
                kind = tower.config.model_type
                logger.info(
                    "the layers of this text tower (%s) cannot start in the middle: all run in every step", kind
                )
                return
            # Under bfloat16, the next layer rounds what it reads.
            states = TextStates(self._tokens, width, torch.bfloat16 if self.precision == "bfloat16" else tower.dtype)
            what = f"the states below the upper {len(self.layers.above)} layers of {len(states.tokens)} texts"
            size = states.size / 1e9
            if states.size > available_memory() / 2:
                logger.warning(
                    "%s would take %.1f GB, more than half of the free memory: all layers run in every step",
                    what,
                    size,
                )
                return
            logger.info("%s take %.1f GB", what, size)
            weights = self.layers.weights()
            states.states = frozen_tensor(
                lambda: self._computed(states),
                weights=weights,
                settings=f"{settings_of(tower.config)} {code_of(tower)}\n"
                f"states after layer {self.layers.count} {self.precision}",
                items=(ids.tobytes() for ids in states.tokens),
                cache_dir=self.cache_dir,
            )
            self._states, self._digest = states, contents_digest(weights)

    @property
    def precision(self) -> str:
        """The name of the precision in which the tower is trained."""
        return self.args.chosen_precision.name

    def _of(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor | None:
        if self._states is None or any(weight.requires_grad for weight in self._frozen):
            return None
        found = self._states.of(input_ids, attention_mask)
        return None if found is None else found.to(input_ids.device, self.model.text_model.dtype)

    def _width_of_states(self) -> int | None:
        """The width of the states, if the tower can start from them with the texts as the processor pads them."""
        by_length = sorted((ids for ids in self._tokens if ids), key=len)
        if (
            not by_length
            or getattr(self.processor, "pad_to_max_length", False)
            or self.processor.tokenizer.padding_side != "right"
        ):
            return None
        both = [by_length[0], by_length[-1]]
        # A tower that reads windows of some length pads one of the last two batches.
        batches = [self._padded(both[:1]), self._padded(both), self._padded(both, length=len(both[1]) + 1)]

        def read(input_ids: Tensor, attention_mask: Tensor) -> Tensor:
            features: Tensor = self.model.tower_features.get_text_features(input_ids, attention_mask).pooler_output
            return features

        modes = {module: module.training for module in self.model.modules()}
        with evaluation_mode(self.model):
            width = self.layers.width_of_states(read, batches)
        try:
            self.model.train()
            return width if width is not None and self.layers.are_still(read, batches[1]) else None
        finally:
            for module, training in modes.items():
                module.training = training

    def _computed(self, states: TextStates) -> Tensor:
        tower = self.model.text_model

        def states_of(tokens: list[np.ndarray]) -> Tensor:
            with self.layers.recorded() as found:
                input_ids, attention_mask = self._padded(tokens)
                tower(input_ids=input_ids, attention_mask=attention_mask, return_dict=True)
            return found[0]

        with evaluation_mode(self.model), autocasting(self.args.device, self.precision):
            return states.computed(states_of, self.args.per_device_eval_batch_size, "States of texts")

    def _padded(self, tokens: list[Any], length: int | None = None) -> Texts:
        padded = self.processor.tokenizer.pad(
            {"input_ids": [np.asarray(ids).tolist() for ids in tokens]},
            padding=True if length is None else "max_length",
            max_length=length,
            return_tensors="pt",
        )
        return padded["input_ids"].to(self.args.device), padded["attention_mask"].to(self.args.device)


# ---- Text encoders ----
# What a frozen text encoder gives for texts, read once and kept on disk.


@dataclass
class EncoderFeatures:
    """Reads texts with a frozen text encoder. Each group of texts has a file of its own in the cache, so that a
    language that was read once is not read again beside others.

    Args:
        encoder: the text encoder.
        tokenizer: its tokenizer.
        pooled: gives the pooled features [N, W] of `input_ids` [N, T] and `attention_mask` [N, T].
        pooling: how they are pooled.
        prompt: what stands before every text.
        max_length: number of tokens at which texts are cut.
        batch_size: texts that are read at a time.
        precision: `float32` or `bfloat16`.
        cache_dir: the folder of the cache; by default that of the features of frozen towers.
    """

    encoder: nn.Module
    tokenizer: PreTrainedTokenizerBase
    pooled: Callable[[Tensor, Tensor], Tensor | None]
    pooling: str
    prompt: str
    max_length: int
    batch_size: int = 64
    precision: str = "float32"
    cache_dir: str | None = None

    def of(self, groups: Mapping[Any, Sequence[str]]) -> dict[Any, Tensor]:
        """Returns the features [n, W] of each group of texts."""
        count = sum(map(len, groups.values()))
        with tqdm(total=count, desc="Reading texts", unit=" texts", leave=False, disable=None) as bar:
            return {name: self._kept(texts, bar) for name, texts in groups.items()}

    @cached_property
    def identity(self) -> str:
        """What the features of a text depend on."""
        settings = self.pooling, self.precision, str(self.max_length)
        return model_identity(self.encoder, self.tokenizer, "pooled texts", *settings)

    def _kept(self, texts: Sequence[str], bar: tqdm) -> Tensor:
        whole = [self.prompt + text for text in texts]
        before = bar.n
        features = frozen_tensor(
            lambda: self._read(whole, bar),
            weights={},  # the identity has them
            settings=self.identity,
            items=(text.encode() for text in whole),
            cache_dir=self.cache_dir,
        )
        bar.update(before + len(whole) - bar.n)
        return features

    def _read(self, texts: list[str], bar: tqdm) -> Tensor:
        parts, order = [], []
        for rows, read in self.batches(texts):
            found = self.pooled(read["input_ids"], read["attention_mask"])
            assert found is not None
            parts.append(found.float().cpu())
            order += rows
            bar.update(len(rows))
        return torch.cat(parts)[torch.tensor(order).argsort()]

    def batches(self, texts: Sequence[str]) -> Iterator[tuple[list[int], Mapping[str, Tensor]]]:
        """Yields the positions of some texts, short ones first, and their tokens; between them, the encoder is as it
        is read with."""
        order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
        device = next(self.encoder.parameters()).device
        length = {"truncation": True, "max_length": self.max_length}
        with evaluation_mode(self.encoder), autocasting(device, self.precision):
            for start in range(0, len(order), self.batch_size):
                rows = order[start : start + self.batch_size]
                chosen = [texts[row] for row in rows]
                yield rows, self.tokenizer(chosen, padding=True, return_tensors="pt", **length).to(device)
