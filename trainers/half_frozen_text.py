"""A text tower of which the upper layers are trained: the states below them are computed once for all epochs and runs,
and kept on disk."""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from ..configuration.free_memory import available_memory
from ..inference.autocasting import autocasting
from ..inference.embedder import evaluation_mode
from .arguments import ContrastiveTrainingArguments
from .frozen_features import frozen_tensor
from .lower_layers import LowerLayers, TextStates, frozen_lower_layers

logger = logging.getLogger(__name__)


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
        self._states: TextStates | None = None

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
        if not texts:
            return
        tower = self.model.text_model.to(self.args.device)
        tokens = self.processor(text=texts, language="und", padding=False)["input_ids"]
        by_length = sorted(tokens, key=len)
        with evaluation_mode(self.model):
            width = self.layers.width_of_states(**self._padded([by_length[0], by_length[-1]]))
        if width is None:
            logger.info(
                "the layers of a %s cannot start in the middle: all run in every step", tower.config.model_type
            )
            return
        # Under bfloat16, the next layer rounds what it reads.
        states = TextStates(tokens, width, torch.bfloat16 if self.precision == "bfloat16" else tower.dtype)
        below = f"the states below the upper {len(self.layers.above)} layers of {len(states.tokens)} texts"
        if states.size > available_memory() / 2:
            logger.warning(
                "%s would take %.1f GB, more than half of the free memory: all layers run in every step",
                below,
                states.size / 1e9,
            )
            return
        logger.info("%s take %.1f GB", below, states.size / 1e9)
        with self.args.main_process_first(desc="states of a half-frozen text tower"):
            states.states = frozen_tensor(
                lambda: self._computed(states),
                weights=self.layers.weights(),
                settings=f"{tower.config.to_json_string()}\nstates after layer {self.layers.count} {self.precision}",
                items=(ids.tobytes() for ids in states.tokens),
                cache_dir=self.cache_dir,
            )
        self._states = states

    @contextmanager
    def skipping(self) -> Iterator[None]:
        """In this context, the lower layers do not run on texts of the training while the tower is trained."""
        with self.layers.skipped(self._of) if self._states is not None else nullcontext():
            yield

    @property
    def precision(self) -> str:
        """The name of the precision in which the tower is trained."""
        return self.args.chosen_precision.name

    def _of(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor | None:
        assert self._states is not None
        found = self._states.of(input_ids, attention_mask)
        return None if found is None else found.to(input_ids.device, self.model.text_model.dtype)

    def _computed(self, states: TextStates) -> Tensor:
        tower = self.model.text_model

        def states_of(tokens: list[np.ndarray]) -> Tensor:
            with self.layers.recorded() as found:
                tower(**self._padded(tokens), return_dict=True)
            return found[0]

        with evaluation_mode(self.model), autocasting(self.args.device, self.precision):
            return states.computed(states_of, self.args.per_device_eval_batch_size, "States of texts")

    def _padded(self, tokens: list[Any]) -> dict[str, Tensor]:
        padded = self.processor.tokenizer.pad(
            {"input_ids": [np.asarray(ids).tolist() for ids in tokens]},
            padding=True,
            padding_side="right",
            return_tensors="pt",
        )
        return {name: padded[name].to(self.args.device) for name in ("input_ids", "attention_mask")}
