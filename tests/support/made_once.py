import copy
import json
from collections.abc import Callable
from typing import Any

import torch


class MadeOnce:
    """Builds a model and its processor once for each set of arguments, and returns copies. After a call, torch's
    random numbers are in the state after building, so a test does not depend on those before it."""

    def __init__(self, build: Callable[..., tuple[Any, Any]]) -> None:
        self._build = build
        self._made: dict[Any, tuple[Any, Any, torch.Tensor]] = {}

    def __call__(self, *classes: type, **options: Any) -> tuple[Any, Any]:
        model, processor, state = self._parts(classes, options)
        torch.set_rng_state(state)
        return copy.deepcopy((model, processor))

    def processor(self, *classes: type, **options: Any) -> Any:
        return copy.deepcopy(self._parts(classes, options)[1])

    def config(self, *classes: type, **options: Any) -> Any:
        return copy.deepcopy(self._parts(classes, options)[0].config)

    def _parts(self, classes: tuple[type, ...], options: dict[str, Any]) -> tuple[Any, Any, torch.Tensor]:
        try:
            key = classes, json.dumps(options, sort_keys=True)
        except TypeError:  # a configuration or a model among the options: two that look alike may differ
            return *self._build(*classes, **options), torch.get_rng_state()
        if key not in self._made:
            self._made[key] = *self._build(*classes, **options), torch.get_rng_state()
        return self._made[key]


def draw_maps(model: Any) -> None:
    """Random maps of a `RidgeModel`, whose own are zeros."""
    for name, values in model.maps.named_buffers():
        if name == "ngrams":
            values.copy_(torch.randint(-127, 128, values.shape))
        elif name != "importance":
            values.copy_(torch.randn(values.shape))


def settle_batch_norm(model: torch.nn.Module, pixel_values: torch.Tensor) -> None:
    """Gives batch norm the statistics of images. With the initial ones, an untrained EfficientNet outputs zeros."""
    norms = [module for module in model.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 1.0
    with torch.no_grad():
        model.train()(pixel_values=pixel_values)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    model.eval()
