"""Configuration of RC3 (Zhou et al. 2023), in which the encoder-decoder has mBART's names. The defaults are the
paper's: mBART-50 (section 3.1), with [CLS] and [SEP'] added at the end of its vocabulary, 36 regions of width 2048, 49
patches of 32 x 32 pixels, and the seven languages of the parallel texts (section 2.1)."""

from dataclasses import field
from typing import Final, Literal

from huggingface_hub.dataclasses import strict
from transformers import MBartConfig

from ..utils.hub_mixin import HubCodeMixin
from ..utils.language_matching import language_id
from ..utils.languages import normalize_language
from .configuration_two_tower import check_positive, check_probabilities

REGIONS: Final = "regions"
PATCHES: Final = "patches"
BOTH: Final = "both"

# The pre-training data sets: images with captions that translate each other, images with captions that may not, and
# translations without images (section 2.1).
STRICT: Final = "strict"
WEAK: Final = "weak"
PARALLEL: Final = "parallel"


@strict
class Rc3Config(HubCodeMixin, MBartConfig):
    """Configuration of all RC3 models. It also accepts the arguments of transformers' `MBartConfig`. Without
    `id2label`, a model for a task uses that task's labels.

    Args:
        visual: Visual inputs that the model reads: `regions` of an object detector, `patches` of pixels, or `both`.
        image_size, patch_size: Side of an image and of a patch, in pixels.
        images_per_text: Number of images that come with each text: 1, or 2 as for `Rc3ForVisualReasoning`.
        cls_token_id: Id of [CLS], the first token of an input with an image; texts begin with mBART's `<s>`.
        image_separator_token_id: Id of [SEP'], which separates two images. [SEP], which separates the regions and the
            patches of one image, is mBART's `</s>` (`eos_token_id`).
        languages, language_token_ids: BCP-47 tags of the languages that the model reads and writes, and their tokens.
        slack: zeta in equation 6, which limits how far negatives are moved towards the anchor.
        history: Number of steps over which the probability of the positives is averaged (equation 6).
        relevance_weight: Weight of the regularization by textual relevance (equation 12); 0 leaves it out.
    """

    model_type = "rc3"
    auto_classes = ("AutoConfig",)

    vocab_size: int = 250_056
    scale_embedding: bool = True
    forced_eos_token_id: int | list[int] | None = None

    visual: Literal["regions", "patches", "both"] = BOTH
    region_size: int = 2048
    max_regions: int = 36
    image_size: int = 224
    patch_size: int = 32
    patch_width: int = 768
    images_per_text: int = 1
    mask_token_id: int = 250_053
    cls_token_id: int = 250_054
    image_separator_token_id: int = 250_055
    languages: list[str] | tuple[str, ...] = ("cs", "de", "en", "fr", "id", "ja", "zh")
    language_token_ids: list[int] | tuple[int, ...] = (250_002, 250_003, 250_004, 250_008, 250_032, 250_012, 250_025)

    # transformers' default is two labels, which look the same as two labels that a user gave.
    id2label: dict[int, str] | dict[str, str] | None = field(default_factory=dict)
    label2id: dict[str, int] | dict[str, str] | None = field(default_factory=dict)

    mask_probability: float | int = 0.15
    slack: float | int = 0.9
    history: int = 100
    mclm_weight: float | int = 1.0
    itm_weight: float | int = 1.0
    xtcl_weight: float | int = 1.0
    rxvtcl_weight: float | int = 1.0
    relevance_weight: float | int = 1.0

    def __post_init__(self, **kwargs: object) -> None:
        self.languages = [normalize_language(tag) for tag in self.languages]
        self.language_token_ids = list(self.language_token_ids)
        check_positive(self, "region_size", "max_regions", "patch_size", "patch_width", "history", "image_size")
        check_positive(self, "mask_probability")
        if self.image_size % self.patch_size:
            raise ValueError(f"image_size={self.image_size} must be a multiple of patch_size={self.patch_size}")
        if self.images_per_text not in (1, 2):
            raise ValueError(f"images_per_text={self.images_per_text}: the model reads 1 or 2 images with a text")
        check_probabilities(mask_probability=self.mask_probability, slack=self.slack)
        self._check_tokens()
        if not self.id2label and kwargs.get("num_labels") is not None:
            self.id2label = None  # transformers then makes that number of labels
        super().__post_init__(**kwargs)

    def _check_tokens(self) -> None:
        if len(self.languages) != len(self.language_token_ids):
            raise ValueError(
                f"{len(self.languages)} languages need as many language_token_ids, not {len(self.language_token_ids)}"
            )
        names = [f"{name}_token_id" for name in ("pad", "bos", "eos", "mask", "cls", "image_separator")]
        tokens = {name: getattr(self, name) for name in names}
        tokens |= {f"language_token_ids[{i}]": token for i, token in enumerate(self.language_token_ids)}
        for name, token in tokens.items():
            if not 0 <= token < self.vocab_size:
                raise ValueError(f"{name}={token} is not in a vocabulary of {self.vocab_size}")
        for kind, values in {"languages": self.languages, "special tokens": list(tokens.values())}.items():
            if len({*values}) < len(values):
                raise ValueError(f"{kind} must differ: {tokens | {kind: values}}")

    @property
    def has_regions(self) -> bool:
        return self.visual in (REGIONS, BOTH)

    @property
    def has_patches(self) -> bool:
        return self.visual in (PATCHES, BOTH)

    @property
    def patches_per_image(self) -> int:
        return (self.image_size // self.patch_size) ** 2

    def language_token_id(self, language: str) -> int:
        """Returns the id of the token of a language, given by its BCP-47 tag."""
        return self.language_token_ids[language_id(language, list(self.languages))]
