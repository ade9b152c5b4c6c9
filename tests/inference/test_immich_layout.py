"""Folders for Immich's machine-learning server, read by its own steps, which are repeated here."""

import json

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image
from tokenizers import Tokenizer
from typer.testing import CliRunner

from babelens import Embedder
from babelens.cli.main import app
from babelens.inference.onnx.immich import export_immich
from babelens.modeling.modeling_ridge import RidgeModel
from babelens.processing.processing_ridge import RidgeProcessor
from babelens.utils.errors import InputError, ModelKindError
from tests.contracts import drawn_images
from tests.support.made_once import draw_maps
from tests.support.tiny_native import saved, tiny_clip, tiny_siglip

# Some of the server's codes, by the language of its interface.
CODES = {"ar": "arb_Arab", "de": "deu_Latn", "el": "ell_Grek", "en": "eng_Latn", "fa": "pes_Arab", "hi": "hin_Deva"}
CODES |= {"ca": "cat_Latn", "ja": "jpn_Hira", "ru": "rus_Cyrl", "th": "tha_Thai", "tr": "tur_Latn", "uk": "ukr_Cyrl"}
CODES |= {"vi": "vie_Latn"}


class Server:
    """The server's steps with a model's folder: `immich_ml/models/clip`, `transforms.py`."""

    def __init__(self, folder):
        self.is_nllb = folder.name.startswith("nllb")
        length = json.loads((folder / "config.json").read_text())["text_cfg"].get("context_length", 77)
        pad = json.loads((folder / "textual/tokenizer_config.json").read_text())["pad_token"]
        self.tokenizer = Tokenizer.from_file(str(folder / "textual/tokenizer.json"))
        self.tokenizer.enable_padding(length=length, pad_token=pad, pad_id=self.tokenizer.token_to_id(pad))
        self.tokenizer.enable_truncation(max_length=length)
        self.images = json.loads((folder / "visual/preprocess_cfg.json").read_text())
        towers = ("textual", "visual")
        self.sessions = {name: onnxruntime.InferenceSession(folder / name / "model.onnx") for name in towers}

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


RIDGE_TEXTS = {
    "ar": ["سيارة حمراء", "السَّيَّارَةُ الحَمْراءُ"],
    "ca": ["la col·lecció", "la col.lecció, la COL-LECCIÓ"],
    "de": ["ein rotes Auto", "EIN ROTES AUTO  an der Straße"],
    "el": ["ένα κόκκινο αυτοκίνητο", "ΕΝΑ ΚΟΚΚΙΝΟ ΑΥΤΟΚΙΝΗΤΟ"],
    "fa": ["ماشین قرمز کوچک", "ماشين قرمز كوچك"],
    "hi": ["एक लाल गाड़ी", "हिन्दी, हिंदी", "आैर आॅफिस"],
    "ja": ["赤い車が走る", "ｱｶｲ車"],
    "ru": ["красная машина и ёлка", "КРАСНАЯ МАШИНА И ЕЛКА"],
    "th": ["รถสีแดงบนถนน", "น้ำตก"],
    "tr": ["kırmızı araba İstanbul'da", "KIRMIZI ARABA"],
    "uk": ["комп'ютер і м'яч", "комп\u2019ютер і\u00ad м\u02bcяч", "комп\u0384ютер i пiсок"],
    "vi": ["toà nhà thuỷ tinh", "tòa nhà thủy tinh", "TÒA NHÀ Thủy tinh"],
}


def tiny_ridge(native, processor):
    languages = [*RIDGE_TEXTS]
    model = RidgeModel.from_native(native, languages=languages, ngram_rows=512, rank=8)
    torch.manual_seed(0)
    draw_maps(model)
    return model, RidgeProcessor.for_native(native.config, processor, languages=languages)


def test_a_ridge_model_reads_ten_languages_by_the_code_that_the_server_gives(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ridge")
    saved(tiny_ridge(*tiny_clip()), folder / "model")
    model, made = folder / "model", export_immich(folder / "model", folder / "nllb-clip-base-siglip__v1")
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
@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_a_siglip_of_fewer_bits_reads_other_queries_as_the_stated_language(tmp_path, precision):
    saved(tiny_ridge(*tiny_siglip()), tmp_path / "model")
    output = tmp_path / "nllb-clip-base-siglip__v1"
    words = ["export", tmp_path / "model", "--format", "immich", "--language", "ru", "--output", output]
    done = CliRunner().invoke(app, [*map(str, words), "--precision", precision], catch_exceptions=False)
    assert "read as ru" in done.output and "replaces nllb-clip-base-siglip__v1" in done.output
    assert [path.name for path in (output / "textual").glob("*.onnx")] == ["model.onnx"]
    server, embedder = Server(output), Embedder.from_pretrained(tmp_path / "model", device="cpu")
    np.testing.assert_array_equal(server.text("красная", "en"), server.text("красная", "ru"))
    images = drawn_images(2)
    own = embedder.encode_image(images)
    found = np.stack([server.image(image) for image in images])[:, : own.shape[1]]
    assert ((found * own).sum(1) > 0.9).all()


def test_what_the_server_cannot_do_is_refused(tmp_path):
    saved(tiny_clip(), tmp_path / "model")
    with pytest.raises(ModelKindError, match="acquire"):
        export_immich(tmp_path / "model", tmp_path / "out")
    with pytest.raises(InputError, match="int4"):
        export_immich(tmp_path / "model", tmp_path / "out", precision="int4")
    assert not (tmp_path / "out").exists()
