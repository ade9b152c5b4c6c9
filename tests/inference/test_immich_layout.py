"""Folders for Immich's machine-learning server, read by its own steps, which are written here once more."""

import json

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image
from tokenizers import Tokenizer
from typer.testing import CliRunner

from babelens import Embedder, MuralConfig, MuralImageProcessor, MuralModel, MuralProcessor, train_wordpiece
from babelens.cli.main import app
from babelens.inference.onnx.immich import export_immich
from babelens.modeling.modeling_ridge import RidgeModel
from babelens.processing.processing_ridge import RidgeProcessor
from babelens.utils.errors import InputError, ModelKindError
from tests.contracts import drawn_images
from tests.support.exported_kinds import EXPORTED
from tests.support.tiny_dual_encoders import KINDS
from tests.support.tiny_native import saved, tiny_clip
from tests.support.tiny_training import COLORS, SHAPES, TEXT, VISION, shapes_corpus

RANGI = dict(zip(COLORS, ["nyekundu", "kijani", "buluu", "manjano"], strict=True))
MAUMBO = dict(zip(SHAPES, ["mraba", "ufito", "nguzo", "nukta"], strict=True))


# Some of the server's codes, by the language of its interface.
CODES = {"ar": "arb_Arab", "de": "deu_Latn", "el": "ell_Grek", "en": "eng_Latn", "fa": "pes_Arab", "hi": "hin_Deva"}
CODES |= {
    "ja": "jpn_Hira",
    "ru": "rus_Cyrl",
    "th": "tha_Thai",
    "tr": "tur_Latn",
    "uk": "ukr_Cyrl",
    "zh-CN": "zho_Hans",
}


class Server:
    """What the server does with a model's folder: `immich_ml/models/clip`, `transforms.py`."""

    def __init__(self, folder):
        self.is_nllb = folder.name.startswith("nllb")
        config = json.loads((folder / "config.json").read_text())
        length = config["text_cfg"].get("context_length", 77)
        pad = json.loads((folder / "textual/tokenizer_config.json").read_text())["pad_token"]
        self.tokenizer = Tokenizer.from_file(str(folder / "textual/tokenizer.json"))
        self.tokenizer.enable_padding(length=length, pad_token=pad, pad_id=self.tokenizer.token_to_id(pad))
        self.tokenizer.enable_truncation(max_length=length)
        self.images = json.loads((folder / "visual/preprocess_cfg.json").read_text())
        self.sessions = {
            name: onnxruntime.InferenceSession(folder / name / "model.onnx") for name in ("textual", "visual")
        }

    def text(self, text, interface=None):
        text = " ".join(text.split())
        if self.is_nllb and interface is not None:
            text = f"{CODES.get(interface, 'eng_Latn')}{text}"
        tokens = self.tokenizer.encode(text)
        return self.sessions["textual"].run(None, {"text": np.array([tokens.ids], dtype=np.int32)})[0][0]

    def image(self, image):
        size = self.images["size"][0]
        how = {each.name.lower(): each for each in Image.Resampling}[self.images["interpolation"]]
        if self.images["resize_mode"] == "squash":
            image = image.resize((size, size), resample=how)
        else:
            assert self.images["resize_mode"] == "shortest"
            wide = image.width >= image.height
            ratio = image.width / image.height
            image = image.resize((int(ratio * size), size) if wide else (size, int(size / ratio)), resample=how)
            left, upper = int(image.width / 2 - size / 2), int(image.height / 2 - size / 2)
            image = image.crop((left, upper, left + size, upper + size))
        mean, std = (np.array(self.images[name], dtype=np.float32) for name in ("mean", "std"))
        pixels = (np.asarray(image.convert("RGB"), dtype=np.float32) / 255 - mean) / std
        return self.sessions["visual"].run(None, {"image": pixels.transpose(2, 0, 1)[None]})[0][0]


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("clip", None),
        ("mla on clip", "de"),
        *(pytest.param(name, None, marks=pytest.mark.slow) for name in ("siglip", "mla student")),
    ],
)
def test_the_server_embeds_as_the_model_does(name, language, tmp_path):
    saved(EXPORTED[name](), tmp_path / "model")
    made = export_immich(tmp_path / "model", tmp_path / "out", language=language)
    assert (made.width, made.replaces) == (512, "ViT-B-32__openai")
    server, embedder = Server(tmp_path / "out"), Embedder.from_pretrained(tmp_path / "model", device="cpu")
    texts = ["a red car", "Zwei Hunde spielen  im Schnee", "赤い車"]
    images = [*drawn_images(2), Image.fromarray(np.random.default_rng(0).integers(0, 255, (50, 91, 3), np.uint8))]
    own = (
        embedder.encode_text([" ".join(text.split()) for text in texts], language=language),
        embedder.encode_image(images),
    )
    found = [server.text(text) for text in texts], [server.image(image) for image in images]
    for wanted, got in zip(own, found, strict=True):
        got = np.stack(got)
        assert not got[:, wanted.shape[1] :].any()
        assert ((got[:, : wanted.shape[1]] * wanted).sum(1) >= 0.9999).all()


@pytest.fixture(scope="module")
def swahili(tmp_path_factory):
    """A MURAL that has learned sixteen pictures with their names in Swahili."""
    rows = [(row["image"], row["image_id"]) for row in shapes_corpus()]
    english = {row["image_id"]: row["captions"][0]["text"].split() for row in shapes_corpus()}
    captions = {each: f"{MAUMBO[words[-1]]} {RANGI[words[-2]]}" for each, words in english.items()}
    texts = list(captions.values())
    tokenizer = train_wordpiece(texts, 200)
    sizes = {"size": {"height": 36, "width": 36}, "crop_size": {"height": 32, "width": 32}}
    processor = MuralProcessor(MuralImageProcessor(**sizes), tokenizer, max_text_length=12)
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "vocab_size": len(tokenizer)}
    config = {"text_config": TEXT | still, "vision_config": VISION | {"attention_dropout": 0.0}}
    torch.manual_seed(0)
    model = MuralModel(MuralConfig(**config, tasks=["image_text"], temperature_init_value=0.07))
    inputs = processor(images=[image for image, _ in rows], text=texts, language="sw", return_tensors="pt")
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    for _ in range(120):
        optimizer.zero_grad()
        model(**inputs, return_loss=True).loss.backward()
        optimizer.step()
    folder = tmp_path_factory.mktemp("swahili")
    saved((model.eval(), processor), folder / "model")
    return folder / "model", rows, captions


RIDGE_TEXTS = {
    "ar": ["سيارة حمراء", "السَّيَّارَةُ الحَمْراءُ"],
    "de": ["ein rotes Auto", "EIN ROTES AUTO  an der Straße"],
    "el": ["ένα κόκκινο αυτοκίνητο", "ΕΝΑ ΚΟΚΚΙΝΟ ΑΥΤΟΚΙΝΗΤΟ"],
    "fa": ["ماشین قرمز کوچک", "ماشين قرمز كوچك"],
    "hi": ["एक लाल गाड़ी", "हिन्दी, हिंदी"],
    "ja": ["赤い車が走る", "ｱｶｲ車"],
    "ru": ["красная машина и ёлка", "КРАСНАЯ МАШИНА И ЕЛКА"],
    "th": ["รถสีแดงบนถนน", "น้ำตก"],
    "tr": ["kırmızı araba İstanbul'da", "KIRMIZI ARABA"],
    "uk": ["комп'ютер і м'яч", "комп\u2019ютер і\u00ad м\u02bcяч"],
}


@pytest.fixture(scope="module")
def ridge(tmp_path_factory):
    """A model with a random map for each of ten languages, exported for a slot that gets the language."""
    folder = tmp_path_factory.mktemp("ridge")
    native, processor = tiny_clip()
    languages = [*RIDGE_TEXTS]
    model = RidgeModel.from_native(native, languages=languages, ngram_rows=512, rank=8)
    torch.manual_seed(0)
    for name, values in model.maps.named_buffers():
        if name == "ngrams":
            values.copy_(torch.randint(-127, 128, values.shape))
        elif name != "importance":
            values.copy_(torch.randn(values.shape))
    saved((model, RidgeProcessor.for_native(native.config, processor, languages=languages)), folder / "model")
    return folder / "model", export_immich(folder / "model", folder / "nllb-clip-base-siglip__v1")


def test_a_ridge_model_reads_ten_languages_by_the_code_that_the_server_gives(ridge):
    model, made = ridge
    assert (made.width, made.replaces) == (768, "nllb-clip-base-siglip__v1")
    assert {*RIDGE_TEXTS} <= {*made.routed} and made.language == "und"
    server, embedder = Server(made.folder), Embedder.from_pretrained(model, device="cpu")
    for tag, texts in RIDGE_TEXTS.items():
        wanted = embedder.encode_text([" ".join(text.split()) for text in texts], language=tag)
        for text, vector in zip(texts, wanted, strict=True):
            found = server.text(text, tag)
            np.testing.assert_allclose(found[: len(vector)], vector, atol=1e-4, err_msg=f"{tag} {text}")
            assert not found[len(vector) :].any()
    shared = embedder.encode_text("a red car", language="und")[0]
    np.testing.assert_allclose(server.text("a red car", "en")[: len(shared)], shared, atol=1e-4)
    images = drawn_images(2)
    own = embedder.encode_image(images)
    found = np.stack([server.image(image) for image in images])[:, : own.shape[1]]
    np.testing.assert_allclose(found, own, atol=1e-4)


@pytest.mark.slow
def test_queries_of_no_learned_language_are_read_as_the_stated_one(ridge, tmp_path):
    model, _ = ridge
    made = export_immich(model, tmp_path / "nllb-clip-base-siglip__v1", language="ru")
    server = Server(made.folder)
    assert made.language == "ru"
    np.testing.assert_array_equal(server.text("красная", "en"), server.text("красная", "ru"))


@pytest.mark.slow
def test_a_query_in_swahili_finds_its_picture(swahili, tmp_path):
    model, rows, captions = swahili
    words = ["export", model, "--format", "immich", "--output", tmp_path / "ViT-B-32__openai"]
    done = CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)
    assert "replaces ViT-B-32__openai" in done.output
    server = Server(tmp_path / "ViT-B-32__openai")
    images = np.stack([server.image(image) for image, _ in rows])
    found = [rows[int((images @ server.text(captions[each])).argmax())][1] for _, each in rows]
    assert np.mean([one == other for one, (_, other) in zip(found, rows, strict=True)]) > 0.8


@pytest.mark.slow
def test_weights_of_eight_bits(swahili, tmp_path):
    made = export_immich(swahili[0], tmp_path / "small", precision="int8")
    assert min(made.cosines.values()) > 0.9
    assert [path.name for path in (tmp_path / "small/textual").glob("*.onnx")] == ["model.onnx"]


def test_what_the_server_cannot_do_is_refused(swahili, tmp_path):
    saved(KINDS["siglip2"](), tmp_path / "naflex")
    with pytest.raises(ModelKindError, match="resizes images to a square"):
        export_immich(tmp_path / "naflex", tmp_path / "out")
    with pytest.raises(InputError, match="choose one of"):
        export_immich(swahili[0], tmp_path / "out", precision="int4")
    for options in (["--language", "sw"], ["--format", "immich", "--precision", "fp32", "--precision", "int8"]):
        done = CliRunner().invoke(app, ["export", "model", "--output", "out", *options])
        assert done.exit_code in (1, 2)
    assert not (tmp_path / "out").exists()
