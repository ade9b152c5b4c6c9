import datasets
import numpy as np
import pytest
from datasets import Dataset, Features, Value
from PIL import Image
from transformers import PreTrainedModel, ProcessorMixin

from babelens.data.corpus.corpus import CAPTIONS
from tests.support.tiny_native import saved, tiny_clip

EMOJI_WORDS = {"en": "face", "de": "gesicht", "es": "cara", "ar": "وجه"}


@pytest.fixture(scope="session")
def clip_parts() -> tuple[PreTrainedModel, ProcessorMixin]:
    """Shared by the tests: whoever changes the model works on a copy."""
    return tiny_clip()


@pytest.fixture(params=["clip", "mural"])
def dual_encoder(request, clip_parts, make_mural):
    return clip_parts if request.param == "clip" else make_mural()


@pytest.fixture(scope="session")
def clip_folder(clip_parts, tmp_path_factory):
    return saved(clip_parts, tmp_path_factory.mktemp("clip"))


class ColorEmbedder:
    """Knows the answers but for its `mistakes`, and remembers the questions: texts end in a gray's brightness."""

    def __init__(self, mistakes: dict[str, int] | None = None) -> None:
        self.mistakes = mistakes or {}
        self.texts: list[tuple[str, str]] = []
        self.n_images = 0

    def encode_image(self, images, *, show_progress=None) -> np.ndarray:
        self.n_images += len(images)
        return np.stack([_direction(int(np.asarray(images[i])[0, 0, 0])) for i in range(len(images))])

    def encode_text(self, texts, *, language, show_progress=None) -> np.ndarray:
        self.texts += [(text, language) for text in texts]
        return np.stack([_direction(self.mistakes.get(text, int(text.split()[-1]))) for text in texts])


def _direction(number: int) -> np.ndarray:
    return np.array([np.cos(number / 100), np.sin(number / 100)], dtype=np.float32)


def _gray(number: int) -> Image.Image:
    return Image.new("RGB", (16, 16), (number, number, number))


@pytest.fixture
def caption_corpus() -> Dataset:
    rows = []
    for row in range(12):
        thing = row % 10
        captions = [{"language": "en", "text": f"thing {10 * thing}"}]
        captions += [{"language": "de", "text": f"{word} {10 * thing}"} for word in ("ding", "sache")[: 1 + thing % 2]]
        rows.append({"image": _gray(10 * thing + row // 10), "image_id": f"thing-{thing}", "captions": captions})
    features = {"image": datasets.Image(), "image_id": Value("string"), "captions": CAPTIONS}
    return Dataset.from_list(rows, features=Features(features))


@pytest.fixture
def emoji_corpus() -> Dataset:
    rows = []
    for vendor, tint in (("twemoji", 0), ("openmoji", 1), ("noto", 2)):
        for concept in range(12):
            names = [{"language": tag, "text": f"{word} {10 * concept}"} for tag, word in EMOJI_WORDS.items()]
            rows.append(
                {
                    "image": _gray(10 * concept + tint),
                    "image_id": f"1f60{concept:x}",
                    "captions": names,
                    "split": "train" if concept < 8 else "test",
                    "vendor": vendor,
                    "category": "Flags" if concept % 4 == 3 else "Smileys & Emotion",
                }
            )
    columns = {name: Value("string") for name in ("image_id", "split", "vendor", "category")}
    return Dataset.from_list(rows, features=Features({"image": datasets.Image(), "captions": CAPTIONS, **columns}))


class WordTranslator:
    """Translates between the languages of corpora whose texts are a word and a number; remembers its inputs."""

    def __init__(self, words: dict[str, str]) -> None:
        self.words = words
        self.asked: list[tuple[str, str, int]] = []

    def translate(self, texts, source, target) -> list[str]:
        self.asked.append((source, target, len(texts)))
        return [text.replace(self.words[source], self.words[target]) for text in texts]
