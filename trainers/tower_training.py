"""Which weights of a tower are trained: all, none (Zhai et al. 2022, LiT), those of the upper layers, the biases (Ben
Zaken et al. 2022, BitFit), or low-rank adapters (Hu et al. 2022, LoRA), by PEFT. Each layer may have a lower learning
rate than the layer above it (Howard and Ruder 2018).
"""

import copy
import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

import torch
from torch import nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from ..configuration.configuration_two_tower import TOWERS
from ..configuration.errors import TrainingSetupError, did_you_mean

Trained = Literal["all", "none", "upper", "biases", "lora"]


@dataclass(frozen=True)
class TowerTraining:
    """How a tower is trained.

    Args:
        train: `all`, `none`, `upper` for the `layers` at the top and what is above them, `biases`, or `lora`. All
            other weights of the tower are frozen.
        layers: number of layers that `upper` trains.
        rate: peak learning rate of the tower's top layer; by default the `learning_rate` of the training arguments, or
            that of the task.
        decay: factor from the learning rate of each layer to that of the layer below it; embeddings are below all
            layers. By default, all layers have the same rate.
        lora: for `lora`, keyword arguments of `peft.LoraConfig`. By default, `target_modules` are the projections of
            the attention, or the pointwise convolutions of a convolutional tower.

    Raises:
        TrainingSetupError: for impossible values, and for options that contradict each other.
    """

    train: Trained = "all"
    layers: int | None = None
    rate: float | None = None
    decay: float | None = None
    lora: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        _check_known(self.train, get_args(Trained), "train")
        for name in ("rate", "decay"):
            value = getattr(self, name)
            if value is not None and not (_is_number(value) and 0 < value < math.inf):
                raise TrainingSetupError(f"{name}={value!r} must be a positive number")
        if self.decay is not None and self.decay > 1:
            raise TrainingSetupError(f"decay={self.decay} must be at most 1: lower layers have lower rates")
        if self.train == "none" and self.rate is not None:
            raise TrainingSetupError(f"rate={self.rate} is for a tower that is trained, and train: none freezes it")
        if self.train == "none" and self.decay is not None:
            raise TrainingSetupError(f"decay={self.decay} is for layers that are trained, and train: none trains none")
        if self.train == "upper" and self.layers is None:
            raise TrainingSetupError("train: upper needs layers, the number of layers that are trained")
        if self.train != "upper" and self.layers is not None:
            raise TrainingSetupError(f"layers={self.layers} is for train: upper, and not for train: {self.train}")
        if self.layers is not None and (type(self.layers) is not int or self.layers < 1):
            raise TrainingSetupError(f"layers={self.layers!r} must be a positive whole number")
        if self.lora is not None and self.train != "lora":
            raise TrainingSetupError(f"lora is for train: lora, and not for train: {self.train}")
        if self.train == "lora":
            self.lora_config([])

    def lora_config(self, target_modules: list[str]) -> Any:
        """Returns the `peft.LoraConfig`.

        Args:
            target_modules: the default of this key.

        Raises:
            TrainingSetupError: if PEFT does not accept the keys of `lora`.
        """
        from peft import LoraConfig  # Imported here, because it imports all of PEFT.

        given = self.lora or {}
        if not isinstance(given, Mapping):
            raise TrainingSetupError(f"lora={given!r} must be a mapping, such as {{'r': 16}}")
        for name in ("modules_to_save", "trainable_token_indices"):
            if given.get(name):
                raise TrainingSetupError(f"lora.{name}: train: lora trains adapters, and no weights of the tower")
        try:
            return LoraConfig(**{"target_modules": target_modules} | given)
        except (TypeError, ValueError) as error:
            raise TrainingSetupError(f"lora: {error}") from error


@contextmanager
def named(tower: str) -> Iterator[None]:
    """Begins the messages of errors with the name of the tower, as in `towers.text: …`."""
    try:
        yield
    except TrainingSetupError as error:
        raise TrainingSetupError(f"towers.{tower}: {error}") from error


def checked_training(towers: Mapping[str, Any] | None) -> dict[str, TowerTraining]:
    """Returns the settings of the training option `towers`.

    Args:
        towers: name of a tower -> keyword arguments of `TowerTraining`.

    Raises:
        TrainingSetupError: for an unknown tower or key, or an impossible value.
    """
    checked = {}
    for tower, given in (towers or {}).items():
        _check_known(tower, TOWERS, "towers")
        with named(tower):
            if not isinstance(given, Mapping):
                raise TrainingSetupError(f"{given!r} must be a mapping, such as {{'train': 'none'}}")
            for key in given:
                _check_known(key, [field.name for field in fields(TowerTraining)], "its keys")
            checked[tower] = TowerTraining(**given)
    return checked


def frozen_by(settings: Mapping[str, Any]) -> dict[str, str]:
    """Returns tower -> the keys of a configuration that freeze it, as text.

    Args:
        settings: keys of the configuration with their values, among them `freeze` and `strategy` where it has these.
    """
    if settings.get("strategy") == "projection":  # of a student of MLA
        return {"text": "strategy: projection"}
    freeze = settings.get("freeze") or ()
    freeze = [freeze] if isinstance(freeze, str) else freeze
    return dict.fromkeys(freeze, f"freeze: {', '.join(freeze)}")


def check_frozen(towers: Mapping[str, Any] | None, frozen: Mapping[str, str]) -> None:
    """Checks that the option `towers` states in `train` how each tower that it names is trained, if the model's
    configuration freezes the tower.

    Args:
        towers: the training option, as in `checked_training`.
        frozen: the towers that the configuration freezes, and the keys that do (`frozen_by`).

    Raises:
        TrainingSetupError: for a frozen tower without `train`, such as with a `rate` alone.
    """
    for tower, given in (towers or {}).items():
        if tower not in frozen or not isinstance(given, Mapping) or "train" in given:
            continue
        rates = [key for key in ("rate", "decay") if key in given]
        if not rates:
            raise TrainingSetupError(
                f"towers.{tower}: the model freezes it ({frozen[tower]}); state what is trained, such as train: all, "
                "or leave it out"
            )
        raise TrainingSetupError(
            f"towers.{tower}: {rates[0]}={given[rates[0]]} is for a tower that is trained, and the model freezes "
            f"it ({frozen[tower]}); leave {rates[0]} out, or state what is trained, such as train: all"
        )


def _check_known(given: object, known: Collection[str], where: str) -> None:
    if given not in known:
        raise TrainingSetupError(
            f"{where}: there is no {given!r}{did_you_mean(given, known)}; there are: {', '.join(known)}"
        )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# ---- Models with trained towers ----
#
# Applies the training option `towers` to a model: freezes weights of its towers, gives them learning rates, and
# places and merges LoRA adapters.


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
            self.remove_adapters()
            raise
        return True

    def remove_adapters(self) -> None:
        """Takes the adapters away. The model then has the modules and the weights that it had before."""
        while self._adapters:
            self._adapters.popitem()[1].unload()

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
            if strategy := getattr(model.config, "strategy", None):  # of a student of MLA
                check_student_tower(name, strategy)
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
    if not hasattr(kind, "towers"):
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


# ---- Layers ----
#
# The layers of a tower, whatever its kind: the blocks of a transformer, or the blocks or stages of a convolutional
# network, in their order.


def tower_layers(tower: nn.Module) -> list[list[nn.Module]]:
    """Returns the layers of a tower from the bottom to the top, each as a list of modules; none if it has no list of
    layers.

    They are the outermost list of modules that holds the most weights: the layers of BERT, T5 and ViT, the blocks of
    an EfficientNet, the stages of Swin, ConvNeXt and ResNet. Some towers have several lists of the same length side by
    side, such as one of attentions and one of feed-forward layers.
    """
    lists: dict[str, list[nn.Module]] = {}
    for name, module in tower.named_modules():
        is_inside = any(name.startswith(f"{outer}.") for outer in lists)
        if isinstance(module, nn.ModuleList | nn.Sequential) and not is_inside and _size(module):
            lists[name] = [entry for entry in module if _size(entry)]
    if not lists:
        return []
    largest = max(lists, key=lambda name: sum(map(_size, lists[name])))
    parent, count = largest.rpartition(".")[0], len(lists[largest])
    beside = [
        entries for name, entries in lists.items() if name.rpartition(".")[0] == parent and len(entries) == count
    ]
    return [list(layer) for layer in zip(*beside, strict=True)]


def layer_depths(tower: nn.Module) -> dict[str, int]:
    """Returns the depth of each parameter of a tower, by its name: 0 in the top layer and what is above it, such as a
    final normalization, 1 in the layer below, and so on; embeddings are below all layers."""
    layers = tower_layers(tower)
    of_layers = {
        parameter: len(layers) - 1 - index
        for index, layer in enumerate(layers)
        for module in layer
        for parameter in module.parameters()
    }
    embeddings = {
        parameter
        for module in tower.modules()
        if isinstance(module, nn.Embedding)
        for parameter in module.parameters()
    }
    depths, has_layers_below = {}, False
    for name, parameter in tower.named_parameters():
        has_layers_below = has_layers_below or parameter in of_layers
        outside = 0 if has_layers_below and parameter not in embeddings else len(layers)
        depths[name] = of_layers.get(parameter, outside)
    return depths


_ATTENTION = ("attention", "attn")


def adapted_modules(tower: nn.Module, indices: Collection[int] | None = None) -> list[str]:
    """Returns the names of the modules that LoRA adapts by default: the projections of the attention, or the pointwise
    convolutions of a convolutional tower, if each of its layers has one; otherwise none.

    Args:
        tower: the tower.
        indices: the layers whose modules are named, 0 for the lowest; by default all.
    """
    within = [{part for module in layer for part in module.modules()} for layer in tower_layers(tower)]
    names = {module: name for name, module in tower.named_modules()}
    pointwise = [[names[part] for part in names if part in layer and _is_pointwise(part)] for layer in within]
    attention = [[name for name in layer if any(word in name.lower() for word in _ATTENTION)] for layer in pointwise]
    if not any(attention) and not all(pointwise):
        return []
    chosen = attention if any(attention) else pointwise
    return [name for index, layer in enumerate(chosen) if indices is None or index in indices for name in layer]


def _is_pointwise(module: nn.Module) -> bool:
    """Whether a module is a linear map of the features at each position."""
    if isinstance(module, nn.Conv2d):
        return module.kernel_size == (1, 1) and module.groups == 1
    # torch's own attention reads the weights of its output projection, and does not call it.
    return isinstance(module, nn.Linear) and not isinstance(module, NonDynamicallyQuantizableLinear)


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
