"""Which weights of a tower are trained: all, none (Zhai et al. 2022, LiT), those of the upper layers, the biases (Ben
Zaken et al. 2022, BitFit), or low-rank adapters (Hu et al. 2022, LoRA), by PEFT. Each layer may have a lower learning
rate than the layer above it (Howard and Ruder 2018)."""

import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from ..configuration.errors import TrainingSetupError
from ..configuration.frozen_towers import TOWERS
from ..configuration.suggestions import did_you_mean

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
