"""How long a step of training on translations takes on this machine."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any, Self

import torch
from transformers import ProcessorMixin

from ..inference.autocasting import autocasting
from ..inference.embedder import Embedder
from ..modeling.modeling_mla_base import MlaPreTrainedModel
from ..trainers.arguments import MlaTrainingArguments
from ..trainers.frozen_features import HalfFrozenText
from ..trainers.tower_features import TEXT
from ..trainers.whole_checkpoints import fast_attention

_FEW = 8  # texts of a first step, which tells how long a whole one takes
_LONGEST_STEP = 5.0  # seconds; of a longer one, the time is estimated
_MEASURED_STEPS = 2
_MEASURED_TEXTS = 32  # of a frozen text encoder


@dataclass(frozen=True)
class StepTime:
    """The time that training on translations takes.

    Args:
        seconds: of a step.
        is_measured: whether they are the mean of two whole steps. Where one would take more than five seconds, they
            are estimated by a step of eight texts.
        seconds_per_text: of computing what the frozen layers of a text encoder give for a text, before the first step;
            0 if all of it is trained.
    """

    seconds: float
    is_measured: bool
    seconds_per_text: float = 0.0


def step_time(
    model: MlaPreTrainedModel,
    processor: ProcessorMixin,
    language: str,
    texts: Sequence[str],
    args: MlaTrainingArguments,
) -> StepTime:
    """Measures a step of training on translations into the native language, whose features are computed before.

    Neither weights nor PyTorch's random numbers change.

    Args:
        model: a model that acquires languages.
        processor: its processor.
        language: the language of the texts.
        texts: as many as there are; they are repeated.
        args: batch size, precision and device.
    """
    model = model.to(args.device)
    was_training = model.training
    try:
        with (
            torch.random.fork_rng(),
            fast_attention(model, args.device, args.chosen_precision.name),
            _Steps(model.train(), processor, language, texts, args) as steps,
        ):
            steps.run(1)
            estimate = steps.run(_FEW) * max(args.per_device_train_batch_size / _FEW, 1)
            if estimate > _LONGEST_STEP:
                return StepTime(estimate, False, steps.seconds_per_text)
            measured = [steps.run(args.per_device_train_batch_size) for _ in range(_MEASURED_STEPS)]
            return StepTime(sum(measured) / _MEASURED_STEPS, True, steps.seconds_per_text)
    finally:
        model.train(was_training)


class _Steps:
    """Steps on texts, on the features of a frozen text encoder, or on the states below its trained layers. What is
    computed once is measured beforehand."""

    def __init__(
        self,
        model: Any,
        processor: ProcessorMixin,
        language: str,
        texts: Sequence[str],
        args: MlaTrainingArguments,
    ) -> None:
        self.model, self.processor, self.language, self.texts, self.args = model, processor, language, texts, args
        self.weights = [parameter for parameter in model.parameters() if parameter.requires_grad]
        # The optimizer changes copies, so that the model stays as it is.
        self.copies = [torch.nn.Parameter(weight.detach().clone()) for weight in self.weights]
        self.optimizer = torch.optim.AdamW(self.copies)
        self.features: torch.Tensor | None = None
        self.seconds_per_text = 0.0
        self._until_end = ExitStack()
        if args.cache_frozen_features and TEXT in getattr(model, "frozen_towers", ()):
            self._compute_features()
        elif args.cache_frozen_features:
            self._compute_states()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._until_end.close()

    def _compute_features(self) -> None:
        some = [self.texts[index % len(self.texts)] for index in range(_MEASURED_TEXTS)]
        embedder = Embedder(self.model.tower_features, self.processor, batch_size=self.args.per_device_eval_batch_size)
        began = time.perf_counter()
        with self._autocast():
            features = embedder.encode_text(some, language=self.language, normalize=False)
        self.seconds_per_text = (time.perf_counter() - began) / len(some)
        self.features = torch.from_numpy(features).to(self.model.device)

    def _compute_states(self) -> None:
        folder = self._until_end.enter_context(TemporaryDirectory(ignore_cleanup_errors=True))
        half_frozen = HalfFrozenText.of(self.model, self.processor, self.args, cache_dir=folder)
        if half_frozen is None:
            return
        some = dict.fromkeys(self.texts[: max(self.args.per_device_train_batch_size, _FEW)])
        half_frozen.add(some)
        began = time.perf_counter()
        half_frozen.compute()
        self.seconds_per_text = (time.perf_counter() - began) / len(some)
        half_frozen.start(is_sharded=False)
        self._until_end.callback(half_frozen.stop)

    def _autocast(self) -> torch.autocast:
        return autocasting(self.model.device, self.args.chosen_precision.name)

    def run(self, count: int) -> float:
        """The seconds of a step on `count` texts."""
        chosen = [index % len(self.texts) for index in range(count)]
        began = time.perf_counter()
        if self.features is None:
            batch = [self.texts[index] for index in chosen]
            inputs = self.processor(text=batch, language=self.language, return_tensors="pt").to(self.model.device)
        else:
            inputs = {"text_features": self.features[[index % len(self.features) for index in chosen]]}
        native = torch.zeros(count, self.model.config.projection_dim, device=self.model.device)
        with self._autocast():
            loss = self.model(**inputs, paired_text_features=native, return_loss=True, return_logits=False).loss
        loss.backward()
        for copy, weight in zip(self.copies, self.weights, strict=True):
            copy.grad, weight.grad = weight.grad, None
        self.optimizer.step()
        loss.item()  # waits for an accelerator
        return time.perf_counter() - began
