import io

from hypothesis import strategies as st
from PIL import Image

# Unicode with unpaired surrogates, controls and noncharacters, and texts that are nearly ordinary.
ANY_TEXT = st.one_of(
    st.text(max_size=40),
    st.text(st.characters(), max_size=40),
    st.text("aé ß猫ءअ\u200d\u0301\ufeff\x00\n\t🐈\ud800", max_size=30),
    st.sampled_from(["", " ", "a" * 5000, "\ufffd", "ﷺ" * 50, "e\u0301" * 200, "<s>", "[CLS] [SEP]", "##a"]),
)
NO_TEXT = st.one_of(st.none(), st.integers(), st.floats(), st.binary(max_size=8), st.lists(st.integers(), max_size=2))
TAG = st.one_of(
    st.sampled_from(["en", "de", "sw", "zh-Hant", "sr-Latn", "EN-us", "iw", "cmn", "und", "zxx", "x-own", "en_GB"]),
    st.from_regex(r"[A-Za-z]{1,9}([-_][A-Za-z0-9]{1,9}){0,4}", fullmatch=True),
    ANY_TEXT,
    NO_TEXT,
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), ANY_TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(ANY_TEXT, inner, max_size=4)),
    max_leaves=8,
)


@st.composite
def image_files(draw):
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=200))
    mode = draw(st.sampled_from(["1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "I", "I;16", "F"]))
    size = draw(st.tuples(st.integers(1, 60), st.integers(1, 60)))
    image = Image.new(mode, size)
    file = io.BytesIO()
    try:
        image.save(file, draw(st.sampled_from(["PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF", "PPM"])))
    except (OSError, ValueError, KeyError, SystemError):
        Image.new("RGB", size).save(file, "PNG")
    data = bytearray(file.getvalue())
    for _ in range(draw(st.integers(0, 3))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)
