"""Configuration that MURAL and ETCL share: a text encoder, a vision backbone, and how their features meet.

In the papers, the backbone's pooled features are the shared space, and a linear layer projects texts to their width.
Two pretrained towers need more choices: how texts and images are pooled, a projection of images too, and dropout
against overfitting where only the projections are trained.
"""

from collections.abc import Iterable
from typing import Any, ClassVar, Literal

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from ..utils.errors import did_you_mean
from ..utils.hub_code import HubCodeMixin
from .strict_config import StrictConfig

# ---- Widths of the features of towers and of dual encoders ----

# How one vector is read from the states of a text encoder, and from those of a vision backbone; see `pool_text` and
# `pool_image`.
TextPooling = Literal["cls", "mean", "eos", "pooler"]
ImagePooling = Literal["pooler", "cls", "mean"]
POOLER: Literal["pooler"] = "pooler"


def text_width(config: PreTrainedConfig, pooling: str = "cls") -> int:
    """Returns the width of the pooled features of a text encoder.

    Args:
        config: configuration of the encoder.
        pooling: how a text is pooled; SigLIP's own pooling changes the width.

    Raises:
        ValueError: if the configuration does not state it.
    """
    names = ("projection_size",) if pooling == POOLER else ()
    for name in (*names, "project_dim", "hidden_size"):  # AltCLIP's encoder projects its states to `project_dim`
        width = getattr(config, name, None)
        if isinstance(width, int):
            return width
    raise ValueError(f"cannot tell the feature width of text model {config.model_type!r}: it has no hidden_size")


def image_width(config: PreTrainedConfig) -> int:
    """Returns the width of the pooled features of a vision backbone.

    Raises:
        ValueError: if the configuration does not state it.
    """
    if config.model_type == "align_vision_model":
        # Imported here, because it imports all of PyTorch.
        from transformers.models.align.modeling_align import round_filters

        # EfficientNet: the width of the last stage, because there is no head convolution.
        return round_filters(config, config.out_channels[-1])
    for name in ("hidden_dim", "hidden_size", "hidden_sizes"):
        width = getattr(config, name, None)
        if width is not None:
            return width if isinstance(width, int) else width[-1]
    raise ValueError(f"cannot tell the feature width of vision model {config.model_type!r}: it has no hidden_size")


def feature_width(config: PreTrainedConfig) -> int:
    """Returns the width of the features of a dual encoder; SigLIP's are as wide as those of its image tower.

    Raises:
        ValueError: if the configuration does not state it.
    """
    width = getattr(config, "projection_dim", None)
    if width is None and not hasattr(config, "vision_config"):
        raise ValueError(
            f"cannot tell the feature width of dual encoder {config.model_type!r}: it has neither projection_dim nor "
            "vision_config"
        )
    return width or image_width(config.vision_config)


def check_projection_dim(config: PreTrainedConfig, given: object, hint: str = "") -> None:
    """Checks a stated width of the shared space against the width that follows from the towers.

    Args:
        config: configuration of a dual encoder.
        given: the width that a file or a caller states, or `None`.
        hint: what to do about it, for the error.

    Raises:
        ValueError: if the widths differ.
    """
    if given not in (None, config.projection_dim):
        raise ValueError(f"projection_dim={given}, but the towers' shared space is {config.projection_dim} wide{hint}")


DEFAULT_PROJECTION_DIM = 512


@strict
class DualEncoderConfig(HubCodeMixin, StrictConfig):
    """Configuration that all dual encoders share: the widths at which their embeddings are compared.

    Subclasses call `check_widths` when the width of their shared space is known.

    Args:
        matryoshka_dims: Numbers of dimensions, each less than the width of the shared space. Training then compares
            embeddings, and their first numbers up to each of these, so that they can be cut to them (Kusupati et al.
            2022, Matryoshka representation learning): the loss is the mean over all widths.
        truncate_dim: Number of dimensions that `Embedder`, sentence-transformers and exported graphs keep of every
            embedding; by default all. The model itself computes all of them.

    Raises:
        ValueError: if a key is unknown, or a width is impossible.
    """

    matryoshka_dims: list[int] | tuple[int, ...] = ()
    truncate_dim: int | None = None

    def check_widths(self) -> None:
        """Checks the numbers of dimensions, and sorts those of training.

        Raises:
            ValueError: if one of them is impossible.
        """
        self.matryoshka_dims = sorted({*self.matryoshka_dims}, reverse=True)
        for width in self.matryoshka_dims:
            if not 1 <= width < self.projection_dim:
                raise ValueError(
                    f"matryoshka_dims={self.matryoshka_dims}: {width} must be at least 1, and less than the "
                    f"{self.projection_dim} dimensions of the embeddings"
                )
        if self.truncate_dim is not None and not 1 <= self.truncate_dim <= self.projection_dim:
            raise ValueError(
                f"truncate_dim={self.truncate_dim} must be at least 1, and at most the {self.projection_dim} "
                "dimensions of the embeddings"
            )


@strict
class TwoTowerConfig(DualEncoderConfig):
    """Configuration of a dual encoder of two towers.

    The arguments of `DualEncoderConfig` are accepted too.

    Args:
        text_config: Configuration of the text tower, any transformers text encoder, as an object or as a dictionary. A
            dictionary may name its `model_type`; the default is `bert`.
        vision_config: Configuration of the image tower, any transformers vision backbone. The default is
            `align_vision_model`, EfficientNet without its head convolution.
        text_pooling: How the states of the text tower become one vector: `cls`, the state of the first token, as in
            the papers; `mean`, over all tokens of the text; `eos`, the state of its last token; `pooler`, the tower's
            own pooling.
        image_pooling: How the states of the image tower become one vector: `pooler`, the tower's own pooling, and the
            mean over all positions if it has none; `cls`, the state of the first position; `mean`, over all positions.
        text_prompt: What the processor puts before every text, such as "query: " for E5.
        image_head: Whether a linear layer projects images too. Without it, as in the papers, the width of the pooled
            image features is the width of the shared space.
        projection_dim: Width of the shared space; by default 512 with `image_head`, and otherwise always the width of
            the image features.
        head_bias: Whether the linear layers of the heads have a bias; transformers' `VisionTextDualEncoderModel`, to
            which a model can be converted, has none.
        text_hidden_size: Width of a hidden layer between the text features and the shared space; by default, the text
            head is a linear layer, as in the papers. With a frozen text tower, a hidden layer brings languages closer.
        text_layer_norm: Whether the text features are normalized to mean 0 and variance 1 before the text head (a
            layer normalization without weights). Heads of frozen text towers whose features are small, as E5's are,
            then learn more from translations. With captions in one language alone, other languages lose.
        text_dropout, image_dropout: Probability that a pooled feature of a text or an image is zeroed in training,
            before its head; in a hidden layer of texts, that of texts applies once more.
        freeze: Towers that are frozen whenever the model is made or loaded, of `["image", "text"]`: they are not
            trained, and stay in evaluation mode. `["image"]` locks the image tower (Zhai et al. 2022, LiT).
        image_text_loss: Loss of images with their texts: `softmax` over the cosines of a batch, as in the papers, or
            `sigmoid`, by which each pair is told from the others by itself (Zhai et al. 2023, SigLIP). Translations
            are compared by the softmax in any case.
        logit_bias_init_value: Initial value of the learned bias that `sigmoid` adds to the logits. SigLIP's initial
            temperature is `temperature_init_value=0.1`.
        initializer_range: Standard deviation of the normal distribution that initializes the linear layers.

    Raises:
        ValueError: if a key is unknown, or a value is impossible.
    """

    sub_configs_defaults: ClassVar[dict] = {}

    text_config: dict | PreTrainedConfig | None = None
    vision_config: dict | PreTrainedConfig | None = None
    text_pooling: TextPooling = "cls"
    image_pooling: ImagePooling = "pooler"
    text_prompt: str = ""
    image_head: bool = False
    projection_dim: int | None = None
    head_bias: bool = True
    text_hidden_size: int | None = None
    text_layer_norm: bool = False
    text_dropout: float | int = 0.0
    image_dropout: float | int = 0.0
    freeze: list[str] | tuple[str, ...] = ()
    image_text_loss: Literal["softmax", "sigmoid"] = "softmax"
    logit_bias_init_value: float | int = -10.0
    initializer_range: float | int = 0.02

    def __post_init__(self, **kwargs: object) -> None:
        self.freeze = checked_towers(self.freeze)
        check_text_head(self)
        check_dropout(self, "image_dropout")
        if self.image_dropout and not self.image_head:
            raise ValueError(f"image_dropout={self.image_dropout} comes before a layer that only image_head=True adds")
        given = self.projection_dim
        if given is not None and given < 1:
            raise ValueError(f"projection_dim={given} must be at least 1")
        super().__post_init__(**kwargs)
        if self.image_head:
            self.projection_dim = given or DEFAULT_PROJECTION_DIM
        else:
            self.projection_dim = image_width(self.vision_config)
            check_projection_dim(self, given, hint=": image_head=True projects images to any width")
        self.check_widths()


# ---- The towers of MURAL and ETCL by name, and the towers that a configuration freezes ----

# Name of a tower -> the model's attribute that holds it.
TOWERS = {"image": "vision_model", "text": "text_model"}


def checked_towers(names: Iterable[str]) -> list[str]:
    """Returns names of towers as a list without repetitions.

    Raises:
        ValueError: for a name that no tower has.
    """
    for name in names:
        if name not in TOWERS:
            raise ValueError(f"freeze: there is no tower {name!r}{did_you_mean(name, TOWERS)}; there are: image, text")
    return list(dict.fromkeys(names))


# ---- Settings of the linear layers between pooled texts and a shared space ----


def check_text_head(config: Any) -> None:
    """Checks `text_hidden_size` and `text_dropout` of a configuration.

    Raises:
        ValueError: if one of them is impossible.
    """
    if config.text_hidden_size is not None and config.text_hidden_size < 1:
        raise ValueError(f"text_hidden_size={config.text_hidden_size} must be at least 1")
    check_dropout(config, "text_dropout")


def check_dropout(config: Any, name: str) -> None:
    """Checks a probability of dropout.

    Raises:
        ValueError: if it is impossible.
    """
    if not 0 <= getattr(config, name) < 1:
        raise ValueError(f"{name}={getattr(config, name)} must be a probability below 1")


# ---- How long the texts are that a text encoder reads ----

# Text encoders that count positions from the one after their padding token's id, as fairseq does.
_POSITIONS_AFTER_PADDING = frozenset(
    [
        *("roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "roberta-prelayernorm", "data2vec-text", "mpnet"),
        "altclip_text_model",
    ]
)


def text_positions(text_config: PreTrainedConfig) -> int | None:
    """Returns the number of tokens for which a text encoder has positions, or `None` if its configuration does not
    state it."""
    positions = getattr(text_config, "max_position_embeddings", None)
    if positions is not None and text_config.model_type in _POSITIONS_AFTER_PADDING:
        return positions - text_config.pad_token_id - 1
    return positions
