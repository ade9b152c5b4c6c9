"""What the processors of dual encoders with one vocabulary share: texts with their languages and images, in one
call.
"""

from pathlib import Path
from typing import Any, ClassVar, Self

from transformers import (
    AutoImageProcessor,
    AutoTokenizer,
    BatchFeature,
    PreTrainedConfig,
)
from transformers.processing_utils import TextKwargs

from ..configuration.configuration_two_tower import text_positions
from ..utils.errors import InputError
from ..utils.languages import language_for_each
from .processing_text_image import LARGEST_LENGTH, TextImageProcessor, as_batch
from .text_inputs import as_texts, call_tokenizer, note_cut_texts, overlong

MAX_TEXT_TOKENS = 64  # MURAL and ETCL
# Vision backbones that read images of any size, though they state the size that they were trained with.
_READ_ANY_SIZE = frozenset(
    ["convnext", "convnextv2", "dinov2", "dinov3_vit", "siglip2_vision_model", "swin", "swinv2"]
)
# Keywords for pairs of texts, and for texts with placeholders of images, which these models do not have.
_NOT_OF_ONE_TEXT = {
    *("text_pair", "text_target", "text_pair_target", "is_split_into_words", "sanitize_control_tokens"),
    *("return_mm_token_type_ids", "return_text_replacement_offsets"),
}


class DualEncoderProcessor(TextImageProcessor):
    """Turns images and texts into `pixel_values`, `input_ids` and `attention_mask`.

    Args:
        image_processor: such as a `MuralImageProcessor`.
        tokenizer: a fast tokenizer, such as `train_wordpiece` returns.
        text_prompt: what is put before every text, such as "query: " for E5.
        max_text_length: number of tokens at which texts are cut.
        pad_to_max_length: whether every text is padded to `max_text_length`, as SigLIP's text tower needs it, instead
            of to the longest of the batch.
    """

    one_tokenizer: ClassVar[bool] = True
    text_names: ClassVar[frozenset[str]] = frozenset(TextKwargs.__annotations__) - _NOT_OF_ONE_TEXT

    def __init__(
        self,
        image_processor: Any,
        tokenizer: Any,
        text_prompt: str = "",
        max_text_length: int = MAX_TEXT_TOKENS,
        pad_to_max_length: bool = False,
        **more: Any,
    ) -> None:
        super().__init__(image_processor, tokenizer, **more)
        self.text_prompt, self.max_text_length = text_prompt, max_text_length
        self.pad_to_max_length = pad_to_max_length
        # BERT's tokenizers would return segment ids too, for which not every text tower has an input. `init_kwargs` is
        # saved, so that pipelines, which load the tokenizer alone, do the same.
        tokenizer.model_input_names = ["input_ids", "attention_mask"]
        tokenizer.init_kwargs["model_input_names"] = tokenizer.model_input_names

    @classmethod
    def from_towers(cls, image: Any, text: Any, config: PreTrainedConfig, **loading: Any) -> Self:
        """Makes the processor of a model of two pretrained towers, with their own image processor and tokenizer.

        Args:
            image: folder or Hub id of the vision backbone, or its image processor.
            text: folder or Hub id of the text encoder, or its tokenizer.
            config: configuration of the model (`from_towers` of the model), which has the prompt of texts.
            loading: keyword arguments of `from_pretrained` for both, such as `revision`.

        Raises:
            InputError: if the image processor makes images of a size that the backbone cannot read.
            ModelFolderError: if there is no image processor or no tokenizer.

        Examples:
            >>> towers = "facebook/dinov2-small", "intfloat/multilingual-e5-small"
            >>> model = MuralModel.from_towers(*towers, projection_dim=512)
            >>> processor = MuralProcessor.from_towers(*towers, model.config)
        """
        from ..utils.pretrained import load_processor

        if isinstance(image, str | Path):
            # Pillow on every machine: transformers would use torchvision where it is installed, whose pixels differ.
            image = load_processor(AutoImageProcessor, image, **{"backend": "pil"} | loading)
        if isinstance(text, str | Path):
            text = load_processor(AutoTokenizer, text, **loading)
        check_image_size(image, config.vision_config)
        is_padded = "siglip" in config.text_config.model_type
        longest = longest_text(config.text_config, text)
        length = longest if is_padded else min(longest, MAX_TEXT_TOKENS)
        return cls(image, text, text_prompt=config.text_prompt, max_text_length=length, pad_to_max_length=is_padded)

    @property
    def text_kwargs(self) -> dict[str, Any]:
        """The default settings of texts."""
        settings: dict[str, Any] = {"padding": True, "truncation": True, "max_length": self.max_text_length}
        if self.pad_to_max_length:  # SigLIP's text tower reads the padding too
            settings |= {"padding": "max_length", "return_attention_mask": False}
        return settings

    @property
    def least_length(self) -> int:
        """Smallest `max_length` for which a text that is cut keeps a token of its own."""
        plain = {"add_special_tokens": False}
        prompt = call_tokenizer(self.tokenizer, self.text_prompt, **plain)["input_ids"] if self.text_prompt else []
        return int(self.tokenizer.num_special_tokens_to_add()) + len(prompt) + 1

    def __call__(
        self,
        images: Any = None,
        text: str | list[str] | None = None,
        language: str | list[str] | None = None,
        **kwargs: Any,
    ) -> BatchFeature:
        """Prepares images, texts or both for a model.

        Args:
            images: an image or a list of them (Pillow, arrays and tensors of uint8, paths); see `as_images`.
            text: a text or a list of texts.
            language: BCP-47 tag of all texts, or a list with one for each text; also in `text_kwargs`. The vocabulary
                is the same for all languages, so that the tag is checked and has no other effect; methods with a
                tokenizer for each language need it.
            kwargs: keyword arguments of transformers' processors, directly or in `text_kwargs`, `images_kwargs` and
                `common_kwargs`: `return_tensors="pt"`, `padding`, `truncation`, `max_length`, and others of the
                tokenizer and the image processor.

        Returns:
            The model's inputs: `input_ids` and `attention_mask` of texts, `pixel_values` of images.

        Raises:
            ArgumentError: for an unknown keyword.
            ImageError: if an item is not an image, or cannot be read.
            InputError: if there is nothing to prepare, a list is empty, an item is not a Unicode text, there are not
                as many languages as texts, there are languages without texts, or a keyword has a wrong value.
            LanguageTagError: if a tag names no language.
        """
        language, text_settings, image_settings = self.read_settings(language, kwargs)
        self.check_given(images, text, language)
        inputs: dict[str, Any] = {}
        if text is not None:
            inputs |= self._encoded(text, language, text_settings)
        if images is not None:
            inputs |= self.read_images(images, image_settings)
        return as_batch(inputs, text_settings.get("return_tensors"))

    def _encoded(self, text: Any, language: Any, settings: dict[str, Any]) -> Any:
        texts = as_texts(text)
        if language is not None:
            language_for_each(language, len(texts))
        try:
            # As with any tokenizer, a single text gives one row and not a list of rows, unless it becomes a tensor.
            prompted = [self.text_prompt + each for each in texts]
            given = prompted[0] if isinstance(text, str) else prompted
            encoded = call_tokenizer(self.tokenizer, given, **{"verbose": False} | settings)
        except ValueError as error:
            raise InputError(f"{type(self.tokenizer).__name__}: {error}") from error
        note_cut_texts(overlong(texts, encoded), f"{settings['max_length']} tokens")
        return encoded


def check_image_size(image_processor: Any, config: PreTrainedConfig) -> None:
    """Checks that a vision backbone can read the images that an image processor makes.

    Raises:
        InputError: if they have another size than the only one that the backbone reads.
    """
    made = getattr(image_processor, "crop_size", None) if getattr(image_processor, "do_center_crop", False) else None
    made = made or getattr(image_processor, "size", None) or {}
    sides = {side for name, side in dict(made).items() if name in ("height", "width", "shortest_edge")}
    # Backbones with a table of positions for a fixed number of patches; the others read any size.
    reads = getattr(config, "image_size", None) if hasattr(config, "patch_size") else None
    wanted = set(reads if isinstance(reads, list | tuple) else [reads])
    reads_any = config.model_type in _READ_ANY_SIZE or None in wanted
    if sides and not reads_any and sides != wanted:
        raise InputError(
            f"the image processor makes images of {sorted(sides)} pixels a side, and the backbone reads "
            f"{sorted(wanted)}: take the image processor that belongs to it"
        )


def longest_text(config: PreTrainedConfig, tokenizer: Any) -> int:
    """Returns the number of tokens of the longest text that a text encoder and its tokenizer take."""
    return int(min(text_positions(config) or LARGEST_LENGTH, tokenizer.model_max_length, LARGEST_LENGTH))
