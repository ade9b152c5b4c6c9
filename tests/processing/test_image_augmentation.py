import numpy as np
import pytest
import torch
import transformers
from PIL import Image

from babelens.processing.augmentation import ImageAugmentation, TrainingTransform
from babelens.processing.image_processing_mural import MuralImageProcessor
from babelens.utils.errors import InputError
from tests.contracts import drawn_images

NOTHING = ImageAugmentation(horizontal_flip=0)
EVERYTHING = ImageAugmentation(0.5, scale=(0.8, 1.2), rotation=20, color_jitter=0.4, grayscale=0.3)


def transform(augmentation: ImageAugmentation | None, resize: int = 40, crop: int = 32) -> TrainingTransform:
    sizes = {"size": {"height": resize, "width": resize}, "crop_size": {"height": crop, "width": crop}}
    return TrainingTransform(MuralImageProcessor(**sizes), augmentation)


def ramp(height: int = 32, width: int = 32) -> Image.Image:
    """Red rises by 2 from column to column, green by 3 from row to row, blue is the same everywhere."""
    y, x = np.mgrid[:height, :width]
    return Image.fromarray(np.stack([60 + 2 * x, 60 + 3 * y, np.full_like(x, 128)], 2).astype(np.uint8))


def slopes(channel: torch.Tensor) -> tuple[float, float]:
    """How a plane rises from column to column and from row to row, in units of 8-bit pixels; [H, W]."""
    inner = channel[10:-10, 10:-10] * 127.5  # away from the edges, which are filled up
    across, down = inner.diff(dim=1), inner.diff(dim=0)
    assert across.std() < 0.01 and down.std() < 0.01  # it is a plane
    return across.mean().item(), down.mean().item()


def pil(name: str, **settings: object) -> object:
    return getattr(transformers, f"{name}ImageProcessorPil")(**settings)


PROCESSORS = {
    "clip": pil("CLIP", size={"shortest_edge": 36}, crop_size={"height": 36, "width": 36}),
    "efficientnet": pil("EfficientNet", size={"height": 40, "width": 40}, rescale_offset=True, include_top=True),
}


@pytest.mark.parametrize("name", PROCESSORS)
def test_without_augmentation_pixels_are_the_processors(name):
    images = [image.resize((50, 50)) for image in drawn_images(6)]  # a crop keeps a whole square
    expected = PROCESSORS[name](images, return_tensors="pt")["pixel_values"]
    assert torch.equal(TrainingTransform(PROCESSORS[name], NOTHING)(images, list(range(6))), expected)


def test_image_processors_that_make_no_batch_are_refused():
    with pytest.raises(InputError, match="Siglip2ImageProcessorPil"):
        TrainingTransform(pil("Siglip2"))([ramp()], [0])
    shapes = [Image.new("RGB", (40, 80)), Image.new("RGB", (80, 40))]
    with pytest.raises(InputError, match=r"different sizes, such as \(36, 72\) and \(72, 36\)"):
        TrainingTransform(pil("CLIP", size={"shortest_edge": 36}, do_center_crop=False))(shapes, [0, 1])


def test_an_images_pixels_depend_on_its_seed_alone():
    augmented = transform(EVERYTHING)
    images, seeds = drawn_images(5), [3, 1, 4, 1, 5]
    together = augmented(images, seeds)
    assert torch.equal(augmented(images, seeds), together)
    torch.testing.assert_close(augmented(images[::-1], seeds[::-1]).flip(0), together, rtol=0, atol=1e-6)
    for i, (image, seed) in enumerate(zip(images, seeds, strict=True)):
        torch.testing.assert_close(augmented([image], [seed])[0], together[i], rtol=0, atol=1e-6)
    assert not torch.allclose(augmented(images, [0] * 5), together)


def test_crops_lie_everywhere_and_half_of_them_are_mirrored():
    count = 400
    found = transform(None, resize=40, crop=32)([ramp(40, 40)] * count, list(range(count)))  # 9 x 9 places
    pixels = (found * 127.5 + 127.5).round().int()
    red, green = pixels[:, 0, 0], pixels[:, 1, :, 0]  # the first row and the first column, [count, 32]
    mirrored = red[:, 0] > red[:, -1]
    left = (torch.where(mirrored, red[:, -1], red[:, 0]) - 60) // 2
    top = (green[:, 0] - 60) // 3
    for place in (left, top):
        counts = torch.bincount(place, minlength=9)
        assert len(counts) == 9
        assert (counts - count / 9).square().sum() / (count / 9) < 26.1  # chi-square, 8 degrees of freedom, 0.1 %
    assert abs(mirrored.float().mean() - 0.5) < 0.1
    for i in (0, 1, 2):  # each is a piece of the image, as it is or mirrored
        piece = np.asarray(ramp(40, 40))[top[i] : top[i] + 32, left[i] : left[i] + 32]
        assert np.array_equal(pixels[i].permute(1, 2, 0), piece[:, ::-1] if mirrored[i] else piece)


def test_rotation_turns_without_shearing():
    height, width = 32, 48
    size = {"height": height, "width": width}
    processor = MuralImageProcessor(size=size, crop_size=size)
    found = TrainingTransform(processor, ImageAugmentation(0, rotation=30))(
        [ramp(height, width)] * 40, list(range(40))
    )
    angles = []
    for image in found:
        (red_x, red_y), (green_x, green_y) = slopes(image[0]), slopes(image[1])
        assert np.hypot(red_x, red_y) == pytest.approx(2, abs=0.01)
        assert np.hypot(green_x, green_y) == pytest.approx(3, abs=0.01)
        assert red_x * green_x + red_y * green_y == pytest.approx(0, abs=0.02)  # still at right angles
        angles.append(np.degrees(np.arctan2(red_y, red_x)))
    assert max(angles) <= 30.1 and min(angles) >= -30.1
    assert max(angles) > 20 and min(angles) < -20


def test_colour_jitter_stays_in_range():
    grey = Image.new("RGB", (32, 32), (100, 100, 100))
    jittered = transform(ImageAugmentation(0, color_jitter=0.3), resize=32)
    values = (jittered([grey] * 200, list(range(200))) + 1) / 2 * 255
    assert torch.equal(values.amin((1, 2, 3)), values.amax((1, 2, 3)))  # grey stays one grey
    factors = values.mean((1, 2, 3)) / 100  # only brightness acts on it
    assert 0.7 <= factors.min() < 0.75 and 1.25 < factors.max() <= 1.3
    white = jittered([Image.new("RGB", (32, 32), "white")] * 20, list(range(20)))
    assert white.max() == 1 and white.min() >= 0.7 * 2 - 1 - 1e-6
    red = jittered([Image.new("RGB", (32, 32), (200, 50, 50))] * 50, list(range(50)))
    spread = (red[:, 0] - red[:, 1]).mean((1, 2))
    assert spread.std() > 0.05 and spread.min() > 0
