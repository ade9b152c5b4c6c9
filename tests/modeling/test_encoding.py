"""Linear layers by oneDNN: the same numbers for every form of input, and only where nothing else was asked for."""

import threading

import numpy as np
import pytest
import torch
from torch.nn.functional import linear

from babelens.inference.embedder import Embedder
from babelens.modeling import encoding
from babelens.modeling.encoding import fast_linear_layers

pytestmark = pytest.mark.skipif(not encoding._has_onednn(), reason="this build of torch has no oneDNN")
WIDTH, OUT = 5, 6


@pytest.fixture(autouse=True)
def amd(monkeypatch):
    """As on a processor whose AVX-512 MKL leaves out; returns the shapes of what oneDNN has multiplied."""
    multiplied, operator = [], torch.ops.mkldnn._linear_pointwise
    monkeypatch.setattr(encoding, "_mkl_leaves_out_avx512", lambda: True)
    monkeypatch.setattr(
        torch.ops.mkldnn, "_linear_pointwise", lambda *args: (multiplied.append(args[0].shape), operator(*args))[1]
    )
    torch.manual_seed(0)
    return multiplied


@pytest.mark.parametrize("shape", [(WIDTH,), (1, WIDTH), (7, WIDTH), (2, 3, WIDTH), (2, 3, 4, WIDTH)])
@pytest.mark.parametrize(
    ("weight", "bias"),
    [
        (torch.randn(OUT, WIDTH), torch.randn(OUT)),
        (torch.randn(OUT, WIDTH), None),
        (torch.randn(WIDTH, OUT).t(), torch.randn(OUT)),
        (torch.randn(OUT, WIDTH), torch.randn(1).expand(OUT)),
        (torch.randn(2 * OUT, 2 * WIDTH)[::2, ::2], torch.randn(2 * OUT)[::2]),
    ],
)
def test_products_are_equal(amd, shape, weight, bias):
    values = torch.randn(shape)
    with torch.no_grad(), fast_linear_layers():
        found = linear(values, weight, bias)
        transposed = linear(input=values.mT.contiguous().mT if values.ndim > 1 else values, weight=weight, bias=bias)
    assert len(amd) == 2
    torch.testing.assert_close(found, linear(values, weight, bias))
    torch.testing.assert_close(transposed, found)


def test_numbers_of_rows_are_few(amd):
    weight, bias = torch.randn(OUT, WIDTH), torch.randn(OUT)
    lengths = range(1, 2100)
    for rows in lengths:
        values = torch.randn(rows, WIDTH)
        with torch.no_grad(), fast_linear_layers():
            found = linear(values, weight, bias)
        torch.testing.assert_close(found, linear(values, weight, bias))
    done = [rows for rows, _ in amd]
    assert sorted({*done})[:9] == [1, 2, 4, 8, 16, 32, 64, 128, 192] and len({*done}) == 39
    assert all(rows <= rounded < 2 * rows for rows, rounded in zip(lengths, done, strict=True))
    assert all(rounded - rows < max(64, rows / 16) for rows, rounded in zip(lengths, done, strict=True))
    assert encoding._rounded_up(64 * 50) == 64 * 50  # a batch of images of a CLIP ViT-B/32


@pytest.mark.parametrize(
    ("values", "weight", "setting"),
    [
        (torch.ones(2, WIDTH, dtype=torch.float64), torch.ones(OUT, WIDTH, dtype=torch.float64), torch.no_grad()),
        (torch.ones(2, WIDTH, device="meta"), torch.ones(OUT, WIDTH, device="meta"), torch.no_grad()),
        (torch.ones(0, WIDTH), torch.ones(OUT, WIDTH), torch.no_grad()),
        (torch.ones(2, WIDTH), torch.ones(WIDTH), torch.no_grad()),
        (torch.ones(2, WIDTH), torch.ones(OUT, WIDTH), torch.autocast("cpu", torch.bfloat16)),
        (torch.ones(2, WIDTH), torch.ones(OUT, WIDTH).requires_grad_(), torch.enable_grad()),
    ],
    ids=["float64", "meta", "empty", "a vector", "autocast", "gradients"],
)
def test_everything_else_is_left_to_torch(amd, values, weight, setting):
    with setting:
        expected = linear(values, weight)
        with fast_linear_layers():
            found = linear(values, weight)
    assert not amd
    assert (found.shape, found.dtype, found.requires_grad) == (expected.shape, expected.dtype, expected.requires_grad)


def test_layers_compile_in_one_graph():
    layer = torch.nn.Linear(WIDTH, OUT)
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    values = torch.randn(2, WIDTH)
    with torch.no_grad(), fast_linear_layers():
        found = compiled(values)
    torch.testing.assert_close(found, layer(values))


def test_other_threads_and_what_follows_are_left_to_torch(amd):
    values, weight = torch.ones(2, WIDTH), torch.ones(OUT, WIDTH)
    with torch.no_grad(), fast_linear_layers():
        thread = threading.Thread(target=linear, args=(values, weight))
        thread.start()
        thread.join()
    with torch.no_grad():
        linear(values, weight)
    assert not amd


def test_it_can_be_switched_off(amd):
    with torch.backends.mkldnn.flags(enabled=False), torch.no_grad(), fast_linear_layers():
        linear(torch.ones(2, WIDTH), torch.ones(OUT, WIDTH))
    assert not amd


@pytest.mark.parametrize(
    ("about", "expected"),
    [
        ({"cpu_name": "AMD EPYC 9R45", "avx512_f": True}, True),
        ({"cpu_name": "AMD EPYC 7763", "avx512_f": False}, False),
        ({"cpu_name": "Intel Xeon", "avx512_f": True}, False),
        ({"architecture": "aarch64"}, False),
    ],
)
def test_which_processors_it_is_for(monkeypatch, about, expected):
    monkeypatch.undo()
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: about)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    assert encoding._mkl_leaves_out_avx512.__wrapped__() is expected


def test_an_embedder_multiplies_by_it(amd, clip_parts, monkeypatch):
    embedder = Embedder(*clip_parts)
    texts, images = ["a red square", "a circle"], [np.full((20, 20, 3), value, np.uint8) for value in (0, 200)]
    found = embedder.encode_text(texts, language="en"), embedder.encode_image(images)
    assert amd
    monkeypatch.undo()
    monkeypatch.setattr(encoding, "_mkl_leaves_out_avx512", lambda: False)
    amd.clear()
    for each, expected in zip(
        found, (embedder.encode_text(texts, language="en"), embedder.encode_image(images)), strict=True
    ):
        np.testing.assert_allclose(each, expected, atol=1e-6)
    assert not amd
