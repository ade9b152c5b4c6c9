import json
import shutil

import numpy as np
import pytest

from babelens import Embedder
from babelens.inference.onnx import export_onnx
from babelens.inference.texts import SAMPLE_TEXTS as SAMPLES
from babelens.modeling.peft_mla import save_adapter
from babelens.utils.errors import InputError, ModelFolderError
from tests.contracts import LANGUAGES, TEXTS, drawn_images
from tests.support.tiny_dual_encoders import EXPORTED, LEARNED, MLA_KINDS
from tests.support.tiny_native import saved, tiny_clip

CLOSE = {"rtol": 0, "atol": 1e-4}
# The others are exported by `make test-slow`.
ALWAYS = ("siglip", "mural", "mla on clip")
EVERY = [pytest.param(name, marks=[] if name in ALWAYS else pytest.mark.slow) for name in EXPORTED]


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder, done = tmp_path_factory.mktemp("exported"), {}

    def export(name, make=None):
        if name not in done:
            done[name] = folder / str(len(done)), folder / f"{len(done)}-onnx"
            saved((make or EXPORTED[name])(), done[name][0])
            export_onnx(*done[name])
        return done[name]

    return export


@pytest.mark.parametrize("name", EVERY)
def test_the_graphs_embed_as_the_model_does(name, exported):
    source, folder = exported(name)
    torch_embedder, embedder = Embedder.from_pretrained(source), Embedder.from_pretrained(folder, backend="onnx")
    texts, tags = [*TEXTS, *SAMPLES], ["en", *LEARNED] if name in MLA_KINDS else LANGUAGES
    languages = [tags[index % len(tags)] for index in range(len(texts))]
    expected = torch_embedder.encode_text(texts, language=languages)
    np.testing.assert_allclose(embedder.encode_text(texts, language=languages), expected, **CLOSE)
    for text, language, row in zip(texts, languages, expected, strict=True):  # one by one, without others' padding
        np.testing.assert_allclose(embedder.encode_text(text, language=language)[0], row, **CLOSE)
    images = drawn_images(5)
    for count in (1, 5):
        expected = torch_embedder.encode_image(images[:count])
        np.testing.assert_allclose(embedder.encode_image(images[:count]), expected, **CLOSE)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["make_smalr", "make_liwe"])
def test_models_that_read_words(name, exported, request):
    source, folder = exported(name, request.getfixturevalue(name))
    torch_embedder, embedder = Embedder.from_pretrained(source), Embedder.from_pretrained(folder, backend="onnx")
    texts = [*TEXTS, "a red car " * 30]
    expected = torch_embedder.encode_text(texts, language=[*LANGUAGES, "en"])
    found = embedder.encode_text(texts, language=[*LANGUAGES, "en"])
    np.testing.assert_allclose(found, expected, **CLOSE)
    np.testing.assert_allclose(
        embedder.encode_image(drawn_images(3)), torch_embedder.encode_image(drawn_images(3)), **CLOSE
    )
    assert json.loads((folder / "onnx/graphs.json").read_text())["text_length"] == 40


def test_precisions_in_the_folder_of_the_model(tmp_path):
    source = saved(EXPORTED["mural"](), tmp_path / "model")
    before = Embedder.from_pretrained(source).encode_image(drawn_images(2))
    (source / "onnx").mkdir()
    (source / "onnx" / "decoder.onnx").write_bytes(b"mine")
    (source / "onnx" / "text_model_fp16.onnx_data").write_bytes(b"of an earlier export")
    exported = export_onnx(source, source, precisions=["int8", "fp16", "int8"])
    assert (source / "onnx" / "decoder.onnx").read_bytes() == b"mine"
    (source / "onnx" / "decoder.onnx").unlink()
    assert list(exported.settings.precisions) == ["int8", "fp16"]
    names = {path.name for path in (source / "onnx").iterdir()}
    towers = ("text_model", "vision_model")
    assert names == {"graphs.json", *(f"{t}{end}.onnx" for t in towers for end in ("_fp16", "_quantized"))}
    sizes = {end: (source / f"onnx/text_model_{end}.onnx").stat().st_size for end in ("fp16", "quantized")}
    assert sizes["quantized"] < sizes["fp16"]
    assert (Embedder.from_pretrained(source).encode_image(drawn_images(2)) == before).all()  # its files are as before
    expected = Embedder.from_pretrained(source).encode_text(TEXTS, language="en")
    for precision, bound in (("fp16", 0.005), ("int8", 0.1)):
        embedder = Embedder.from_pretrained(source, backend="onnx", precision=precision)
        difference = np.abs(embedder.encode_text(TEXTS, language="en") - expected).max()
        assert 0 < difference < bound and exported.settings.precisions[precision]["text"] < bound
    with pytest.raises(InputError, match="has graphs in fp16, int8, and none in 'fp32'"):
        Embedder.from_pretrained(source, backend="onnx", precision="fp32")
    # No path of this machine is in a graph.
    assert b"site-packages" not in (source / "onnx/text_model_fp16.onnx").read_bytes()


def test_an_adapter_is_exported_with_its_model(tmp_path):
    model, processor = EXPORTED["mla on clip"]()
    clip = saved((model.unload(), tiny_clip()[1]), tmp_path / "clip")
    save_adapter(model, "de", tmp_path / "adapter", base_model=str(clip))
    processor.multilingual_tokenizer.save_pretrained(tmp_path / "adapter")
    expected = Embedder.from_pretrained(tmp_path / "adapter").encode_text("ein rotes Auto", language="de")
    export_onnx(tmp_path / "adapter", tmp_path / "graphs")
    found = Embedder.from_pretrained(tmp_path / "graphs", backend="onnx").encode_text("ein rotes Auto", language="de")
    np.testing.assert_allclose(found, expected, **CLOSE)
    with pytest.raises(InputError, match="folder of an adapter"):
        export_onnx(tmp_path / "adapter", tmp_path / "adapter")


def test_damaged_folders_are_refused(exported, tmp_path):
    _, folder = exported("mural")
    for file, content, reported in (
        ("onnx/text_model.onnx", b"nonsense", "is damaged"),
        ("onnx/text_model.onnx", None, "text_model.onnx is missing"),
        ("onnx/graphs.json", b"{", "is damaged"),
        ("onnx/graphs.json", b'{"format": 1, "languages": []}', "is damaged"),
        ("onnx/graphs.json", b'{"format": 2}', "later version"),
        ("tokenizer.json", b"{}", "tokenizer"),
    ):
        shutil.copytree(folder, copy := tmp_path / "copy")
        if content is None:
            (copy / file).unlink()
        else:
            (copy / file).write_bytes(content)
        with pytest.raises(ModelFolderError, match=reported):
            Embedder.from_pretrained(copy, backend="onnx")
        shutil.rmtree(copy)


def test_a_graph_that_differs_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("babelens.inference.onnx.export.LARGEST_DIFFERENCE", 0.0)
    with pytest.raises(InputError, match="other embeddings than the model"):
        export_onnx(saved(EXPORTED["mural"](), tmp_path / "model"), tmp_path / "out", precisions=["int8"])
    assert not (tmp_path / "out").exists()
