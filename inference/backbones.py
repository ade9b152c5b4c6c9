"""Image encoders and detectors that compute features: averaged over ten crops (for SMALR), or of regions (for RC3)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d
from transformers import AutoImageProcessor, AutoModel, AutoModelForObjectDetection, BatchFeature, PreTrainedModel
from transformers.image_processing_utils import BaseImageProcessor

from ..configuration.configuration_two_tower import image_width
from ..modeling.modeling_common import vision_tower
from ..modeling.modeling_dual_encoder import pool_image
from ..processing.augmentation import ImageAugmentation, TrainingTransform
from ..processing.images import as_images, check_size
from ..utils.errors import InputError, ModelKindError, first_line
from ..utils.identity import model_identity
from ..utils.pretrained import load_model, load_processor
from .embedder import default_device

CROP = 448  # pixels of each side of each of the ten crops of an image


def load_backbone(folder_or_repo: str | Path, **loading: Any) -> PreTrainedModel:
    """Loads a vision model: a model of only images, or the vision tower of a dual encoder or of an MLA model."""
    return vision_tower(load_model(AutoModel, folder_or_repo, **loading))


def check_backbone(backbone: PreTrainedModel, image_processor: BaseImageProcessor, called: str | Path) -> None:
    """Checks with a black image that a backbone takes the images that its processor prepares; errors say `called`."""
    width = pool_image(_read_black_image(backbone, image_processor, called)).shape[1]
    stated = image_width(backbone.config)
    if width != stated:
        raise InputError(f"{called}: its features have the width {width}, its configuration states {stated}")


def _read_black_image(model: PreTrainedModel, image_processor: BaseImageProcessor, called: str | Path) -> Any:
    """The output for a black square; an `InputError` that names its size where a model does not take it."""
    pixels = image_processor(Image.new("RGB", (64, 64)), return_tensors="pt")["pixel_values"]
    try:
        with torch.inference_mode():
            return model(pixel_values=pixels.to(model.device, model.dtype))
    except (TypeError, ValueError, RuntimeError) as error:
        size = " x ".join(str(side) for side in pixels.shape[-2:])
        raise InputError(
            f"{called} does not take the images of {size} pixels that its image processor prepares: "
            f"{first_line(error)}; change the sizes of the image processor"
        ) from error


# ---- Ten crops (Burns et al. 2020, section 4: ResNet-152 and crops of 448 x 448) ----
# The crops are the four corners and the centre, and their mirror images (Krizhevsky et al. 2012). The paper does not
# give the size of an image before it is cropped: here the shorter side has 512 pixels, as 512 : 448 is 256 : 224.


class TenCropFeatures:
    """Images -> float32 [N, F]: a vision model's pooled features, the mean over ten crops with sides of `crop` pixels
    of an image whose shorter side has 8/7 of them. The image processor scales colours; its sizes are not used."""

    def __init__(self, backbone: PreTrainedModel, image_processor: BaseImageProcessor, *, crop: int = CROP) -> None:
        self.backbone, self.image_processor = backbone.eval(), image_processor
        self.resize, self.crop = crop * 8 // 7, crop
        try:
            self.width = self._encode(torch.zeros(1, 3, crop, crop)).shape[1]
        except ValueError as error:
            raise ModelKindError(f"{type(backbone).__name__}, crops of {crop} x {crop}: {error}") from error

    @classmethod
    def from_pretrained(cls, folder_or_repo: str | Path, *, crop: int = CROP, **loading: Any) -> Self:
        """Loads the backbone, onto the accelerator if there is one; `loading` are arguments of `AutoModel`."""
        backbone = load_backbone(folder_or_repo, **loading).to(default_device())
        return cls(backbone, load_processor(AutoImageProcessor, folder_or_repo, **loading), crop=crop)

    def __call__(self, images: Sequence[Image.Image]) -> np.ndarray:
        """Upright RGB images of any size -> [N, F]."""
        crops = [crop for image in images for crop in self._five_crops(image)]
        inputs = self.image_processor(images=crops, do_resize=False, do_center_crop=False, return_tensors="pt")
        pixels = inputs["pixel_values"]  # [5 N, 3, H, W]
        features = self._encode(torch.cat([pixels, pixels.flip(-1)]))
        return features.view(2, len(images), 5, -1).mean((0, 2)).cpu().numpy()

    def _five_crops(self, image: Image.Image) -> list[Image.Image]:
        """The corners (top left, top right, bottom left, bottom right) and the centre of a resized image."""
        check_size(*image.size)
        factor = self.resize / min(image.size)
        size = (round(image.width * factor), round(image.height * factor))
        image = image.resize(size, self.image_processor.resample)
        right, bottom = size[0] - self.crop, size[1] - self.crop
        corners = [(0, 0), (right, 0), (0, bottom), (right, bottom), (right // 2, bottom // 2)]
        return [image.crop((left, top, left + self.crop, top + self.crop)) for left, top in corners]

    @torch.no_grad()
    def _encode(self, pixels: Tensor) -> Tensor:
        inputs = pixels.to(self.backbone.device, self.backbone.dtype)
        return pool_image(self.backbone(pixel_values=inputs)).float()


# ---- Regions of images for which none are published ----
# The regions of the RC3 paper come from a Faster R-CNN, which is not among transformers' models. Here the feature of a
# detected object is the decoder state of the query that found it, in a detector such as DETR (Carion et al. 2020). An
# image encoder gives a grid of regions instead: the feature of each cell is the mean of the encoder's last features
# there. The grid is our choice, for images of single objects.


class RegionExtractor:
    """Computes region features of images, in batches, on the device of the model.

    Args:
        model: with a `grid`, an image encoder, whose features are a map [n, d, h, w] (ResNet, ConvNeXt, EfficientNet)
            or the states of square patches (ViT, CLIP, SigLIP, DINOv2), which Swin merges; otherwise a
            `...ForObjectDetection` of DETR's kind: DETR, Conditional and Deformable DETR, RT-DETR, YOLOS.
        grid: the cells on each side of an image, which are its regions, row by row.
        max_regions: of a detector, whose regions are the queries with the highest probability of an object.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        image_processor: BaseImageProcessor,
        *,
        grid: int | None = None,
        max_regions: int = 36,
        batch_size: int = 16,
    ) -> None:
        self.model, self.image_processor, self.batch_size = model.eval(), image_processor, batch_size
        self.pooling = {"max_regions": max_regions} if grid is None else {"grid": grid}
        self.can_augment = grid is not None  # the images of a detector have different sizes

    @classmethod
    def from_pretrained(
        cls, folder_or_repo: str | Path, *, grid: int | None = None, max_regions: int = 36, **loading: Any
    ) -> Self:
        """Loads a detector or, with `grid`, an image encoder (of a dual encoder, too) from a folder or the Hub."""
        images = load_processor(AutoImageProcessor, folder_or_repo, **loading)
        if grid is not None:
            extractor = cls(load_backbone(folder_or_repo, **loading), images, grid=grid)
            _read_black_image(extractor.model, images, folder_or_repo)
            return extractor
        try:
            detector = load_model(AutoModelForObjectDetection, folder_or_repo, **loading)
        except ModelKindError as error:
            raise InputError(f"{folder_or_repo} is not an object detector; an image encoder needs a grid") from error
        return cls(detector, images, max_regions=max_regions)

    @property
    def identity(self) -> str:
        """A digest of everything that the features of an image depend on."""
        return model_identity(self.model, self.image_processor, str(self.pooling))

    def shape(self) -> tuple[int, int]:
        """The number of regions and the width of their features, R and d, of a black image."""
        regions, width = self([Image.new("RGB", (64, 64))]).shape[1:]
        return regions, width

    @torch.inference_mode()
    def __call__(
        self,
        images: Sequence[Any],
        seeds: Sequence[int] = (),
        augmentation: ImageAugmentation | None = None,
    ) -> np.ndarray:
        """The regions of N images (`as_images`), float32 [N, R, d]; `augmentation` changes each image by its seed."""
        if augmentation is not None and not self.can_augment:
            raise InputError("the images of a detector have different sizes and cannot be augmented")
        transform = None if augmentation is None else TrainingTransform(self.image_processor, augmentation)
        batches = []
        for start in range(0, len(images), self.batch_size):
            batch = list(images[start : start + self.batch_size])
            if transform is None:
                inputs = self.image_processor(as_images(batch), return_tensors="pt")
            else:
                inputs = BatchFeature({"pixel_values": transform(batch, list(seeds[start : start + len(batch)]))})
            inputs = inputs.to(self.model.device, self.model.dtype)
            output = self.model(**inputs)
            if self.can_augment:
                size = inputs["pixel_values"].shape[-2:]
                found = grid_regions(output.last_hidden_state, size, self.model.config, **self.pooling)
            else:
                found = query_regions(output, self.model.config.num_labels, **self.pooling)
            batches.append(found.float().cpu().numpy())
        return np.concatenate(batches)

    def versions(self, images: Sequence[Any], augmentation: ImageAugmentation, augmented: int) -> np.ndarray:
        """The regions of images and `augmented` copies, the same at each call: float32 [N, 1 + augmented, R, d]."""
        count = len(images)
        changed = [
            self(images, range(version * count, (version + 1) * count), augmentation) for version in range(augmented)
        ]
        return np.stack([self(images), *changed], axis=1)


def query_regions(output: Any, num_labels: int, max_regions: int) -> Tensor:
    """The states of the queries with the highest probability of an object, [n, R, d], from a detector's `logits`
    [n, Q, labels] and `last_hidden_state` [n, ..., d], which ends in the states of the queries. With one logit more
    than labels, for no object, the logits are normalised by a softmax (DETR, YOLOS); otherwise each by a sigmoid."""
    logits, states = output.logits, output.last_hidden_state
    has_no_object = logits.shape[-1] == num_labels + 1
    scores = logits.softmax(-1)[..., :-1] if has_no_object else logits.sigmoid()
    queries = logits.shape[1]
    surest = scores.amax(-1).topk(min(max_regions, queries), dim=-1).indices  # [n, R]
    return states[:, -queries:].gather(1, surest[..., None].expand(-1, -1, states.shape[-1]))


def grid_regions(states: Tensor, image: Sequence[int], config: Any, grid: int) -> Tensor:
    """The means of an encoder's features over the cells of a grid, [n, grid * grid, d]: of a map [n, d, h, w], or of
    the states of patches [n, prefix + h * w, d]. `image` is its height and width in pixels; the `config` states the
    size of patches, and with `depths`, two by two of them are merged before every stage but the first."""
    if states.ndim == 3:
        size, merges = getattr(config, "patch_size", None) or 0, len(getattr(config, "depths", None) or [1]) - 1
        sizes = (size, size) if isinstance(size, int) else tuple(size)
        # Swin, which merges, pads what is not a multiple.
        height, width = (
            (-(-pixels // (patch << merges)) if merges else pixels // patch) if patch else 0
            for pixels, patch in zip(image, sizes, strict=False)
        )
        prefix = states.shape[1] - height * width
        if not height * width or prefix < 0 or (prefix and merges):
            raise InputError(f"{states.shape[1]} states are not a map of {tuple(image)} pixels in patches of {size}")
        states = states[:, prefix:].mT.unflatten(-1, (height, width))
    return adaptive_avg_pool2d(states, grid).flatten(2).mT  # [n, d, grid, grid] -> [n, grid * grid, d]
