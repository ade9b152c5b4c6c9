"""Loading from a server that speaks the Hub's protocol, by repository names: models, adapters, captions, revisions."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import CommitOperationAdd, HfApi, constants, hf_hub_download
from PIL import Image
from transformers import AutoModel

from babelens import Embedder, MlaModel
from babelens.data import load_captions
from babelens.modeling.peft_mla.conversion import save_adapter
from tests.support.hub_server import running_hub
from tests.support.hub_storage import broken_off
from tests.support.tiny_native import saved, tiny_bert, tiny_clip

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")]
MODEL, ADAPTER, CLIP = "ada/mural-tiny", "ada/clip-de", "ada/clip"
TEXTS = ["ein rotes auto", "ein hund"]


def upload(api: HfApi, repository: str, folder: Path, kind: str = "model", **options) -> str:
    """Uploads all files of a folder as one commit; returns its digest."""
    api.create_repo(repository, repo_type=kind, exist_ok=True, **options)
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    operations = [CommitOperationAdd(path.relative_to(folder).as_posix(), str(path)) for path in files]
    return api.create_commit(repository, operations, commit_message="upload", repo_type=kind).oid


@pytest.fixture(scope="module")
def hub(published, tmp_path_factory):
    """A Hub with a model of two revisions, its private copy, a CLIP with an adapter, and captions in two forms."""
    with running_hub() as server, pytest.MonkeyPatch.context() as patched:
        patched.setattr(constants, "HF_HUB_DISABLE_XET", True)
        api = HfApi(endpoint=server.endpoint, token="hf_ada")
        upload(api, MODEL, published)
        api.create_tag(MODEL, tag="v1")
        changed = AutoModel.from_pretrained(published)
        head = [value for name, value in changed.named_parameters() if ".image_text." in name]
        for value in head:
            value.data.neg_()
        changed.save_pretrained(tmp_path_factory.mktemp("changed"))
        upload(api, MODEL, tmp_path_factory.getbasetemp() / "changed0")
        upload(api, "ada/secret", published, private=True)
        upload_adapter(api, tmp_path_factory.mktemp("adapter"))
        upload_captions(api, tmp_path_factory.mktemp("captions"))
        yield server


def upload_adapter(api: HfApi, folder: Path) -> None:
    clip = saved(tiny_clip(), folder / "clip")
    upload(api, CLIP, clip)
    tokenizer = tiny_bert()[1]
    sizes = {"vocab_size": len(tokenizer), "embedding_size": 12, "sep_token_id": tokenizer.sep_token_id}
    model = MlaModel.from_native(AutoModel.from_pretrained(clip), languages=["de"], acquirer_size=4, **sizes)
    save_adapter(model, "de", folder / "adapter", base_model=CLIP)
    tokenizer.save_pretrained(folder / "adapter")
    upload(api, ADAPTER, folder / "adapter")
    api.create_tag(ADAPTER, tag="of-adapter")
    upload(api, "ada/secret-adapter", folder / "adapter", private=True)


def upload_captions(api: HfApi, folder: Path) -> None:
    """As a folder of images with `metadata.jsonl`, and as parquet, as `Dataset.push_to_hub` writes it."""
    images = folder / "images"
    images.mkdir()
    captions = [
        [{"language": "de", "text": text}, {"language": "en", "text": f"{text}, in English"}] for text in TEXTS
    ]
    for number, each in enumerate(captions):
        color = (100 * number, 50, 50)
        Image.new("RGB", (20, 16), color).save(images / f"{number}.png")
        line = {"file_name": f"{number}.png", "captions": {one["language"]: [one["text"]] for one in each}}
        with (images / "metadata.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
    upload(api, "ada/captions-folder", images, "dataset")
    corpus = load_captions(str(images))
    corpus.to_parquet(folder / "parquet" / "data" / "train-00000-of-00001.parquet")
    (folder / "parquet" / "README.md").write_text(
        "---\nlicense: cc0-1.0\nconfigs:\n- config_name: default\n  data_files:\n"
        "  - {split: train, path: data/train-*}\n---\n# Captions\n"
    )
    upload(api, "ada/captions", folder / "parquet", "dataset")


def run(hub, code: str, home: Path, token: str | None = None, **variables: str) -> str:
    """Runs Python code that takes the double for the Hub; returns what it prints."""
    environment = {**os.environ, **hub.environment(home, token), **variables}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


LOADING = """
    import numpy as np
    from babelens import Embedder
    from transformers import AutoModel

    texts = ["ein rotes auto", "ein hund"]
    now = Embedder.from_pretrained("ada/mural-tiny").encode_text(texts, language="de")
    pinned = Embedder.from_pretrained("ada/mural-tiny", revision="v1").encode_text(texts, language="de")
    assert np.allclose(now, -pinned) and type(AutoModel.from_pretrained("ada/mural-tiny")).__name__ == "MuralModel"
    adapter = Embedder.from_pretrained("ada/clip-de", revision="of-adapter").encode_text(texts, language="de")
    print(np.round([pinned, np.pad(adapter, ((0, 0), (0, pinned.shape[1] - adapter.shape[1])))], 6).tolist())
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The cache of the processes, which the first fills."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def expected(published):
    return Embedder.from_pretrained(published).encode_text(TEXTS, language="de")


@pytest.fixture(scope="module")
def first(hub, home):
    return run(hub, LOADING, home)


def test_models_and_adapters_by_their_names(first, expected):
    pinned, adapter = np.array(json.loads(first.splitlines()[-1]))
    assert np.allclose(pinned, expected, atol=1e-6)
    assert np.allclose(np.linalg.norm(adapter, axis=1), 1, atol=1e-4)


def test_again_without_the_hub(hub, home, first):
    """From the cache, with a server that is gone, and with the variable that says so."""
    asked = len(hub.requests)
    gone = {"HF_ENDPOINT": "http://127.0.0.1:9"}
    for variables in ({"HF_HUB_OFFLINE": "1"}, gone):
        assert run(hub, LOADING, home, **variables) == first
    assert len(hub.requests) == asked


WITHOUT_PACKAGE = """
import json, torch
from transformers import AutoModel, AutoProcessor
options = {"revision": "v1", "trust_remote_code": True}
model = AutoModel.from_pretrained("ada/mural-tiny", **options).eval()
assert type(model).__module__.startswith("transformers_modules.")
processor = AutoProcessor.from_pretrained("ada/mural-tiny", **options)
inputs = processor(text=["ein rotes auto", "ein hund"], language="de", return_tensors="pt")
with torch.no_grad():
    features = model.get_text_features(**inputs).pooler_output
print(json.dumps(torch.nn.functional.normalize(features).tolist()))
"""


def test_a_pinned_model_without_the_package(hub, run_without_babelens, tmp_path, expected):
    printed = run_without_babelens(WITHOUT_PACKAGE, **hub.environment(tmp_path))
    assert np.allclose(json.loads(printed.splitlines()[-1]), expected, atol=1e-6)


CAPTIONS = """
    import json
    from datasets import load_dataset
    from babelens.data import load_captions
    for name in ("ada/captions", "ada/captions-folder"):
        assert load_dataset(name, split="train")[0]["image"].size == (20, 16)
        corpus = load_captions(name)
        print(json.dumps([sorted(caption["text"] for caption in row["captions"]) for row in corpus]))
"""


def test_captions_of_both_forms(hub, tmp_path):
    rows = [json.loads(line) for line in run(hub, CAPTIONS, tmp_path).splitlines()[-2:]]
    assert rows == [[[text, f"{text}, in English"] for text in TEXTS]] * 2


REFUSED = """
    from babelens import Embedder
    from babelens.utils.errors import BabelensError
    for name in ("ada/secret", "ada/missing"):
        try:
            Embedder.from_pretrained(name)
        except BabelensError as error:
            print(error)
"""


def test_a_private_model_needs_a_token(hub, tmp_path):
    for line, name in zip(run(hub, REFUSED, tmp_path).splitlines()[-2:], ("secret", "missing"), strict=True):
        assert (
            f"No folder 'ada/{name}'" in line
            and "no repository of that name on the Hub" in line
            and "or a private one: `hf auth login`" in line
        )
    allowed = """
        from babelens import Embedder
        for name in ("ada/secret", "ada/secret-adapter"):
            print(Embedder.from_pretrained(name, token="hf_ada_reads").encode_text("a", language="de").shape[0])
    """
    assert run(hub, allowed, tmp_path).splitlines()[-2:] == ["1", "1"]


def test_a_download_that_breaks_off_goes_on_where_it_was(hub, published, tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1000)  # a part of one is asked for again
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda seconds: None)
    weights = (published / "model.safetensors").read_bytes()
    ranges = []

    def broken(request):
        if request.method == "GET" and request.url.path.startswith("/storage/"):
            ranges.append(request.headers.get("range"))
            return broken_off(weights, 10_000) if len(ranges) == 1 else None

    hub.faults.append(broken)
    try:
        place = {"endpoint": hub.endpoint, "cache_dir": tmp_path, "revision": "v1"}
        path = hf_hub_download(MODEL, "model.safetensors", **place)
    finally:
        hub.faults.remove(broken)
    assert Path(path).read_bytes() == weights
    assert ranges == [None, "bytes=10000-"]
