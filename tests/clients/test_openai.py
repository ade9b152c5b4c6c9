"""OpenAI's own client at `babelens serve`."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import openai
import pytest
from client_texts import TEXTS

TOKEN = "a token that is long enough"


@pytest.fixture(scope="module")
def address(mla, root, tmp_path_factory) -> Iterator[str]:
    """A server of the MLA, as a process."""
    settings = {"BABELENS_TOKEN": TOKEN, "HF_DATASETS_CACHE": str(tmp_path_factory.mktemp("cache"))}
    command = [sys.executable, "-m", "babelens", "serve", mla.path, "--images", str(root / "images"), "--port", "0"]
    process = subprocess.Popen(
        command, env=os.environ | settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        line = process.stdout.readline()
        found = re.search(r"http://\S+(?=/)", line)
        assert found, line + process.stderr.read()
        yield found[0]
    finally:
        process.kill()
        process.communicate(timeout=20)


@pytest.fixture(scope="module")
def client(address) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{address}/v1", api_key=TOKEN, max_retries=0) as client:
        yield client


GERMAN = {"language": "de"}


def test_embeddings(client, mla):
    answer = client.embeddings.create(model="mla", input=TEXTS, extra_body=GERMAN)  # asks for base64, and decodes it
    np.testing.assert_allclose([each.embedding for each in answer.data], mla.texts, atol=1e-6)
    assert answer.usage.prompt_tokens > 0 and answer.model == "mla"
    (one,) = client.embeddings.create(
        model="mla", input=TEXTS[1], dimensions=8, encoding_format="float", extra_body=GERMAN
    ).data
    short = mla.texts[1, :8]
    np.testing.assert_allclose(one.embedding, short / np.linalg.norm(short), atol=1e-6)
    assert [model.id for model in client.models.list()] == ["mla"]


def test_errors(client, address):
    with pytest.raises(openai.NotFoundError, match="there is no 'ada' here") as wrong:
        client.embeddings.create(model="ada", input="a")
    assert wrong.value.code == "model_not_found" and wrong.value.param == "model"
    with pytest.raises(openai.BadRequestError, match="has not learned 'sw'"):
        client.embeddings.create(model="mla", input="a", extra_body={"language": "sw"})
    with pytest.raises(openai.BadRequestError, match="give 1 to 2048"):
        client.embeddings.create(model="mla", input=[])
    with (
        openai.OpenAI(base_url=f"{address}/v1", api_key="wrong", max_retries=0) as other,
        pytest.raises(openai.AuthenticationError, match="needs its token"),
    ):
        other.embeddings.create(model="mla", input="a")
