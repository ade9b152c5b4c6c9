import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event, Thread
from typing import Any

import pytest
import torch
from torch import nn

from babelens.inference.embedder import evaluation_mode
from tests.support.tiny_adapters import make_clip, with_adapters
from tests.support.versions import checkpoint_activations

THREADS, CALLS = 8, 12
IDS = torch.tensor([[2, 5, 6, 9, 3, 0, 0, 0], [2, 7, 3, 0, 0, 0, 0, 0], [2, 9, 8, 8, 4, 1, 5, 3]])
ENGLISH = torch.tensor([[48, 5, 6, 9, 49, 0, 0, 0], [48, 7, 49, 0, 0, 0, 0, 0]])
LANGUAGES = ["de", "fr", "cs"]


@pytest.fixture(autouse=True)
def frequent_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def compare_threads(call: Callable[[int], Any]) -> None:
    """Each thread repeats its own call; all results equal the same calls one after another."""
    expected = [call(number) for number in range(THREADS)]
    barrier = Barrier(THREADS)

    def repeated(number: int) -> list[Any]:
        barrier.wait()
        return [call(number) for _ in range(CALLS)]

    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(repeated, range(THREADS)))
    wrong = [number for number, own in enumerate(found) for each in own if not equal(each, expected[number])]
    assert not wrong, f"{len(wrong)} of {THREADS * CALLS} calls"


def equal(a: Any, b: Any) -> bool:
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


@torch.no_grad()
def test_threads_with_one_mla_model(make_mla):
    model, processor = make_mla()
    texts = ["ein rotes Auto", "a red car", "une voiture"]
    batches = [
        processor(text=texts, language=[language, "en", other], return_tensors="pt")
        for language in [*LANGUAGES[:2], "en"]
        for other in [*LANGUAGES[:2], "en"]
    ]
    compare_threads(lambda number: model.get_text_features(**batches[number]).pooler_output)


@torch.no_grad()
def test_threads_with_one_peft_model():
    model = with_adapters(make_clip(), *LANGUAGES)
    names = [[a, "__base__", b] for a in [*LANGUAGES, "__base__"] for b in LANGUAGES[:2]]
    rows = [torch.stack([IDS[0] if a != "__base__" else ENGLISH[0], ENGLISH[1], IDS[1]]) for a, _, _ in names]
    images = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    compare_threads(
        lambda number: model(input_ids=rows[number], pixel_values=images, adapter_names=names[number]).text_embeds
    )


def test_a_gradient_that_recomputes_blocks_in_another_thread_is_the_same(make_mla):
    """Devices compute gradients in separate threads, after the forward pass has ended."""
    gradients = {}
    for checkpointing in (False, True):
        model, processor = make_mla()
        model.train()
        if checkpointing:
            checkpoint_activations(model)
        batch = processor(text=["ein Auto", "a car", "une rue"], language=["de", "en", "fr"], return_tensors="pt")
        thread = Thread(target=model.get_text_features(**batch).pooler_output.square().sum().backward)
        thread.start()
        thread.join()
        gradients[checkpointing] = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert gradients[True].keys() == gradients[False].keys() and len(gradients[True]) > 4
    assert all(torch.equal(value, gradients[True][name]) for name, value in gradients[False].items())


def test_evaluation_ends_for_a_model_when_the_last_thread_leaves_it():
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(2, 2)).train()
    model[1].eval()
    entered, leave = Event(), Event()

    def evaluate() -> None:
        with evaluation_mode(model):
            entered.set()
            leave.wait()

    thread = Thread(target=evaluate)
    with evaluation_mode(model):
        thread.start()
        entered.wait()
    assert not model[0].training
    leave.set()
    thread.join()
    assert model[0].training and not model[1].training


def test_threads_with_one_processor(make_etcl):
    processor = make_etcl()[1]

    def call(number: int) -> Any:
        ids = processor(text=["a text that is long", "b"], max_length=4 + number)["input_ids"]
        return [list(row) for row in ids]

    compare_threads(call)


def test_compiled_training_sees_the_languages_of_each_batch():
    """torch.compile must not reuse the languages of one batch for the next."""

    def embed(model: nn.Module, names: list[str]) -> torch.Tensor:
        inputs = {"input_ids": IDS, "pixel_values": torch.ones(1, 3, 8, 8)}
        return model(**inputs, adapter_names=names).text_embeds

    batches = [["de"] * 3, ["fr"] * 3, ["cs", "fr", "de"]]
    plain, model = with_adapters(make_clip(), *LANGUAGES), with_adapters(make_clip(), *LANGUAGES)
    model.base_model.model.text_model.compile(backend="eager")
    for names in batches:
        torch.testing.assert_close(embed(model, names), embed(plain, names))
