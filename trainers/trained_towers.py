"""Applies the training option `towers` to a model: freezes weights of its towers, gives them learning rates, and
places and merges LoRA adapters."""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ..configuration.errors import TrainingSetupError
from ..configuration.frozen_towers import TOWERS
from ..modeling.modeling_mla_student import MlaStudentModel
from ..modeling.modeling_two_tower import TwoTowerModel
from .tower_layers import adapted_modules, layer_depths, tower_layers
from .tower_training import TowerTraining, named


class TrainedTowers:
    """The towers of a model, of which the named ones are trained as their settings say, and the others as before.

    Args:
        model: a MURAL, an ETCL or a student of MLA.
        settings: name of a tower -> how it is trained.
        seed: seed of the initial weights of LoRA adapters.

    Raises:
        TrainingSetupError: if a setting does not fit its tower.
    """

    def __init__(self, model: Any, settings: Mapping[str, TowerTraining], *, seed: int) -> None:
        check_towers(model, settings)
        self.model = model
        self.settings = settings
        self.seed = seed
        self._adapters: dict[str, Any] = {}
        for name, setting in settings.items():
            trained = trained_weights(model.towers[name], setting)
            for weight, parameter in model.towers[name].named_parameters():
                parameter.requires_grad_(weight in trained)
        self.place_adapters()

    @property
    def has_adapters(self) -> bool:
        """Whether the settings ask for LoRA."""
        return any(setting.train == "lora" for setting in self.settings.values())

    def place_adapters(self) -> bool:
        """Places LoRA adapters in the towers, unless they are there already.

        Returns:
            Whether there are new adapters.

        Raises:
            TrainingSetupError: if PEFT refuses them, or could not merge them after the training.
        """
        if self._adapters or not self.has_adapters:
            return False
        try:
            with torch.random.fork_rng():
                torch.manual_seed(self.seed)
                for name, setting in self.settings.items():
                    if setting.train == "lora":
                        with named(name):
                            self._adapters[name] = _new_adapters(self.model.towers[name], setting)
                            _check_adapters(self.model.towers[name])
        except TrainingSetupError:
            while self._adapters:
                self._adapters.popitem()[1].unload()
            raise
        return True

    def merge_adapters(self) -> None:
        """Adds the adapters to the weights that they adapt. The model then has the modules that it had before."""
        while self._adapters:
            self._adapters.popitem()[1].merge_and_unload()

    def learning_rates(self, base: float) -> dict[str, float]:
        """Returns the learning rates of the parameters of towers that have rates of their own, by name.

        Args:
            base: the learning rate of a tower's top layer, if its setting has no `rate`.
        """
        rates = {}
        for name, setting in self.settings.items():
            if setting.rate is not None or setting.decay is not None:
                top, decay = setting.rate or base, setting.decay or 1.0
                for parameter, depth in layer_depths(self.model.towers[name]).items():
                    rates[f"{TOWERS[name]}.{parameter}"] = top * decay**depth
        return rates


def check_towers(model: Any, settings: Mapping[str, TowerTraining]) -> None:
    """Checks whether settings fit the towers of a model, and leaves the model as it is.

    Args:
        model: a MURAL, an ETCL or a student of MLA.
        settings: name of a tower -> how it is trained.

    Raises:
        TrainingSetupError: if a setting does not fit its tower, or the model has no such towers.
    """
    if settings:
        check_has_towers(type(model))
    for name, setting in settings.items():
        with named(name):
            if isinstance(model, MlaStudentModel):
                check_student_tower(name, model.config.strategy)
            _check_tower(model.towers[name], setting)


def check_student_tower(name: str, strategy: str) -> None:
    """
    Args:
        name: of a tower, for which there are settings.
        strategy: the student's.

    Raises:
        TrainingSetupError: if a student with this strategy cannot train a part of the tower.
    """
    if name != "text":
        raise TrainingSetupError("a student's images are embedded by its native model, which stays as it is")
    if strategy == "acquisition":
        raise TrainingSetupError(
            "the strategy 'acquisition' trains acquirers in a text encoder that stays as it is; leave it out, or take "
            "'projection' or 'distillation'"
        )


def check_has_towers(kind: type) -> None:
    """
    Args:
        kind: the class of a model.

    Raises:
        TrainingSetupError: if it has no towers that `towers` could divide.
    """
    if not issubclass(kind, TwoTowerModel | MlaStudentModel):
        raise TrainingSetupError(
            "towers: it divides the towers of a MURAL or an ETCL, or the text encoder of a student of MLA, and "
            f"{kind.__name__} is none of them; leave it out"
        )


def _check_tower(tower: Any, setting: TowerTraining) -> None:
    kind, count = tower.config.model_type, len(tower_layers(tower))
    if setting.layers is not None and setting.layers > count:
        raise TrainingSetupError(f"layers={setting.layers} is more than this tower ({kind}) has: {count}")
    if setting.decay is not None and not count:
        raise TrainingSetupError(f"decay={setting.decay}: the layers of this tower ({kind}) cannot be told apart")
    if setting.train == "biases" and not trained_weights(tower, setting):
        raise TrainingSetupError(f"train: biases trains nothing, because this tower ({kind}) has no biases")
    has_targets = any(name.startswith("target_") for name in setting.lora or {})
    if setting.train == "lora" and not has_targets and not adapted_modules(tower):
        raise TrainingSetupError(
            f"this tower ({kind}) has neither attention nor a pointwise convolution in each layer: name the modules "
            "to adapt in lora.target_modules"
        )


def trained_weights(tower: nn.Module, setting: TowerTraining) -> set[str]:
    """Returns the names of the parameters of a tower that are trained, apart from LoRA adapters."""
    if setting.layers is not None:
        return {name for name, depth in layer_depths(tower).items() if depth < setting.layers}
    names = {name for name, _ in tower.named_parameters()}
    if setting.train == "biases":
        return {name for name in names if name.rpartition(".")[2].endswith("bias")}
    return names if setting.train == "all" else set()


def _new_adapters(tower: nn.Module, setting: TowerTraining) -> Any:
    """Places LoRA adapters in a tower, and returns PEFT's model around it, which merges them."""
    from peft import LoraModel

    # PEFT does not look for layers where modules are given by their whole names.
    layers = (setting.lora or {}).get("layers_to_transform")
    config = setting.lora_config(adapted_modules(tower, [layers] if isinstance(layers, int) else layers))
    try:
        return LoraModel(tower, config, "default")
    except (TypeError, ValueError, NotImplementedError) as error:
        raise TrainingSetupError(f"lora: {error}") from error


def _check_adapters(tower: nn.Module) -> None:
    """Checks whether adapters are trained, and can be merged, which some kinds of LoRA cannot."""
    from peft.tuners.lora import LoraLayer

    adapted: Any = next(module for module in tower.modules() if isinstance(module, LoraLayer))
    try:
        copy.deepcopy(adapted).merge()
    except (ValueError, NotImplementedError) as error:
        raise TrainingSetupError(f"lora: {error}") from error
    if not any(parameter.requires_grad for parameter in tower.parameters()):
        raise TrainingSetupError("lora: with these keys, PEFT trains no weight")
