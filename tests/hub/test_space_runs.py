import json
import os
import re
import subprocess
import textwrap
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from huggingface_hub import constants
from PIL import Image

from babelens import Embedder
from babelens.publishing import push, push_space
from tests.support.hub_double import HubDouble, write_files

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
MODEL, SPACE = "ada/mural-tiny", "ada/try-mural"
LABELS = ["ein rotes auto", "ein grauer hund"]
CLIENT = """
    import json, sys
    from gradio_client import Client, handle_file

    address, *images = sys.argv[1:]
    client = Client(address, verbose=False)
    labels = "ein rotes auto\\nein grauer hund\\n"
    answers = [client.predict(handle_file(image), labels, "de", api_name="/classify") for image in images]
    found = client.predict([handle_file(image) for image in images], "ein rotes auto", "de", api_name="/search")
    try:
        client.predict(handle_file(images[0]), " ", "de", api_name="/classify")
    except Exception as error:
        refused = str(error)
    print(json.dumps({"answers": answers, "found": [each["caption"] for each in found], "refused": refused}))
"""


@pytest.fixture(scope="session")
def space_python() -> Path:
    if "BABELENS_CLIENTS" not in os.environ:
        pytest.skip("make test-slow makes the environment")
    return Path(os.environ["BABELENS_CLIENTS"]).absolute() / "bin" / "python"


@pytest.fixture(scope="module")
def space(space_python, finished, tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    hub = HubDouble()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(constants, "HF_HUB_DISABLE_XET", True)
        push(finished, MODEL, api=hub)
        push_space(finished, MODEL, SPACE, api=hub)
        folder = write_files(home / "space", hub.repositories["space", SPACE].files)
        variables = {"GRADIO_ANALYTICS_ENABLED": "False", "GRADIO_SERVER_NAME": "127.0.0.1", "PYTHONUNBUFFERED": "1"}
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment |= hub.fill_cache(MODEL, home) | variables
        process = subprocess.Popen(
            [space_python, "app.py"],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield SimpleNamespace(address=_address(process), environment=environment)
        finally:
            process.terminate()
            process.wait(20)


def _address(process: subprocess.Popen) -> str:
    """The address of the page, once it is there; nobody reads the output of a started Space."""
    lines = []
    for line in process.stdout:
        lines.append(line)
        if found := re.search(r"Running on local URL:\s+(http\S+)", line):
            threading.Thread(target=process.stdout.read, daemon=True).start()
            return found.group(1)
    raise AssertionError("the Space has ended:\n" + "".join(lines))


def test_it_answers_as_the_model_does(space, space_python, finished, tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    gradient = Image.linear_gradient("L").resize((48, 48))
    for name, image in {"a": gradient, "b": gradient.rotate(90), "c": Image.radial_gradient("L")}.items():
        image.convert("RGB").save(folder / f"{name}.png")
    images = sorted(folder.iterdir())
    command = [space_python, "-c", textwrap.dedent(CLIENT), space.address, *images]
    done = subprocess.run(command, env=space.environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    answered = json.loads(done.stdout.splitlines()[-1])
    embedder = Embedder.from_pretrained(finished)
    for path, answer in zip(images, answered["answers"], strict=True):
        inputs = embedder.processor(images=Image.open(path), text=LABELS, language="de", return_tensors="pt")
        with torch.no_grad():
            expected = embedder.model(**inputs).logits_per_image[0].softmax(-1).tolist()
        found = {each["label"]: each["confidence"] for each in answer["confidences"]}
        assert found == pytest.approx(dict(zip(LABELS, expected, strict=True)), abs=1e-4)
    cosines = embedder.encode_image(images) @ embedder.encode_text(LABELS[0], language="de")[0]
    assert [float(each) for each in answered["found"]] == pytest.approx(sorted(cosines, reverse=True), abs=1e-3)
    assert "write one label on each line" in answered["refused"]
