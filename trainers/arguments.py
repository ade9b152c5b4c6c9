"""Arguments of the contrastive trainers: transformers' own, and what contrastive training adds."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from transformers.training_args import OptimizerNames

from .finiteness import check_numbers
from .precision import FLOAT16, PrecisionTrainingArguments

LAMB = "lamb"
ADAMAX = "adamax"


@dataclass
class ContrastiveTrainingArguments(PrecisionTrainingArguments):
    """transformers' `TrainingArguments`, with `optim="lamb"` and `optim="adamax"` beside its optimisers."""

    # Whether the method's texts are word pieces of one vocabulary, which text_augmentation can cut in other ways.
    can_augment_texts: ClassVar[bool] = True

    optim: OptimizerNames | str = field(
        default=LAMB,
        metadata={
            "help": "'lamb' (You et al. 2020; MURAL, ALIGN, ETCL), 'adamax' (Kingma & Ba 2015; LIWE), or any "
            "optimiser of transformers."
        },
    )
    embed_chunk_size: int | None = field(
        default=None,
        metadata={
            "help": "Gradient caching: embed that many examples at a time, so that memory depends on the chunk and "
            "not on the batch. The gradient is the whole batch's, exactly (Gao et al. 2021)."
        },
    )
    gather_negatives: bool = field(
        default=True,
        metadata={"help": "Use the other processes' examples as negatives, with gradient, as one large batch would."},
    )
    loss_tile_size: int | None = field(
        default=None,
        metadata={"help": "Rows and columns of a tile of the contrastive loss's logits; default: 1024."},
    )
    text_length_groups: int = field(
        default=1,
        metadata={
            "help": "Encode a batch's texts in that many groups of similar length, so that short texts are not padded "
            "to the longest one. The result is the same; on a CPU 3 or 4 save time."
        },
    )
    shuffle_buffer_size: int = field(
        default=1000,
        metadata={
            "help": "Rows of a streamed corpus that each worker holds, images undecoded, and shuffles at a time. "
            "The order of the shards is shuffled as well."
        },
    )
    task_weights: dict[str, float] | None = field(
        default=None,
        metadata={
            "help": "Weight of each task's loss, such as {'text_text': 0.1}; what is not named keeps its default."
        },
    )
    task_learning_rates: dict[str, float] | None = field(
        default=None,
        metadata={
            "help": "Peak learning rate of each task. Every task then has its own optimiser state over the shared "
            "weights, and all of them step."
        },
    )
    learning_rate_mapping: dict[str, float] | None = field(
        default=None,
        metadata={
            "help": "Peak learning rates of parts of the model, by regular expressions that parameter names are "
            "searched for, such as {'text_model.*word_embeddings': 6e-3}; the first that is found decides, and where "
            "none is, `learning_rate`."
        },
    )
    languages: list[str] | None = field(
        default=None, metadata={"help": "Languages of image-text pairs to train on; default: all that the corpus has."}
    )
    eval_languages: list[str] | None = field(
        default=None,
        metadata={"help": "Languages to evaluate during training; default: all that the evaluation corpus has."},
    )
    image_augmentation: dict[str, Any] | None = field(
        default=None,
        metadata={
            "help": "Keyword arguments of ImageAugmentation; default: the paper's, mirror images with probability 1/2."
        },
    )
    text_augmentation: dict[str, Any] | None = field(
        default=None,
        metadata={
            "help": "Keyword arguments of TextAugmentation, such as {'subword_dropout': 0.4, 'share': 0.5}; default: "
            "texts are cut into word pieces in one way."
        },
    )

    def __post_init__(self) -> None:
        check_numbers(self)
        for name in ("embed_chunk_size", "loss_tile_size", "text_length_groups", "shuffle_buffer_size"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be a positive number")
        for name in ("task_weights", "task_learning_rates", "learning_rate_mapping"):
            for key, value in (getattr(self, name) or {}).items():
                if value < 0:
                    raise ValueError(f"{name}[{key!r}]={value} must not be negative")
        if self.text_augmentation and not self.can_augment_texts:
            raise ValueError("text_augmentation is for methods whose texts are word pieces of one vocabulary")
        if self.task_learning_rates and self.learning_rate_mapping:
            raise ValueError(
                "task_learning_rates and learning_rate_mapping both set the rate of the same weights: give one of them"
            )
        asked = self.asked_precision()
        if self.task_learning_rates and asked is not None and asked.name == FLOAT16:
            raise ValueError(
                "task_learning_rates cannot go with float16, whose loss scaling knows one optimiser: use bfloat16"
            )
        # transformers turns `optim` into a member of its own enumeration, which has neither LAMB nor Adamax.
        own = self.optim if self.optim in (LAMB, ADAMAX) else None
        if own:
            self.optim = OptimizerNames.ADAMW_TORCH
        super().__post_init__()
        if own:
            self.optim = own
        if self.task_learning_rates:
            # Gradients of several batches are of several tasks. DistributedDataParallel and FSDP would hold them
            # together until they are synchronised.
            accumulation = self.accelerator_config.gradient_accumulation_kwargs or {}
            self.accelerator_config.gradient_accumulation_kwargs = accumulation | {"sync_each_batch": True}
        # Examples reach the collator whole, whatever the model's forward() calls them, and a contrastive batch has no
        # labels.
        self.remove_unused_columns = False
        self.label_names: list[str] = []


@dataclass
class MlaTrainingArguments(ContrastiveTrainingArguments):
    """What MLA's training adds; the defaults are those of the paper's native language transfer (section 4.1).

    Language exposure has a learning rate of 3e-6.
    """

    can_augment_texts: ClassVar[bool] = False

    optim: OptimizerNames | str = field(default=OptimizerNames.ADAMW_TORCH_FUSED)
    learning_rate: float = field(default=1e-4)
    adam_beta2: float = field(default=0.98)
    adam_epsilon: float = field(default=1e-6)
    weight_decay: float = field(default=0.2)
    lr_scheduler_type: str = field(default="cosine")
    warmup_steps: float = field(default=0.1)
    per_device_train_batch_size: int = field(default=128)
    max_grad_norm: float = field(default=1.0)
    trainable: Literal["acquirers", "native", "all"] = field(
        default="acquirers",
        metadata={
            "help": "What is trained: the acquirers of `languages` and the non-native embedding; the native model "
            "alone (the paper's fine-tuning on English); or all of it."
        },
    )
    text_text_objective: Literal["mse", "nce"] | None = field(
        default=None,
        metadata={
            "help": "Objective of native language transfer; default: the model configuration's, which it changes."
        },
    )
    image_text_objective: Literal["mse", "nce"] | None = field(
        default=None,
        metadata={"help": "Objective of language exposure; default: the model configuration's, which it changes."},
    )
    mix_languages: bool = field(
        default=False,
        metadata={
            "help": "Draw batches from all languages at once. By default every step has one language, each as often "
            "as the others."
        },
    )
    cache_frozen_features: bool = field(
        default=True,
        metadata={
            "help": "While the native model is frozen, compute its features of images and native texts once and "
            "keep them on disk. Images are then not augmented."
        },
    )

    def __post_init__(self) -> None:
        if self.trainable not in ("acquirers", "native", "all"):
            raise ValueError(f"trainable={self.trainable!r} must be 'acquirers', 'native' or 'all'")
        for name in ("text_text_objective", "image_text_objective"):
            if getattr(self, name) not in (None, "mse", "nce"):
                raise ValueError(f"{name}={getattr(self, name)!r} must be 'mse' or 'nce'")
        super().__post_init__()


@dataclass
class WordDualEncoderTrainingArguments(ContrastiveTrainingArguments):
    """What training on images with texts in several languages adds."""

    can_augment_texts: ClassVar[bool] = False

    sentences_per_image: int = field(
        default=2, metadata={"help": "Sentences of each image in a batch, in each language."}
    )
    languages_per_batch: int | None = field(
        default=None,
        metadata={
            "help": "That many languages in a batch, drawn anew for each; default: all. A batch costs less, as every "
            "two of its languages are compared, and its images may be more."
        },
    )
    cache_frozen_features: bool = field(
        default=True,
        metadata={
            "help": "Compute the backbone's features of images once and keep them on disk; the backbone is then "
            "frozen, and images are not augmented. Without, it is trained on pixels."
        },
    )

    def __post_init__(self) -> None:
        for name in ("sentences_per_image", "languages_per_batch"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        if self.embed_chunk_size is not None:
            raise ValueError("embed_chunk_size: such a batch has more texts than images, and is small enough")
        super().__post_init__()


@dataclass
class SmalrTrainingArguments(WordDualEncoderTrainingArguments):
    """SMALR's defaults are the paper's and MULE's."""

    optim: OptimizerNames | str = field(default=OptimizerNames.ADAMW_TORCH_FUSED)
    learning_rate: float = field(default=1e-3)
    num_train_epochs: float = field(default=20)
    per_device_train_batch_size: int = field(default=450)


@dataclass
class LiweTrainingArguments(WordDualEncoderTrainingArguments):
    """LIWE's defaults are those of its authors' code."""

    optim: OptimizerNames | str = field(default=ADAMAX)
    learning_rate: float = field(default=1e-3)
    num_train_epochs: float = field(default=30)
    per_device_train_batch_size: int = field(default=128)
    max_grad_norm: float = field(default=2.0)


@dataclass
class Rc3TrainingArguments(PrecisionTrainingArguments):
    """RC3's pre-training; the learning rate is the paper's (section 3.2), for Adam, which has no weight decay."""

    learning_rate: float = field(default=5e-5)
    data_set_batch_sizes: dict[str, int] | None = field(
        default=None,
        metadata={
            "help": "Examples of each data set in a batch, for one process, such as {'parallel': 128}; what is not "
            "named has per_device_train_batch_size."
        },
    )
    strict_visual: Literal["regions", "patches", "both"] | None = field(
        default=None,
        metadata={
            "help": "How the images of strictly aligned data are given; default: as regions, the paper's choice, "
            "where the model reads both."
        },
    )
    weak_visual: Literal["regions", "patches", "both"] | None = field(
        default=None,
        metadata={"help": "The same of weakly aligned data; default: as patches where the model reads both."},
    )
    image_augmentation: dict[str, Any] | None = field(
        default=None,
        metadata={"help": "Keyword arguments of ImageAugmentation, for patches; default: images as they are."},
    )
    augmented_regions: int = field(
        default=0,
        metadata={
            "help": "Of how many versions of each image, changed by image_augmentation, regions are computed beside "
            "its own; training draws from them all."
        },
    )
    text_length_groups: int = field(
        default=1,
        metadata={
            "help": "Have the encoder read a batch's rows in so many groups of similar length: faster where lengths "
            "differ much, to the same result."
        },
    )
    eval_batches: int | None = field(
        default=None, metadata={"help": "Batches of an evaluation, always the same ones; default: all."}
    )

    def __post_init__(self) -> None:
        check_numbers(self)
        sizes = {f"data_set_batch_sizes[{name!r}]": size for name, size in (self.data_set_batch_sizes or {}).items()}
        counts = {"eval_batches": self.eval_batches, "text_length_groups": self.text_length_groups}
        for name, value in (sizes | counts).items():
            if value is not None and value < 1:
                raise ValueError(f"{name}={value} must be a positive number")
        if self.augmented_regions < 0 or (self.augmented_regions and self.image_augmentation is None):
            raise ValueError(
                f"augmented_regions={self.augmented_regions} counts versions that image_augmentation, which is "
                f"{self.image_augmentation}, made of an image"
            )
        for name in ("strict_visual", "weak_visual"):
            if getattr(self, name) not in (None, "regions", "patches", "both"):
                raise ValueError(f"{name}={getattr(self, name)!r} must be 'regions', 'patches' or 'both'")
        super().__post_init__()
        self.remove_unused_columns = False
        self.label_names: list[str] = []
        # What an objective of no weight would need gets no gradient; the running averages agree by themselves.
        self.ddp_find_unused_parameters = True
        self.ddp_broadcast_buffers = False


@dataclass
class Rc3TaskTrainingArguments(PrecisionTrainingArguments):
    """Fine-tuning RC3 on a task. What the paper says of each task (table 6) stands in `recipes/rc3`."""

    max_text_length: int | None = field(
        default=None,
        metadata={"help": "Tokens that are read of a text; default: the processor's, which is changed, and saved so."},
    )
    image_augmentation: dict[str, Any] | None = field(
        default=None,
        metadata={"help": "Keyword arguments of ImageAugmentation, for pixels; default: images as they are."},
    )
    generation: dict[str, Any] | None = field(
        default=None,
        metadata={
            "help": "How a translating model generates, such as {'num_beams': 5}: settings of its generation_config, "
            "saved with it."
        },
    )

    def __post_init__(self) -> None:
        check_numbers(self)
        if self.max_text_length is not None and self.max_text_length < 3:
            raise ValueError(f"max_text_length={self.max_text_length}: a text has [BOS], its language and some words")
        super().__post_init__()
        self.remove_unused_columns = False
        self.label_names: list[str] = []
        # Tasks that are no translation need no decoder.
        self.ddp_find_unused_parameters = True
