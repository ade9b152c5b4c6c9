"""Training arguments of the methods: transformers' arguments and the options that babelens adds. All methods train in
bfloat16 if the hardware supports it, otherwise in float32: matrix products are autocast, and weights, optimizer and
loss are always in float32."""

import math
import os
import re
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_origin

import torch
from transformers import TrainingArguments
from transformers.trainer_utils import SaveStrategy, SchedulerType
from transformers.training_args import OptimizerNames

from ..utils.errors import InputError
from .optimizers import ADAMAX, LAMB, check_task_settings

Visual = Literal["regions", "patches", "both"]
Precision = Literal["auto", "float32", "bfloat16", "float16"]
ArgumentsT = TypeVar("ArgumentsT", bound=TrainingArguments)


def _at_least_one(**sizes: int | None) -> None:
    for name, size in sizes.items():
        if size is not None and size < 1:
            raise ValueError(f"{name}={size} must be a positive number")


def with_help(arguments: type[ArgumentsT]) -> type[ArgumentsT]:
    """Copies the docstring's text for each option to where `HfArgumentParser` looks for its help."""
    own = {option.name: option for option in fields(arguments)}
    for option in fields(TrainingArguments):
        own[option.name].metadata = own[option.name].metadata or option.metadata
    for names, text in re.findall(r"^ {8}(\w[\w, ]*): (.*(?:\n {12}.*)*)", arguments.__doc__ or "", re.MULTILINE):
        for name in names.split(", "):
            own[name].metadata = MappingProxyType({"help": " ".join(text.split()).replace("%", "%%")})
    return arguments


# torch's names of the CPU instructions for products in bfloat16: Intel, Intel and AMD, and two for Arm.
_INSTRUCTIONS = ("amx_bf16", "avx512_bf16", "bf16", "sve_bf16")
_NAMES = {"no": "float32", "bf16": "bfloat16", "fp16": "float16"}  # accelerate's -> torch's


def fastest_precision(device_type: str) -> str:
    """Returns `bfloat16` if the hardware has instructions for it, otherwise `float32`; `device_type` is torch's."""
    if device_type == "cpu":
        flags = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
        has = torch.backends.mkldnn.is_available() and any(flags.get(name) for name in _INSTRUCTIONS)
    else:
        has = device_type != "cuda" or torch.cuda.is_bf16_supported(including_emulation=False)
    return "bfloat16" if has else "float32"


@with_help
@dataclass
class PrecisionTrainingArguments(TrainingArguments):
    """transformers' `TrainingArguments` with another way to set `bf16` and `fp16`.

    Args:
        precision: `float32`, `bfloat16` or `float16`; `auto` follows `bf16`, `fp16` or `accelerate launch`, and
            otherwise is bfloat16 if the hardware has instructions for it, or float32.
        bf16: the same as `precision="bfloat16"`.
    """

    # `metric_for_best_model`, unless another one is given.
    best_metric: ClassVar[str] = "loss"

    precision: Precision = "auto"
    bf16: bool | None = None

    def __getstate__(self) -> dict[str, Any]:
        """The state without the token: `Trainer` saves it as `training_args.bin`, and pushes this file."""
        return {**self.__dict__, "hub_token": None}

    def __post_init__(self) -> None:
        given: Any = self  # whose inherited fields the type checker does not know
        if not math.isfinite(given.learning_rate):
            raise InputError(f"learning_rate={given.learning_rate} must be a finite number")
        for each in fields(self):
            kinds = [kind for kind in (each.type, *get_args(each.type)) if get_origin(kind) is Literal]
            known = [value for kind in kinds for value in get_args(kind)]
            if known and (value := getattr(self, each.name)) not in (*known, each.default):
                raise ValueError(f"{each.name}={value!r} must be one of {', '.join(map(repr, known))}")
        on_cpu = given.use_cpu or not torch.accelerator.is_available()
        launcher = os.environ.get("ACCELERATE_MIXED_PRECISION", "no")
        asked: str = self.precision
        if asked == "auto" and self.bf16 is None and not given.fp16 and launcher == "no":
            asked = fastest_precision("cpu" if on_cpu else torch.accelerator.current_accelerator().type)
        if asked != "auto":
            if (self.bf16 and asked != "bfloat16") or (given.fp16 and asked != "float16"):
                raise InputError(f"precision={asked!r} contradicts bf16 or fp16: leave one out")
            self.bf16, given.fp16 = asked == "bfloat16", asked == "float16"
        self.bf16 = bool(self.bf16)
        if on_cpu and given.fp16:
            raise InputError("a CPU cannot train in float16: choose float32 or bfloat16")
        if on_cpu and self.bf16:
            given.use_cpu = True  # otherwise, transformers expects an accelerator for bf16
        # A plateau schedule uses the same metric, which then has to be one that falls.
        seeks_best = self.load_best_model_at_end or self.save_strategy == SaveStrategy.BEST
        if seeks_best and self.lr_scheduler_type != SchedulerType.REDUCE_ON_PLATEAU:
            self.metric_for_best_model: str | None = self.metric_for_best_model or self.best_metric
        super().__post_init__()
        if asked != "auto":  # overrides `accelerate launch`
            self.mixed_precision = next(name for name, precision in _NAMES.items() if precision == asked)

    @property
    def chosen_precision(self) -> str:
        """`float32`, `bfloat16` or `float16`."""
        return _NAMES.get(self.mixed_precision, "float32")


@with_help
@dataclass
class ContrastiveTrainingArguments(PrecisionTrainingArguments):
    """transformers' training arguments and these options.

    Args:
        optim: any optimizer of transformers, `lamb` (You et al. 2020) or `adamax`.
        embed_chunk_size: examples to embed at a time, sorted by the length of their texts.
        gradient_caching: embed each chunk twice, so that only one needs memory (Gao et al. 2021); otherwise, once.
        gather_negatives: use the examples of the other processes as negatives, with gradient.
        loss_tile_size: rows and columns in a tile of the loss's logits.
        equal_texts_are_positives: whether pairs in a batch with exactly the same text are positives of each other.
        shuffle_buffer_size: rows of a streamed corpus that each worker holds in memory and shuffles together.
        task_weights: weight of each task's loss, such as `{"text_text": 0.1}`, if it is not the default.
        task_batch_sizes: examples of each task per batch and process; default: `per_device_train_batch_size`.
        task_learning_rates: peak rate of each task, which then has its own optimizer over the shared weights.
        learning_rate_mapping: peak rates of parts of the model, such as `{"text_model.*word_embeddings": 6e-3}`, by
            regular expressions that are searched for in parameter names; the first match decides.
        towers: what to train of the towers `image` and `text`: arguments of `TowerTraining`, such as `{"image":
            {"train": "none"}, "text": {"train": "upper", "layers": 4}}`.
        cache_frozen_features: compute the features of frozen towers once for all epochs and keep them on disk.
        languages, eval_languages: of image-text pairs to train on, and to evaluate during training; default: all.
        image_augmentation: arguments of `ImageAugmentation`; default: horizontal flips with probability 1/2.
        text_augmentation: arguments of `TextAugmentation`; default: no augmentation.
    """

    best_metric: ClassVar[str] = "mean_recall"

    optim: OptimizerNames | str = OptimizerNames.ADAMW_TORCH_FUSED
    embed_chunk_size: int | None = None
    gradient_caching: bool = True
    gather_negatives: bool = True
    loss_tile_size: int | None = None
    equal_texts_are_positives: bool = True
    shuffle_buffer_size: int = 1000
    task_weights: dict[str, float] | None = None
    task_batch_sizes: dict[str, int] | None = None
    task_learning_rates: dict[str, float] | None = None
    learning_rate_mapping: dict[str, float] | None = None
    towers: dict[str, dict[str, Any]] | None = None
    cache_frozen_features: bool = True
    languages: list[str] | None = None
    eval_languages: list[str] | None = None
    image_augmentation: dict[str, Any] | None = None
    text_augmentation: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        _at_least_one(**{f"task_batch_sizes[{name!r}]": size for name, size in (self.task_batch_sizes or {}).items()})
        sizes = ("embed_chunk_size", "loss_tile_size", "shuffle_buffer_size")
        _at_least_one(**{name: getattr(self, name) for name in sizes})
        check_task_settings(self)
        # transformers turns `optim` into a member of its enumeration, which has neither LAMB nor Adamax.
        own = self.optim if self.optim in (LAMB, ADAMAX) else None
        if own:
            self.optim = OptimizerNames.ADAMW_TORCH
        super().__post_init__()
        if own:
            self.optim = own
        if self.task_learning_rates:
            # With accumulated gradients, DistributedDataParallel would add up the gradients of several tasks
            # before it synchronizes them.
            accumulation = self.accelerator_config.gradient_accumulation_kwargs or {}
            self.accelerator_config.gradient_accumulation_kwargs = accumulation | {"sync_each_batch": True}


@with_help
@dataclass
class MlaTrainingArguments(ContrastiveTrainingArguments):
    """Training arguments of MLA, by default the paper's for native language transfer (section 4.1). For language
    exposure, the paper uses a learning rate of 3e-6. Without `image_augmentation`, images are prepared as for the
    native model; with it, they are also cropped at random.

    Args:
        trainable: `acquirers`, those of `languages` and the non-native embedding; `native`, the native model; `all`.
        train_temperature: train the temperature with the native model; the paper's fine-tuning fixes it at 1/100.
        text_text_objective, image_text_objective: of native language transfer and of language exposure, instead of
            those in the model's configuration.
        mix_languages: whether a batch mixes all languages; by default, all examples in a step are in one language.
    """

    # Options that do not apply: MLA is trained on a Dataset, and on word pieces of two vocabularies.
    shuffle_buffer_size: int = field(default=1000, init=False)
    text_augmentation: dict[str, Any] | None = field(default=None, init=False)

    learning_rate: float = 1e-4
    adam_beta2: float = 0.98
    adam_epsilon: float = 1e-6
    weight_decay: float = 0.2
    lr_scheduler_type: str = "cosine"
    warmup_steps: float = 0.1
    per_device_train_batch_size: int = 128
    max_grad_norm: float = 1.0
    trainable: Literal["acquirers", "native", "all"] = "acquirers"
    train_temperature: bool = False
    text_text_objective: Literal["mse", "nce"] | None = None
    image_text_objective: Literal["mse", "nce", "sigmoid"] | None = None
    mix_languages: bool = False

    def __post_init__(self) -> None:
        if self.train_temperature and self.trainable == "acquirers":
            raise InputError(
                "train_temperature: with trainable='acquirers', the temperature belongs to the frozen native model"
            )
        given: Any = self  # whose inherited fields the type checker does not know
        if given.ddp_find_unused_parameters is None:
            # In a step of one language, the acquirers of the other languages get no gradient.
            given.ddp_find_unused_parameters = self.trainable != "native"
        super().__post_init__()


@with_help
@dataclass
class WordDualEncoderTrainingArguments(ContrastiveTrainingArguments):
    """Training arguments of word-level dual encoders, which train on images with captions in several languages. With
    `cache_frozen_features`, the backbone is frozen, and images are not augmented.

    Args:
        sentences_per_image: number of captions per image and language in a batch.
        languages_per_batch: languages in a batch, sampled for each batch, which leaves time and memory for more
            images; default: all.
    """

    # Options that do not apply: batches consist of images from a Dataset with their captions as words.
    embed_chunk_size: int | None = field(default=None, init=False)
    gradient_caching: bool = field(default=True, init=False)
    loss_tile_size: int | None = field(default=None, init=False)
    shuffle_buffer_size: int = field(default=1000, init=False)
    text_augmentation: dict[str, Any] | None = field(default=None, init=False)
    equal_texts_are_positives: bool = field(default=True, init=False)
    towers: dict[str, dict[str, Any]] | None = field(default=None, init=False)

    # A batch may lack a language, whose projection and branch then get no gradient.
    ddp_find_unused_parameters: bool | None = True
    sentences_per_image: int = 2
    languages_per_batch: int | None = None

    def __post_init__(self) -> None:
        _at_least_one(sentences_per_image=self.sentences_per_image, languages_per_batch=self.languages_per_batch)
        super().__post_init__()


@with_help
@dataclass
class SmalrTrainingArguments(WordDualEncoderTrainingArguments):
    """Training arguments of SMALR, by default the papers' (SMALR and MULE): Adam with a constant learning rate,
    without weight decay or clipping, on batches of 450 images with two sentences in each language. SMALR's paper
    states only the learning rate of HEM and LA, and refers to MULE, whose code uses 1e-4."""

    learning_rate: float = 1e-3
    lr_scheduler_type: str = "constant"
    max_grad_norm: float = 0.0
    num_train_epochs: float = 20
    per_device_train_batch_size: int = 450


@with_help
@dataclass
class LiweTrainingArguments(WordDualEncoderTrainingArguments):
    """Training arguments of LIWE, by default the settings of the authors' code, but with a constant learning rate: the
    code's steps differ between experiments, and the paper states no schedule."""

    optim: OptimizerNames | str = ADAMAX
    learning_rate: float = 1e-3
    lr_scheduler_type: str = "constant"
    num_train_epochs: float = 30
    per_device_train_batch_size: int = 128
    max_grad_norm: float = 2.0


@with_help
@dataclass
class Rc3TrainingArguments(PrecisionTrainingArguments):
    """Training arguments of RC3's pre-training: the paper's learning rate (section 3.2) for Adam without weight decay,
    and transformers' linear decay to 0 and clipping to norm 1, because the paper states neither.

    Args:
        data_set_batch_sizes: examples of each data set per batch and process; default: `per_device_train_batch_size`.
        parallel_captions: also train on the captions of strictly aligned data as parallel texts, as the paper does.
        strict_visual, weak_visual: how images of strictly and weakly aligned data are given, if the model reads both
            by default as in the paper: regions and patches.
        image_augmentation: arguments of `ImageAugmentation`, for patches; default: no augmentation.
        augmented_regions: augmented copies of each image for which regions are precomputed.
        eval_batches: number of batches in an evaluation, always the same; default: all.
    """

    learning_rate: float = 5e-5
    data_set_batch_sizes: dict[str, int] | None = None
    parallel_captions: bool = False
    strict_visual: Visual | None = None
    weak_visual: Visual | None = None
    image_augmentation: dict[str, Any] | None = None
    augmented_regions: int = 0
    eval_batches: int | None = None

    def __post_init__(self) -> None:
        sizes = (self.data_set_batch_sizes or {}).items()
        _at_least_one(eval_batches=self.eval_batches, **{f"data_set_batch_sizes[{name!r}]": n for name, n in sizes})
        if self.augmented_regions < 0 or (self.augmented_regions and self.image_augmentation is None):
            raise ValueError(f"augmented_regions={self.augmented_regions} needs image_augmentation")
        super().__post_init__()
        # The parts of objectives with weight 0 get no gradient. The running averages are the same in all processes
        # without a broadcast.
        self.ddp_find_unused_parameters = True
        self.ddp_broadcast_buffers = False


@with_help
@dataclass
class Rc3TaskTrainingArguments(PrecisionTrainingArguments):
    """Training arguments of RC3's tasks. The paper's values for each task (table 6) are in `recipes/rc3`.

    Args:
        max_text_length: maximum number of tokens of a text, which the processor keeps; default: the processor's.
        image_augmentation: arguments of `ImageAugmentation`; default: no augmentation.
        generation: settings of the model's `generation_config`, such as `{"num_beams": 5}`; for translation only.
    """

    max_text_length: int | None = None
    image_augmentation: dict[str, Any] | None = None
    generation: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.max_text_length is not None and self.max_text_length < 3:
            raise ValueError(f"max_text_length={self.max_text_length} must be at least 3: [BOS], a word, the language")
        super().__post_init__()
        # Only translation gives the decoder a gradient.
        self.ddp_find_unused_parameters = True


def data_seed(args: TrainingArguments) -> int:
    """The seed for sampling batches: `data_seed` if it is set, otherwise `seed`."""
    return args.data_seed if args.data_seed is not None else args.seed
