from io import BytesIO
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from babelens.data.corpus.images import check_image
from babelens.processing import images
from babelens.processing.images import as_images, open_image
from babelens.utils.errors import ImageError


def jpeg(size: tuple[int, int] = (64, 48), **options: object) -> bytes:
    noise = np.random.default_rng(0).integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
    buffer = BytesIO()
    PIL.Image.fromarray(noise).save(buffer, "JPEG", **options)
    return buffer.getvalue()


@pytest.mark.parametrize(("kind", "scale"), [("float32", 1 / 255), ("int32", 1), ("uint16", 257)])
def test_gray_values_are_scaled_by_their_range(kind: str, scale: float, tmp_path: Path) -> None:
    gray = np.arange(256).reshape(16, 16)
    image = PIL.Image.fromarray((gray * scale).astype(kind))
    image.save(tmp_path / "gray.tiff")
    with pytest.raises(ImageError, match="gray values range"):
        open_image(PIL.Image.fromarray(np.float32([[-1, 0.5]])))
    for source in (image, tmp_path / "gray.tiff"):
        assert np.array_equal(np.asarray(open_image(source))[..., 1], gray)


def test_a_processor_turns_a_pillow_image_upright_as_it_does_a_file(tmp_path: Path) -> None:
    lying = PIL.Image.new("RGBA", (4, 2), (255, 0, 0, 0))
    lying.getexif()[PIL.Image.ExifTags.Base.Orientation] = 6
    lying.save(tmp_path / "a.png", exif=lying.getexif())
    for image in as_images([lying, tmp_path / "a.png"]):
        assert (image.mode, image.size) == ("RGB", (2, 4)) and image.getpixel((0, 0)) == (255, 255, 255)


def test_a_truncated_jpeg_is_refused_by_reading_and_by_checking(tmp_path: Path) -> None:
    path = tmp_path / "cut.jpg"
    path.write_bytes(jpeg()[:-200])
    for refuse in (open_image, check_image):
        with pytest.raises(ImageError, match=r"cut\.jpg: image file is truncated"):
            refuse(path)


@pytest.mark.parametrize(("draft", "size"), [(None, (800, 600)), (300, (400, 300)), (1, (100, 75))])
def test_a_draft_keeps_as_many_pixels(draft: int | None, size: tuple[int, int], tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(jpeg((800, 600)))
    for source in (tmp_path / "a.jpg", jpeg((800, 600))):
        assert open_image(source, draft=draft).size == size
    PIL.Image.new("RGB", (800, 600)).save(tmp_path / "a.png")
    assert open_image(tmp_path / "a.png", draft=draft).size == (800, 600)


def test_the_limit_can_be_lowered_and_holds_before_decoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert images.MAX_PIXELS == 2**26
    monkeypatch.setattr(images, "MAX_PIXELS", 3071)
    path = tmp_path / "noise.jpg"
    path.write_bytes(jpeg()[:-200])  # decoding would say that it is truncated
    for refuse in (open_image, check_image):
        with pytest.raises(ImageError, match=r"noise\.jpg: 64 x 48 pixels are more than the 3071 allowed"):
            refuse(path)
    monkeypatch.setattr(images, "MAX_PIXELS", 3072)
    check_image(jpeg())


def test_a_missing_file_and_an_unknown_format_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"nowhere\.png: no such file"):
        open_image(tmp_path / "nowhere.png")
    (tmp_path / "drawing.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    with pytest.raises(ImageError, match=r"drawing\.svg: not an image in one of the formats JPEG, PNG"):
        open_image(tmp_path / "drawing.svg")


def test_a_long_thin_image_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    """Resized until its shorter side has 224 pixels, 1 x 10,000 would have 500 million."""
    size = (1, 101)
    path = tmp_path / "thin.png"
    PIL.Image.new("RGB", size).save(path)
    path.write_bytes(path.read_bytes()[:60])  # decoding would say that it is truncated
    for refuse in (open_image, check_image):
        with pytest.raises(ImageError, match=rf"thin\.png: .*more than 100 times .* {size[0]} x {size[1]} pixels"):
            refuse(path)
    check_image(jpeg((100, 1)))
