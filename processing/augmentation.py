"""Random changes of images and texts in training: ALIGN's of images (section 5), and subword regularization (Kudo
2018) by MaxMatch-Dropout, its version for WordPiece (Hiraoka 2022). An example's seed determines them, so a resumed
run, and a run with more workers, use the same images and texts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from tokenizers.models import WordPiece
from torch import Tensor
from transformers import PreTrainedTokenizerFast
from transformers.image_processing_utils import BaseImageProcessor

from ..configuration.configuration_two_tower import check_probabilities
from ..utils.errors import InputError
from .images import check_size, to_rgb
from .processing_dual_encoder import note_cut_texts

# Steps of image processors that come after the random transforms; `include_top` is EfficientNet's second division.
_LATER = ("do_center_crop", "do_rescale", "do_normalize", "include_top")


@dataclass(frozen=True)
class ImageAugmentation:
    """Settings of the random transforms; `ImageAugmentation(scale=(0.8, 1.2), rotation=10, color_jitter=0.2)`.

    Args:
        horizontal_flip, grayscale: probabilities.
        scale: range of a random zoom. Edge pixels fill the border of an image that shrinks.
        rotation: largest rotation, in degrees.
        color_jitter: largest relative change of brightness, contrast and saturation.
    """

    horizontal_flip: float = 0.5
    scale: tuple[float, float] = (1.0, 1.0)
    rotation: float = 0.0
    color_jitter: float = 0.0
    grayscale: float = 0.0

    def __post_init__(self) -> None:
        check_probabilities(horizontal_flip=self.horizontal_flip, grayscale=self.grayscale)
        if not 0 < self.scale[0] <= self.scale[1]:
            raise ValueError(f"scale={self.scale} must be a range of positive numbers, smaller first")


class TrainingTransform:
    """Turns images and seeds into `pixel_values`: the image processor resizes and normalizes, and its center crop
    becomes a random one. (ConvNeXt crops as a part of resizing, which stays.)"""

    def __init__(self, image_processor: BaseImageProcessor, augmentation: ImageAugmentation | None = None) -> None:
        self.processor = image_processor
        self.augmentation = augmentation or ImageAugmentation()

    def __call__(self, images: list[Image.Image], seeds: list[int]) -> Tensor:
        """Transforms N images of any size, each by its own seed, to float32 [N, 3, crop height, crop width]."""
        rngs = [np.random.Generator(np.random.PCG64(seed)) for seed in seeds]
        for image in images:
            check_size(*image.size)
        upright = [image if image.mode == "RGB" else to_rgb(image) for image in images]
        later = {name: False for name in _LATER if hasattr(self.processor, name)}
        resized = self.processor(images=upright, **later)["pixel_values"]
        crops = [self._crop(np.asarray(pixels), rng) for pixels, rng in zip(resized, rngs, strict=True)]
        sizes = sorted({crop.shape[1:] for crop in crops})
        if len(sizes) > 1:
            raise InputError(
                f"{type(self.processor).__name__} makes images of different sizes, such as {sizes[0]} and {sizes[1]}: "
                "set its do_center_crop, or a size with height and width"
            )
        pixels = torch.from_numpy(np.stack(crops))  # uint8 [N, 3, H, W]
        pixels = self._recolor(self._warp(pixels, rngs), rngs)
        same = dict.fromkeys(("do_resize", "do_center_crop", "do_convert_rgb"), False)
        values = self.processor(images=[*pixels.numpy()], **same, return_tensors="pt")["pixel_values"]
        # Convolutions on CPUs and tensor cores are fastest with channels last in memory.
        return values.float().contiguous(memory_format=torch.channels_last)

    def _crop(self, pixels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        if pixels.ndim != 3 or pixels.dtype != np.uint8:  # such as SigLIP 2's patches
            raise InputError(f"{type(self.processor).__name__} makes no images that training could change at random")
        height, width = pixels.shape[1:]
        if getattr(self.processor, "do_center_crop", False):
            height, width = self.processor.crop_size["height"], self.processor.crop_size["width"]
        top = int(rng.integers(pixels.shape[1] - height + 1))
        left = int(rng.integers(pixels.shape[2] - width + 1))
        pixels = pixels[:, top : top + height, left : left + width]
        return pixels[..., ::-1] if rng.random() < self.augmentation.horizontal_flip else pixels

    def _warp(self, pixels: Tensor, rngs: list[np.random.Generator]) -> Tensor:
        if self.augmentation.scale == (1.0, 1.0) and not self.augmentation.rotation:
            return pixels
        pixels = pixels.float()
        zoom = np.array([rng.uniform(*self.augmentation.scale) for rng in rngs])
        angle = np.deg2rad([rng.uniform(-self.augmentation.rotation, self.augmentation.rotation) for rng in rngs])
        cos, sin, zero = np.cos(angle) / zoom, np.sin(angle) / zoom, np.zeros(len(rngs))
        aspect = pixels.shape[-1] / pixels.shape[-2]  # both axes run from -1 to 1
        matrices = np.stack([cos, -sin / aspect, zero, sin * aspect, cos, zero], 1)  # [N, 6]
        theta = torch.tensor(matrices, dtype=pixels.dtype).view(-1, 2, 3)
        grid = torch.nn.functional.affine_grid(theta, list(pixels.shape), align_corners=False)
        return torch.nn.functional.grid_sample(pixels, grid, padding_mode="border", align_corners=False)

    def _recolor(self, pixels: Tensor, rngs: list[np.random.Generator]) -> Tensor:
        jitter = self.augmentation.color_jitter
        if not jitter and not self.augmentation.grayscale:
            return pixels
        pixels = pixels.float()
        draws = np.array([[*rng.uniform(1 - jitter, 1 + jitter, 3), rng.random()] for rng in rngs], dtype=np.float32)
        brightness, contrast, saturation = torch.from_numpy(draws[:, :3].T).view(3, -1, 1, 1, 1)  # each [N, 1, 1, 1]
        grey = torch.from_numpy(draws[:, 3] < self.augmentation.grayscale).view(-1, 1, 1, 1)
        saturation = saturation.masked_fill(grey, 0.0)
        red, green, blue = pixels.split(1, dim=1)
        luma = (0.299 * red).add_(green, alpha=0.587).add_(blue, alpha=0.114)  # [N, 1, H, W], ITU-R BT.601
        mean = luma.mean((2, 3), keepdim=True)
        # Saturation scales colors about the luma, contrast about the mean, and brightness about 0. All three are
        # linear, so two passes over the images are enough.
        rest = luma * ((1 - saturation) * contrast) + mean * (1 - contrast)
        return pixels.mul_(saturation * contrast * brightness).add_(rest.mul_(brightness)).clamp_(0, 255)


@dataclass(frozen=True)
class TextAugmentation:
    """Settings of the random segmentation: `subword_dropout` is the probability that a piece is skipped in favor of
    the next shorter one that fits, `share` that a text is changed at all; by default, texts of all `tasks` are."""

    subword_dropout: float = 0.0
    share: float = 1.0
    tasks: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        check_probabilities(subword_dropout=self.subword_dropout, share=self.share)


class SubwordDropout:
    """Turns texts and seeds into `input_ids` and `attention_mask`, cut at `max_length` tokens with `[CLS]` and
    `[SEP]`."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, augmentation: TextAugmentation, max_length: int) -> None:
        if not isinstance(getattr(getattr(tokenizer, "backend_tokenizer", None), "model", None), WordPiece):
            raise ValueError(f"subword_dropout needs a WordPiece tokenizer, not {type(tokenizer).__name__}")
        self.tokenizer, self.augmentation, self.max_length = tokenizer, augmentation, max_length
        self._vocabulary = tokenizer.get_vocab()

    def __call__(self, texts: Sequence[str], seeds: Sequence[int], column: int = 0) -> dict[str, Tensor]:
        """Segments N texts, each by its own seed, into [N, T]; `column` distinguishes texts of one example, which
        share a seed."""
        backend = self.tokenizer.backend_tokenizer
        rows = []
        for text, seed in zip(texts, seeds, strict=True):
            rng = np.random.Generator(np.random.PCG64([seed, column]))
            dropout = self.augmentation.subword_dropout if rng.random() < self.augmentation.share else 0.0
            normal = backend.normalizer.normalize_str(text) if backend.normalizer else text
            words = [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(normal)]
            pieces = [piece for word in words for piece in self._pieces(word, dropout, rng)]
            inner = pieces[: self.max_length - 2]
            if len(inner) < len(pieces):
                note_cut_texts([text], f"{self.max_length} tokens")
            rows.append([self.tokenizer.cls_token_id, *inner, self.tokenizer.sep_token_id])
        return dict(self.tokenizer.pad({"input_ids": rows}, return_tensors="pt"))

    def _pieces(self, word: str, dropout: float, rng: np.random.Generator) -> list[int]:
        model, pieces, start = self.tokenizer.backend_tokenizer.model, [], 0
        while start < len(word) <= model.max_input_chars_per_word:
            prefix = model.continuing_subword_prefix if start else ""
            found = ((end, self._vocabulary.get(prefix + word[start:end])) for end in range(len(word), start, -1))
            fitting = [(end, piece) for end, piece in found if piece is not None]
            if not fitting:
                return [self.tokenizer.unk_token_id]
            # The shortest piece that fits is never skipped, so known letters never become unknown.
            start, piece = next((fit for fit in fitting[:-1] if not dropout or rng.random() >= dropout), fitting[-1])
            pieces.append(piece)
        return pieces or [self.tokenizer.unk_token_id]  # the word is too long
