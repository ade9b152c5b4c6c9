"""Configurations of dual encoders. In the papers, the backbone's pooled features are the shared space, to which a
linear layer projects texts; pretrained towers need more choices: pooling, a projection of images, and dropout."""

from typing import Any, ClassVar, Literal

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from ..utils.errors import ModelKindError
from ..utils.hub_mixin import HubCodeMixin

# The training tasks, and the heads that models have for them.
IMAGE_TEXT = "image_text"
TEXT_TEXT = "text_text"
TRIPLET = "triplet"

# How the states of a text encoder or a vision backbone become one vector; see `pool_text` and `pool_image`.
TextPooling = Literal["cls", "mean", "eos", "pooler"]
ImagePooling = Literal["pooler", "cls", "mean"]
POOLER: Literal["pooler"] = "pooler"
# Name of a tower -> the attribute of the model that holds it.
TOWERS = {"image": "vision_model", "text": "text_model"}


@strict
class DualEncoderConfig(HubCodeMixin, PreTrainedConfig):
    """Configuration that all dual encoders share. Training averages the loss over the whole embeddings and their first
    dimensions, up to each of `matryoshka_dims`, so embeddings can later be truncated (Kusupati et al. 2022).
    `Embedder`, sentence-transformers and exported graphs keep the first `truncate_dim` dimensions; by default all."""

    matryoshka_dims: list[int] | tuple[int, ...] = ()
    truncate_dim: int | None = None

    def __post_init__(self, **kwargs: object) -> None:
        for name, spec in self.sub_configs_defaults.items():
            given = getattr(self, name)
            if isinstance(given, dict) and (kind := given.get("model_type", spec.model_type)) not in CONFIG_MAPPING:
                raise ValueError(f"{name}: transformers has no model type {kind!r}")
        super().__post_init__(**kwargs)

    def check_widths(self) -> None:
        """Checks and sorts the numbers of dimensions; call it once `projection_dim` is known."""
        self.matryoshka_dims = sorted({*self.matryoshka_dims}, reverse=True)
        whole, kept = self.projection_dim, self.truncate_dim
        check_positive(self, "projection_dim")
        if not all(1 <= width < whole for width in self.matryoshka_dims):
            raise ValueError(f"matryoshka_dims={self.matryoshka_dims} must be from 1 to {whole - 1}")
        if kept is not None and not 1 <= kept <= whole:
            raise ValueError(f"truncate_dim={kept} must be from 1 to {whole}")


@strict
class TwoTowerConfig(DualEncoderConfig):
    """Configuration of a dual encoder with two towers.

    Args:
        text_config: The text tower, any transformers text encoder; a dictionary without a `model_type` is `bert`.
        vision_config: The image tower, any vision backbone; by default EfficientNet without its head convolution.
        text_pooling: How the states of the text tower become one vector: `cls`, the first token's state, as in the
            papers; `mean`, over all tokens; `eos`, the last token's state; `pooler`, the tower's pooling.
        image_pooling: The same for images: `pooler`, the tower's pooling, or the mean over all positions if it has
            none; `cls`, the state of the first position; `mean`.
        text_prompt: Prefix that the processor adds to every text, such as "query: " for E5.
        image_head: Whether a linear layer projects images too, by default to 512 dimensions (`projection_dim`).
            Without it, as in the papers, the shared space is as wide as the pooled features.
        text_hidden_size: Width of a hidden layer for texts; on a frozen tower, it brings languages closer.
        text_layer_norm: Whether to normalize the text features before the head. Heads on frozen towers with small
            features (E5) then learn more from translations; with captions in one language, others get worse.
        text_dropout, image_dropout: Of the pooled features before the head, and for texts after its hidden layer.
        freeze: Towers that are not trained and stay in evaluation mode; `["image"]` is LiT (Zhai et al. 2022).
    """

    sub_configs_defaults: ClassVar[dict] = {}

    text_config: dict | PreTrainedConfig | None = None
    vision_config: dict | PreTrainedConfig | None = None
    text_pooling: TextPooling = "cls"
    image_pooling: ImagePooling = "pooler"
    text_prompt: str = ""
    image_head: bool = False
    projection_dim: int | None = None
    text_hidden_size: int | None = None
    text_layer_norm: bool = False
    text_dropout: float | int = 0.0
    image_dropout: float | int = 0.0
    freeze: list[str] | tuple[str, ...] = ()
    initializer_range: float | int = 0.02

    def __post_init__(self, **kwargs: object) -> None:
        self.freeze = list(dict.fromkeys(self.freeze))
        if unknown := [name for name in self.freeze if name not in TOWERS]:
            raise ValueError(f"freeze: there is no tower {unknown[0]!r}; there are: image, text")
        check_positive(self, "text_hidden_size")
        check_probabilities(text_dropout=self.text_dropout, image_dropout=self.image_dropout, below_one=True)
        if self.image_dropout and not self.image_head:
            raise ValueError(f"image_dropout={self.image_dropout} comes before a layer that only image_head=True adds")
        given = self.projection_dim
        super().__post_init__(**kwargs)
        if self.image_head:
            self.projection_dim = 512 if given is None else given
        else:
            self.projection_dim = image_width(self.vision_config)
            check_projection_dim(self, given, hint=": image_head=True projects images to any width")
        self.check_widths()


def check_positive(config: Any, *names: str) -> None:
    """Checks that numbers in a configuration are positive, or None."""
    for name in names:
        if (value := getattr(config, name)) is not None and value <= 0:
            raise ValueError(f"{name}={value} must be positive")


def check_probabilities(*, below_one: bool = False, **values: float) -> None:
    for name, value in values.items():
        if not 0 <= value <= 1 or (below_one and value == 1):
            raise ValueError(f"{name}={value} must be a probability{' below 1' if below_one else ''}")


def check_projection_dim(config: PreTrainedConfig, given: object, hint: str = "") -> None:
    """Checks a given width of the shared space against the width that follows from the towers."""
    if given not in (None, config.projection_dim):
        raise ValueError(f"projection_dim={given}, but the towers' shared space is {config.projection_dim} wide{hint}")


def text_width(config: PreTrainedConfig, pooling: str = "cls") -> int:
    """Returns the width of a text encoder's pooled features: SigLIP's pooling layer changes it, and AltCLIP's encoder
    projects its states to `project_dim`."""
    return _width(config, "text", *(["projection_size"] if pooling == POOLER else []), "project_dim", "hidden_size")


def image_width(config: PreTrainedConfig) -> int:
    """Returns the width of a vision backbone's pooled features."""
    if config.model_type == "align_vision_model":
        from transformers.models.align.modeling_align import round_filters

        return int(round_filters(config, config.out_channels[-1]))  # of the last stage, without a head convolution
    return _width(config, "vision", "hidden_dim", "hidden_size", "hidden_sizes")


def _width(config: PreTrainedConfig, kind: str, *names: str) -> int:
    for name in names:
        if (width := getattr(config, name, None)) is not None:
            return int(width if isinstance(width, int) else width[-1])
    raise ValueError(f"cannot tell the feature width of {kind} model {config.model_type!r}: it has no {names[-1]}")


def head_of_task(model: Any, task: str | None) -> dict[str, str]:
    """Returns the argument of a model's `get_text_features` that selects the head of a task; empty without a task."""
    tasks = getattr(getattr(model, "config", None), "tasks", ())
    if task is not None and task not in tasks:
        known = f"{task!r}; its tasks are {', '.join(tasks)}" if tasks else f"each task: leave out task={task!r}"
        raise ModelKindError(f"{type(model).__name__} has no head for {known}")
    return {} if task is None else {"task": task}
