"""Training arguments of RC3's pre-training and tasks."""

# ruff: noqa: RUF009 -- `option` returns a field of a dataclass

from dataclasses import dataclass, field
from typing import Any, Literal

from .precision import PrecisionTrainingArguments, option


@dataclass
class Rc3TrainingArguments(PrecisionTrainingArguments):
    """Training arguments of RC3's pre-training; the learning rate is the paper's (section 3.2), for Adam without
    weight decay. The paper states neither schedule nor clipping, so they are transformers' defaults: a linear decay to
    0, and gradients clipped to norm 1."""

    learning_rate: float = field(default=5e-5)
    data_set_batch_sizes: dict[str, int] | None = option(
        None,
        "Number of examples of each data set per batch and process, such as {'parallel': 128}; "
        "default: per_device_train_batch_size.",
    )
    parallel_captions: bool = option(
        False,
        "Whether to also train on the captions of the strictly aligned data as parallel texts, as the "
        "paper does; default: only on the parallel data, which may already contain them.",
    )
    strict_visual: Literal["regions", "patches", "both"] | None = option(
        None,
        "Whether the images of strictly aligned data are given as regions, patches or both; default if "
        "the model reads both: regions, as in the paper.",
    )
    weak_visual: Literal["regions", "patches", "both"] | None = option(
        None,
        "Whether the images of weakly aligned data are given as regions, patches or both; default if the "
        "model reads both: patches, as in the paper.",
    )
    image_augmentation: dict[str, Any] | None = option(
        None,
        "Keyword arguments of ImageAugmentation, for patches; default: no augmentation.",
    )
    augmented_regions: int = option(
        0,
        "Number of augmented copies of each image for which regions are precomputed, with "
        "image_augmentation; training samples from them and the original.",
    )
    eval_batches: int | None = option(
        None,
        "Number of batches in an evaluation, which are always the same; default: all.",
    )

    def __post_init__(self) -> None:
        sizes = {f"data_set_batch_sizes[{name!r}]": size for name, size in (self.data_set_batch_sizes or {}).items()}
        for name, value in (sizes | {"eval_batches": self.eval_batches}).items():
            if value is not None and value < 1:
                raise ValueError(f"{name}={value} must be a positive number")
        if self.augmented_regions < 0 or (self.augmented_regions and self.image_augmentation is None):
            raise ValueError(f"augmented_regions={self.augmented_regions} needs image_augmentation")
        for name in ("strict_visual", "weak_visual"):
            if getattr(self, name) not in (None, "regions", "patches", "both"):
                raise ValueError(f"{name}={getattr(self, name)!r} must be 'regions', 'patches' or 'both'")
        super().__post_init__()
        self.remove_unused_columns = False
        self.label_names: list[str] = []
        # The parts of objectives with weight 0 get no gradient. The running averages are the same in all processes
        # without a broadcast.
        self.ddp_find_unused_parameters = True
        self.ddp_broadcast_buffers = False


@dataclass
class Rc3TaskTrainingArguments(PrecisionTrainingArguments):
    """Training arguments of RC3's tasks. The paper's values for each task (table 6) are in `recipes/rc3`."""

    max_text_length: int | None = option(
        None,
        "Maximum number of tokens of a text; default: the processor's maximum. A value is written to the "
        "processor and saved with it.",
    )
    image_augmentation: dict[str, Any] | None = option(
        None,
        "Keyword arguments of ImageAugmentation; default: no augmentation.",
    )
    generation: dict[str, Any] | None = option(
        None,
        "Settings of the model's generation_config, such as {'num_beams': 5}, which are saved with it; "
        "for translation only.",
    )

    def __post_init__(self) -> None:
        if self.max_text_length is not None and self.max_text_length < 3:
            raise ValueError(
                f"max_text_length={self.max_text_length} must be at least 3: [BOS], a word and the language"
            )
        super().__post_init__()
        self.remove_unused_columns = False
        self.label_names: list[str] = []
        # Only translation gives the decoder a gradient.
        self.ddp_find_unused_parameters = True
