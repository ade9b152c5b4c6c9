"""Random calls of processors, most of them wrong: every keyword with values of every kind."""

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from PIL import Image

_DRAWN = Image.new("RGB", (40, 30), "red")
_ARRAY = np.zeros((30, 40, 3), np.uint8)
_RIGHT_TEXTS = ["a red car", "", ["a", "b"]]
_ODD: list[Any] = [5, True, 1.5, float("nan"), b"a", [], [None], [5], {"a": 1}, {"a"}, object(), int, "\ud800", "a\0b"]
_TEXTS = [
    *_RIGHT_TEXTS,
    *_ODD,
    ["a", None],
    [["a"]],
    ["ok", "a\udfffb"],
    ("a", "b"),
    "x" * 5000,
    ["a "] * 3,
    "a " * 300,
]
_LANGUAGES = [*_ODD, None, "xx", "klingonish", ["en", "de"], ["en"], ["en", 5], "uk", "EN", ("de", "en")]
_IMAGES: list[Any] = [
    *(_DRAWN, [_DRAWN], [_DRAWN, _DRAWN], [_DRAWN, None], [[_DRAWN, _DRAWN]], [[[_DRAWN]]], [(_DRAWN, _DRAWN)], None),
    *(
        "http://127.0.0.1:9/a.png",
        "https://x/y.jpg",
        "nowhere.png",
        "",
        "data:image/png;base64,AAAA",
        b"",
        b"abc",
        "/",
    ),
    *(_ARRAY, _ARRAY[None], _ARRAY.transpose(2, 0, 1), _ARRAY.astype(float), np.full((30, 40, 3), np.nan), _ARRAY[:0]),
    *(np.zeros(shape, np.uint8) for shape in [(), (5,), (30, 40), (30, 40, 2), (30, 40, 4), (1, 30, 40), (2,) * 5]),
    *(np.zeros((30, 40), bool), np.full((30, 40), 60000, ">u2"), np.full((30, 40, 3), -3), np.full((30, 40, 3), 300)),
    *(np.zeros((30, 40, 3), kind) for kind in (bool, complex, object, np.float16)),
    *(torch.zeros(3, 30, 40), torch.zeros(3, 30, 40, dtype=torch.uint8), torch.zeros(3, 30, 40, dtype=torch.bfloat16)),
    *(Image.new("RGB", (0, 5)), Image.new("RGB", (1, 5000)), Image.new("I;16", (9, 9)), Image.new("F", (9, 9))),
    *_ODD,
]
_NUMBERS = [5, 9, 0, -1, 1, 2, True, 10**30, 2**63, 1.5, "5", None, float("nan"), [5]]
_KEYWORDS: dict[str, list[Any]] = {
    "padding": [True, False, "longest", "max_length", "do_not_pad", "bogus", 5, None, []],
    "truncation": [True, False, "longest_first", "only_second", "x", 5, None],
    "max_length": _NUMBERS,
    "pad_to_multiple_of": _NUMBERS,
    "stride": _NUMBERS,
    "return_tensors": ["pt", "np", "tf", "x", 5, None, True, []],
    "return_attention_mask": [True, False, 5, "x"],
    "text_kwargs": [{"padding": "max_length"}, {"language": "de"}, {"x": 1}, {"max_length": -1}, {5: 5}, *_ODD],
    "images_kwargs": [
        *({"do_resize": False}, {"do_rescale": False}, {"x": 1}, {"size": 5}, {"size": -1}, {"size": 0}, {"size": {}}),
        *({"image_mean": [1]}, {"resample": 99}, {"input_data_format": "x"}, {"image_std": [0, 0, 0]}, 5, "a"),
    ],
    "common_kwargs": [{"return_tensors": "pt"}, {"x": 1}, {"padding": "max_length"}, {"return_tensors": 5}, *_ODD],
    "audio_kwargs": [{"padding": True}, {"x": 1}],
    "audio": [None, 5],
    "size": [5, {"height": 16, "width": 16}, "a"],
    "do_rescale": [False, 5],
    "nonsense": [5, None],
    "regions": [
        None,
        np.zeros((2, 4)),
        [np.zeros((2, 4)), None],
        [["a"]],
        np.zeros((9, 4)),
        np.zeros((2, 2, 4)),
        *_ODD,
    ],
    "text_target": _TEXTS,
    "target_language": _LANGUAGES,
}


def wrong_calls(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Keyword arguments; a few of the calls are right."""
    rng = random.Random(seed)
    for _ in range(count):
        call: dict[str, Any] = {}
        if rng.random() < 0.75:
            call["text"] = rng.choice(_TEXTS if rng.random() < 0.6 else _RIGHT_TEXTS)
        if rng.random() < 0.7:
            call["language"] = rng.choice(_LANGUAGES) if rng.random() < 0.4 else "de"
        if rng.random() < 0.6:
            call["images"] = rng.choice(_IMAGES if rng.random() < 0.8 else _IMAGES[:2])
        for name in rng.sample(sorted(_KEYWORDS), rng.choice((0, 0, 1, 1, 2))):
            call[name] = rng.choice(_KEYWORDS[name])
        yield call
