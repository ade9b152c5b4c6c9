"""Many clients at once, for two seconds: no error, batches of queries, and memory that does not grow. The whole
measurement is benchmarks/serve_load.py."""

import asyncio
import importlib.util
import os
import sys
from pathlib import Path

import pytest
from served import serving

from babelens.inference.embedder import Embedder
from babelens.serving.service import ImageService

pytestmark = pytest.mark.live

CLIENTS = 50


@pytest.fixture(scope="module")
def serve_load():
    path = Path(__file__).parents[2] / "benchmarks/serve_load.py"
    spec = importlib.util.spec_from_file_location("serve_load", path)
    sys.modules["serve_load"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class CountingEmbedder(Embedder):
    batches = ()

    def encode_text(self, texts, **options):
        self.batches = [*self.batches, len(texts)]
        return super().encode_text(texts, **options)


def test_fifty_clients_are_answered(serve_load, make_mla, folder):
    embedder = CountingEmbedder(*make_mla())
    with serving(ImageService.of_folder(embedder, folder, model="tiny")) as server:
        for seconds in (1, 2):  # the first: batches of nearly every size have been there
            load = serve_load.load(server.address, os.getpid(), clients=CLIENTS, seconds=seconds, language="de")
            measured = asyncio.run(load)
    assert measured.errors == 0 and measured.requests >= CLIENTS
    assert max(embedder.batches) > 4
    before, after = measured.memory
    assert after < before + 50
