"""Which weights of a tower are trained: all, none (Zhai et al. 2022, LiT), or those of the upper layers."""

import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from torch import nn

from ..configuration.configuration_two_tower import TOWERS
from ..utils.errors import TrainingSetupError, did_you_mean

Trained = Literal["all", "none", "upper"]


@dataclass(frozen=True)
class TowerTraining:
    """How a tower is trained.

    Args:
        train: `all`, `none`, or `upper` for the `layers` at the top and what is above them. All other weights of the
            tower are frozen.
        layers: number of layers that `upper` trains.
        rate: peak learning rate of the tower; by default the `learning_rate` of the training arguments, or that of the
            task.

    Raises:
        TrainingSetupError: for impossible values, and for options that contradict each other.
    """

    train: Trained = "all"
    layers: int | None = None
    rate: float | None = None

    def __post_init__(self) -> None:
        _check_known(self.train, get_args(Trained), "train")
        if self.rate is not None and not (_is_number(self.rate) and 0 < self.rate < math.inf):
            raise TrainingSetupError(f"rate={self.rate!r} must be a positive number")
        if self.train == "none" and self.rate is not None:
            raise TrainingSetupError(f"rate={self.rate} is for a tower that is trained, and train: none freezes it")
        if self.train == "upper" and self.layers is None:
            raise TrainingSetupError("train: upper needs layers, the number of layers that are trained")
        if self.train != "upper" and self.layers is not None:
            raise TrainingSetupError(f"layers={self.layers} is for train: upper, and not for train: {self.train}")
        if self.layers is not None and (type(self.layers) is not int or self.layers < 1):
            raise TrainingSetupError(f"layers={self.layers!r} must be a positive whole number")


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
        if "rate" not in given:
            raise TrainingSetupError(
                f"towers.{tower}: the model freezes it ({frozen[tower]}); state what is trained, such as train: all, "
                "or leave it out"
            )
        raise TrainingSetupError(
            f"towers.{tower}: rate={given['rate']} is for a tower that is trained, and the model freezes "
            f"it ({frozen[tower]}); leave rate out, or state what is trained, such as train: all"
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

    Raises:
        TrainingSetupError: if a setting does not fit its tower.
    """

    def __init__(self, model: Any, settings: Mapping[str, TowerTraining]) -> None:
        check_towers(model, settings)
        self.model = model
        self.settings = settings
        for name, setting in settings.items():
            trained = trained_weights(model.towers[name], setting)
            for weight, parameter in model.towers[name].named_parameters():
                parameter.requires_grad_(weight in trained)

    def learning_rates(self) -> dict[str, float]:
        """Returns the learning rates of the parameters of towers that have rates of their own, by name."""
        return {
            f"{TOWERS[name]}.{parameter}": setting.rate
            for name, setting in self.settings.items()
            if setting.rate is not None
            for parameter, _ in self.model.towers[name].named_parameters()
        }


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


def trained_weights(tower: nn.Module, setting: TowerTraining) -> set[str]:
    """Returns the names of the parameters of a tower that are trained."""
    if setting.layers is not None:
        return {name for name, depth in layer_depths(tower).items() if depth < setting.layers}
    names = {name for name, _ in tower.named_parameters()}
    return names if setting.train == "all" else set()


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


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
