"""Digests that name files in caches and embeddings of saved adapters stay what they were in version 0.1."""

import hashlib

import pytest
import torch
from torch import nn

from babelens.inference.fingerprint import fingerprint
from babelens.modeling.peft_mla.embedding import embedding_digest
from babelens.trainers.frozen_features import digest_of


def weights(dtype):
    return {
        "table.weight": torch.arange(6, dtype=dtype).reshape(3, 2).T,  # not contiguous
        "projection.weight": torch.ones(2, 2, dtype=dtype) / 4,
        "projection.bias": torch.tensor([1.5, -2.0], dtype=dtype),
        "scale": torch.tensor(0.5, dtype=dtype),
    }


def plain_bytes(value):
    return value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_digests_are_those_of_version_0_1(dtype):
    given = weights(dtype)
    expected = hashlib.sha256()
    for name in ("table.weight", "projection.weight", "projection.bias"):
        expected.update(plain_bytes(given[name].float()))
    assert embedding_digest(given) == expected.hexdigest()

    expected = hashlib.sha256(b"settings")
    for name in sorted(given):
        expected.update(f"{name} {given[name].dtype} {tuple(given[name].shape)}".encode() + plain_bytes(given[name]))
    expected.update((3).to_bytes(8, "big") + b"one")
    assert digest_of(given, "settings", [b"one"]) == expected.hexdigest()

    model = nn.Module()
    for name, value in given.items():
        model.register_buffer(name.replace(".", "_"), value)
    expected = hashlib.blake2b(b"settings", digest_size=12)
    for name, value in model.state_dict().items():
        expected.update(f"{name} {value.dtype}".encode() + plain_bytes(value))
    assert fingerprint(model, "settings") == expected.hexdigest()
