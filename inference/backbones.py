"""Backbones: image encoders that compute features for other models, also averaged over ten crops.

Any vision model serves.
"""

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from datasets import Dataset
from datasets.utils.logging import tqdm
from PIL import Image
from torch import Tensor
from transformers import AutoImageProcessor, AutoModel, PreTrainedModel
from transformers.image_processing_utils import BaseImageProcessor

from ..configuration.configuration_two_tower import image_width
from ..data.batching.views import Images
from ..data.corpus.corpus import FEATURES
from ..modeling.towers import pool_image, vision_tower
from ..processing.images import check_size
from ..utils.defaults import CROP, RESIZE
from ..utils.errors import BabelensError, InputError, ModelFolderError, ModelKindError, SaveError, first_line
from ..utils.files import atomic_file, locked_path, remove_unfinished
from ..utils.identity import model_identity
from ..utils.pretrained import load_model, load_processor

# Files in which an image processor is saved, by itself or as a part of a processor.
_IMAGE_PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")


def load_backbone(folder_or_repo: str | Path, **loading: Any) -> PreTrainedModel:
    """Loads a vision model: a model of images alone, or the vision tower of a dual encoder or of an MLA model.

    Args:
        folder_or_repo: a folder, or a repository on the Hub.
        loading: what `load_model` takes.
    """
    model = load_model(AutoModel, folder_or_repo, **loading)
    try:
        return vision_tower(model)
    except ModelKindError as error:
        raise ModelKindError(f"{folder_or_repo} has no vision model") from error


def load_image_processor(folder_or_repo: str | Path, **loading: Any) -> BaseImageProcessor:
    """Loads the image processor of a backbone, by which its images have to be prepared.

    Args:
        folder_or_repo: a folder, or a repository on the Hub.
        loading: what `load_processor` takes.
    """
    folder = Path(folder_or_repo)
    if folder.is_dir() and not any((folder / name).is_file() for name in _IMAGE_PROCESSOR_FILES):
        raise ModelFolderError(
            f"{folder} has no image processor, and it is not known how its images are prepared: save the model's own "
            f"there, as {_IMAGE_PROCESSOR_FILES[0]}"
        )
    return load_processor(AutoImageProcessor, folder_or_repo, **loading)


def check_backbone(backbone: PreTrainedModel, image_processor: BaseImageProcessor, called: str | Path) -> None:
    """Checks that a backbone takes the images that an image processor prepares, by a black one.

    Args:
        backbone: the vision model, in evaluation mode.
        image_processor: what prepares its images.
        called: how errors name the backbone.
    """
    pixels = black_image(image_processor)
    with fitting(pixels, called), torch.inference_mode():
        width = pool_image(backbone(pixel_values=pixels.to(backbone.device, backbone.dtype))).shape[1]
    stated = image_width(backbone.config)
    if width != stated:
        raise InputError(f"{called}: its features have the width {width}, its configuration states {stated}")


def black_image(image_processor: BaseImageProcessor) -> torch.Tensor:
    """A black square as an image processor prepares it, [1, 3, H, W]."""
    return image_processor(Image.new("RGB", (64, 64)), return_tensors="pt")["pixel_values"]


@contextmanager
def fitting(pixels: torch.Tensor, called: str | Path) -> Iterator[None]:
    """Turns an error while a backbone encodes pixels into a `InputError` that names their size."""
    try:
        yield
    except BabelensError:
        raise
    except (TypeError, ValueError, RuntimeError) as error:
        size = " x ".join(str(side) for side in pixels.shape[-2:])
        raise InputError(
            f"{called} does not take the images that its image processor prepares, of {size} pixels: "
            f"{first_line(error)}; set the sizes of images to those that it takes"
        ) from error


# ---- Ten crops ----
# Features of images by a vision model, averaged over ten crops, which SMALR reads in the place of pixels (Burns et
# al. 2020, section 4: ResNet-152 and crops of 448 x 448).
#
# The crops are the four corners and the centre, and their mirror images (Krizhevsky et al. 2012). The paper does not
# give the size of an image before it is cropped: here the shorter side has 512 pixels, as 512 : 448 is 256 : 224.
#
# `write_features` makes a caption corpus of them, a folder of parquet files with a column `features` in the place of
# the images, which `load_captions` reads.


_ROWS_PER_FILE = 1000
_MADE_OF = b"babelens.made_of"  # in a file's metadata: a digest of all that its features depend on


class TenCropFeatures:
    """Images -> float32 [N, F]: a vision model's pooled features, the mean over ten crops.

    Args:
        backbone: any vision model of transformers. It is put into eval mode.
        image_processor: the backbone's, of which colours are scaled as it says; its sizes are not used.
        resize: pixels of an image's shorter side before it is cropped.
        crop: pixels of a crop's sides.
    """

    def __init__(
        self,
        backbone: PreTrainedModel,
        image_processor: BaseImageProcessor,
        *,
        resize: int = RESIZE,
        crop: int = CROP,
    ) -> None:
        if not 0 < crop <= resize:
            raise ValueError(f"crops of {crop} pixels cannot be cut from images whose shorter side has {resize}")
        self.backbone = backbone.eval()
        self.image_processor = image_processor
        self.resize, self.crop = resize, crop
        try:
            self.width = self._encode(torch.zeros(1, 3, crop, crop)).shape[1]
        except ValueError as error:
            raise ModelKindError(f"{type(backbone).__name__}, crops of {crop} x {crop}: {error}") from error

    @classmethod
    def from_pretrained(
        cls, folder_or_repo: str | Path, *, resize: int = RESIZE, crop: int = CROP, **loading: Any
    ) -> Self:
        """Loads the backbone, onto the accelerator when there is one; `loading` is what `AutoModel` takes."""
        backbone = load_backbone(folder_or_repo, **loading)
        if torch.accelerator.is_available():
            backbone = backbone.to(torch.accelerator.current_accelerator())
        return cls(backbone, load_image_processor(folder_or_repo, **loading), resize=resize, crop=crop)

    def __call__(self, images: Sequence[Image.Image]) -> np.ndarray:
        """Upright RGB images of any size -> [N, F]."""
        crops = [crop for image in images for crop in five_crops(self._resized(image), self.crop)]
        inputs = self.image_processor(images=crops, do_resize=False, do_center_crop=False, return_tensors="pt")
        pixels = inputs["pixel_values"]  # [5 N, 3, H, W]
        features = self._encode(torch.cat([pixels, pixels.flip(-1)]))
        return features.view(2, len(images), 5, -1).mean((0, 2)).cpu().numpy()

    @property
    def fingerprint(self) -> str:
        """A digest of everything but the image that makes an image's features."""
        return model_identity(self.backbone, self.image_processor, f"{self.resize} {self.crop}")

    def _resized(self, image: Image.Image) -> Image.Image:
        """The shorter side has `resize` pixels, the other in proportion."""
        check_size(*image.size)
        factor = self.resize / min(image.size)
        size = (round(image.width * factor), round(image.height * factor))
        return image.resize(size, self.image_processor.resample)

    @torch.no_grad()
    def _encode(self, pixels: Tensor) -> Tensor:
        inputs = pixels.to(self.backbone.device, self.backbone.dtype)
        return pool_image(self.backbone(pixel_values=inputs)).float()


def five_crops(image: Image.Image, size: int) -> list[Image.Image]:
    """The corners (top left, top right, bottom left, bottom right) and the centre, squares of `size` pixels."""
    right, bottom = image.width - size, image.height - size
    corners = [(0, 0), (right, 0), (0, bottom), (right, bottom), (right // 2, bottom // 2)]
    return [image.crop((left, top, left + size, top + size)) for left, top in corners]


# ---- A corpus of features ----


def write_features(
    corpus: Dataset | Mapping[str, Dataset],
    extract: TenCropFeatures,
    output: str | Path,
    *,
    batch_size: int = 4,
    rows_per_file: int = _ROWS_PER_FILE,
) -> None:
    """Writes a corpus with `features` in the place of its images, as a folder of parquet files.

    The folder appears when all files are written. Until then they are in `output.unfinished` beside it; a run that was
    interrupted continues after the last of them, if the model, the images and the captions are the same.

    Args:
        corpus: a caption corpus with images; or several by the names of their splits, whose files have these names, so
            that `datasets` finds them as splits of one folder.
        extract: computes the features.
        output: the folder, which must not exist yet.
        batch_size: number of images that are encoded at a time, each in ten crops.
        rows_per_file: number of images per file.
    """
    output = Path(output)
    with locked_path(output):
        if output.exists():
            raise FileExistsError(f"{output} exists already: choose another name, or remove it")
        splits = {"features": corpus}  # the beginnings of the names of files
        if isinstance(corpus, Mapping):
            splits = {f"data/{split}": part for split, part in corpus.items()}
        _write_files(splits, extract, output, batch_size, rows_per_file)


def _write_files(
    corpora: Mapping[str, Dataset], extract: TenCropFeatures, output: Path, batch_size: int, rows_per_file: int
) -> None:
    unfinished = output.with_name(f"{output.name}.unfinished")
    files: dict[Path, Dataset] = {}
    for name, corpus in corpora.items():
        starts = range(0, len(corpus), rows_per_file)
        for number, start in enumerate(starts):
            file = unfinished / f"{name}-{number:05}-of-{len(starts):05}.parquet"
            files[file] = corpus.select(range(start, min(start + rows_per_file, len(corpus))))
    for folder in {file.parent for file in files}:
        folder.mkdir(parents=True, exist_ok=True)
        remove_unfinished(folder)  # files that a killed run was writing would become part of the output
    for other in set(filter(Path.is_file, unfinished.rglob("*"))) - files.keys():
        if not _is_own(other):
            raise SaveError(f"{other} is no file of features, and would become part of {output}: move it elsewhere")
        other.unlink()
    made_by = extract.fingerprint
    total = sum(map(len, corpora.values()))
    with tqdm(total=total, desc="Features of images", unit=" images", disable=None) as progress:
        for file, part in files.items():
            made_of = _digest(made_by, part)
            if file.exists() and pq.read_schema(file).metadata.get(_MADE_OF) == made_of:
                progress.update(len(part))
            else:
                features = _extracted(part, extract, batch_size, progress)
                try:
                    _write(part, features, made_of, file)
                except OSError:
                    if not any(unfinished.rglob("*.parquet")):  # there is nothing to continue from
                        shutil.rmtree(unfinished)
                    raise
    os.replace(unfinished, output)


def _is_own(file: Path) -> bool:
    """Whether an earlier run has written a file here."""
    try:
        return _MADE_OF in (pq.read_schema(file).metadata or {})
    except (pa.ArrowInvalid, OSError):
        return False


def _extracted(part: Dataset, extract: TenCropFeatures, batch_size: int, progress: tqdm) -> np.ndarray:
    """The features of all images of a part, [n, F]."""
    images, features = Images(part), []
    for start in range(0, len(part), batch_size):
        batch = images[start : start + batch_size]
        features.append(extract(batch))
        progress.update(len(batch))
    return np.concatenate(features)


def _digest(made_by: str, part: Dataset) -> bytes:
    """A digest of everything that the content of a file depends on."""
    hashing = hashlib.blake2b(made_by.encode(), digest_size=12)
    hashing.update(repr(part.remove_columns("image").to_list()).encode())
    images = Images(part)
    for row in range(len(part)):
        hashing.update(images.encoded(row))
    return hashing.hexdigest().encode()


def _write(part: Dataset, features: np.ndarray, made_of: bytes, file: Path) -> None:
    columns = part.remove_columns("image")
    whole = columns.add_column("features", list(features), feature=FEATURES)
    table = whole.with_format("arrow")[:]
    metadata = dict(whole.features.arrow_schema.metadata) | {_MADE_OF: made_of}
    with atomic_file(file) as path:
        pq.write_table(table.replace_schema_metadata(metadata), path)
