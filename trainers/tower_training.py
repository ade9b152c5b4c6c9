"""Which weights of a tower are trained: all, none (LiT, Zhai et al. 2022), or the upper layers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from torch import nn

from ..configuration.configuration_two_tower import TOWERS
from ..utils.errors import InputError, did_you_mean

Trained = Literal["all", "none", "upper"]


@dataclass(frozen=True)
class TowerTraining:
    """How a tower is trained: `all`, `none`, or `upper` for the top `layers` and everything above them; all other
    weights are frozen. With None, the model's configuration decides whether the tower is frozen."""

    train: Trained | None = None
    layers: int | None = None

    def __post_init__(self) -> None:
        if self.train not in (None, *get_args(Trained)):
            raise InputError(f"train={self.train!r} must be one of {', '.join(get_args(Trained))}")
        if (self.train == "upper") != (self.layers is not None) or (self.layers or 1) < 1:
            raise InputError("train: 'upper' needs layers, the number of layers to train; nothing else takes it")


def checked_training(model: Any, towers: Mapping[str, Any] | None) -> dict[str, TowerTraining]:
    """Returns the settings of the training option `towers`, tower -> keyword arguments of `TowerTraining`; they must
    fit the towers of the model."""
    settings = {}
    for name, given in (towers or {}).items():
        if name not in TOWERS:
            raise InputError(f"towers: unknown tower {name!r}{did_you_mean(name, TOWERS)}")
        try:
            settings[name] = setting = TowerTraining(**given)
        except (TypeError, ValueError) as error:
            raise InputError(f"towers.{name}: {error}") from error
        own = model.towers if hasattr(type(model), "towers") else {}
        # MLA's acquirers are trained in a frozen text encoder.
        if name not in own or getattr(model.config, "strategy", None) == "acquisition":
            raise InputError(f"towers.{name}: {type(model).__name__} cannot train this tower; leave it out")
        if (setting.layers or 0) > (count := len(tower_layers(own[name]))):
            raise InputError(f"towers.{name}: layers={setting.layers} is more than this tower has: {count}")
    return settings


def set_trained_towers(model: Any, towers: Mapping[str, Any] | None) -> None:
    """Sets which weights of the towers of a model are trained, by the training option `towers`. Towers without
    settings are trained as before."""
    for name, setting in checked_training(model, towers).items():
        if setting.train:
            model.towers[name].requires_grad_(setting.train == "all")
        if setting.layers:
            for weight in upper_weights(model.towers[name], setting.layers):
                weight.requires_grad_(True)


# ---- The layers of a tower, whatever its kind, in their order ----


def tower_layers(tower: nn.Module) -> list[list[nn.Module]]:
    """Returns the layers of a tower from bottom to top, each as a list of modules; empty if it has no list of layers.
    They are the outermost list of modules with the most weights: the layers of BERT, T5 and ViT, the blocks of an
    EfficientNet, the stages of Swin, ConvNeXt and ResNet. Some towers have several parallel lists of the same length,
    such as one of attention and one of feed-forward layers."""
    lists: dict[str, list[nn.Module]] = {}
    for name, module in tower.named_modules():
        is_inside = any(name.startswith(f"{outer}.") for outer in lists)
        if isinstance(module, nn.ModuleList | nn.Sequential) and not is_inside and _size(module):
            lists[name] = [entry for entry in module if _size(entry)]
    if not lists:
        return []
    largest = max(lists, key=lambda name: sum(map(_size, lists[name])))
    parent, count = largest.rpartition(".")[0], len(lists[largest])
    parallel = [own for name, own in lists.items() if name.rpartition(".")[0] == parent and len(own) == count]
    return [list(layer) for layer in zip(*parallel, strict=True)]


def upper_weights(tower: nn.Module, count: int) -> Iterator[nn.Parameter]:
    """Yields the weights of the top `count` layers of a tower, and those above all layers that are not embeddings."""
    layers = [[weight for module in layer for weight in module.parameters()] for layer in tower_layers(tower)]
    upper, lower = ({weight for layer in part for weight in layer} for part in (layers[-count:], layers[:-count]))
    embeddings = {
        weight for module in tower.modules() if isinstance(module, nn.Embedding) for weight in module.parameters()
    }
    is_above = False
    for weight in tower.parameters():
        is_above = is_above or weight in upper or weight in lower
        if weight in upper or (is_above and weight not in lower and weight not in embeddings):
            yield weight


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
