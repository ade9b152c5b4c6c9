"""Chunks stay in memory as long as enough of it is free, and training does not depend on how many do."""

from types import SimpleNamespace

import pytest
import torch
from tiny_training import shapes_trainer, weights
from torch import nn

from babelens.trainers import gradient_caching
from babelens.trainers.gradient_caching import FixedNumber, WhileMemoryLasts, free_memory, processes_of_machine

CPU = torch.device("cpu")


def kept(keeps, sizes):
    """How many chunks of a batch stay, if their graphs keep this many bytes."""
    graphs = []  # as in training: of a graph that is gone, another one would get the memory, which is counted once
    for number, size in enumerate(sizes):
        if not keeps(number):
            return number
        with keeps.measured():
            graphs.append((torch.zeros(size // 4, requires_grad=True) ** 2).sum())  # which keeps the square's input
    return len(sizes)


@pytest.fixture
def decider(monkeypatch):
    """Makes a `WhileMemoryLasts` on a device with this much free memory, in bytes."""

    def made(free, *, model=None, **options):
        monkeypatch.setattr(gradient_caching, "free_memory", lambda device: free)
        return WhileMemoryLasts(model or nn.Identity(), CPU, **options)

    return made


@pytest.mark.parametrize(
    ("free", "sizes", "expected"),
    [
        (1200, [100] * 9, 5),  # after five, the next could take 200 of the 100 that are left
        (1200, [100, 200, 100, 100], 2),  # after a larger chunk, the next could take 400
        (1200, [4000, 4], 1),  # the first always stays
        (10**9, [100] * 9, 9),
        (0, [100] * 9, 1),
        (None, [100] * 9, 1),  # a device that does not tell
    ],
)
def test_half_of_the_free_memory_stays_free(decider, free, sizes, expected):
    assert kept(decider(free), sizes) == expected


def test_memory_for_gradients_and_an_optimizer_is_left(decider):
    frozen, model = nn.Linear(25, 1, bias=False).requires_grad_(False), nn.Linear(25, 1, bias=False)  # 100 bytes each
    assert kept(decider(1200, model=frozen), [100] * 9) == 5
    assert kept(decider(1500, model=model), [100] * 9) == 5


def test_processes_of_one_machine_share_its_memory(decider, monkeypatch):
    assert kept(decider(2400, sharing=2), [100] * 9) == kept(decider(1200), [100] * 9) == 5
    assert [processes_of_machine(torch.device(name), 8) for name in ("cpu", "cuda")] == [8, 1]
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert processes_of_machine(CPU, 8) == 4


def test_the_first_batch_decides(decider):
    """What the system's allocator holds back afterwards looks like memory in use."""
    keeps = decider(1200)
    assert [kept(keeps, sizes) for sizes in ([100] * 9, [8] * 9, [4000] * 9)] == [5, 5, 5]


def test_a_first_batch_that_all_stays_in_memory_tells_how_many_could(decider):
    """Of a short batch, and of one that ended in an error."""
    keeps = decider(1200)
    assert [kept(keeps, sizes) for sizes in ([100] * 2, [100] * 9)] == [2, 6]
    keeps = decider(1200)
    assert keeps(0)
    with pytest.raises(MemoryError), keeps.measured():
        (torch.zeros(50, requires_grad=True) ** 2).sum()
        raise MemoryError
    assert kept(keeps, [100] * 9) == 3


def test_each_training_measures_anew(tmp_path, monkeypatch):
    trainer = shapes_trainer(tmp_path, max_steps=1, embed_chunk_size=1)
    counts = []
    for free in (10**9, 10, 10**9):
        monkeypatch.setattr(gradient_caching, "free_memory", lambda device, free=free: free)
        trainer.train()
        counts.append([keeps.count for keeps in trainer._kept_by_task.values()])
    assert counts[0] == counts[2] == [None, None] and counts[1] == [1, 1]


class Wrapped(torch.Tensor):
    """A tensor that is made of another one, as quantized weights are."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, requires_grad=True)

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):
        return Wrapped(torch.zeros(args[0].shape))  # of what `Parameter` asks: a detached one


def test_weights_that_are_made_of_other_tensors(decider):
    model = nn.Module()
    model.sparse = nn.Parameter(torch.eye(5).to_sparse())
    model.wrapped = nn.Parameter(Wrapped(torch.zeros(5, 4)))
    assert kept(decider(10**9, model=model), [100] * 9) == 9


def test_processes_that_normalize_together_keep_as_many(tmp_path):
    trainer = shapes_trainer(tmp_path)
    assert isinstance(trainer._kept_chunks("image_text"), WhileMemoryLasts)
    trainer.model.norm = nn.SyncBatchNorm(3)
    assert trainer._kept_chunks("image_text")(0) and not trainer._kept_chunks("image_text")(1)


def test_what_is_kept_is_counted_once(decider):
    """Neither weights nor what an earlier operation kept."""
    layer, keeps = nn.Linear(50, 50), decider(10**9)
    inputs = torch.zeros(3, 50)
    assert keeps(0)
    keeps.model = layer
    keeps._counted = {weight.untyped_storage().data_ptr() for weight in layer.parameters()}
    with keeps.measured():
        output = layer(inputs).tanh()
        (output**2).sum() + output.exp().sum()
    # The input, tanh's output, which the square keeps too, and that of exp.
    assert keeps._total == 3 * inputs.nbytes


def test_a_fixed_number():
    assert [FixedNumber(2)(number) for number in range(4)] == [True, True, False, False]
    assert kept(FixedNumber(3), [100] * 9) == 3


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_training_does_not_depend_on_what_is_kept(tmp_path, monkeypatch, precision):
    """To the bit, with dropout and batches of two tasks, whatever memory is free."""
    runs, free = [], iter([10**5, 10**9])
    for settings in ({"embed_chunks_kept": 0}, {"embed_chunks_kept": 2}, {}, {}):
        trainer = shapes_trainer(tmp_path, max_steps=4, embed_chunk_size=2, precision=precision, **settings)
        if not settings:
            found = next(free)
            monkeypatch.setattr(gradient_caching, "free_memory", lambda device, found=found: found)
        passes = []
        trainer.model.register_forward_hook(lambda *_, passes=passes: passes.append(torch.is_grad_enabled()))
        trainer.train()
        runs.append((weights(trainer.model), len(passes)))
    for values, _ in runs[1:]:
        assert values.keys() == runs[0][0].keys()
        assert all((values[name] == value).all() for name, value in runs[0][0].items())
    none, two, one, all_but_one = (passes for _, passes in runs)
    assert none > one > two > all_but_one


def test_accelerators_count_what_torch_holds_unused(monkeypatch):
    device = torch.device("xpu:1")
    module = SimpleNamespace(
        mem_get_info={device: (50, 900)}.__getitem__,
        memory_reserved={device: 30}.__getitem__,
        memory_allocated={device: 20}.__getitem__,
    )
    monkeypatch.setattr(torch, "xpu", module)
    assert free_memory(device) == 60
    assert free_memory(torch.device("meta")) is None


@pytest.mark.parametrize(("available", "free"), [(100, 70), (60, 60)])
def test_a_mac_shares_its_memory(monkeypatch, available, free):
    module = SimpleNamespace(recommended_max_memory=lambda: 90, current_allocated_memory=lambda: 20)
    monkeypatch.setattr(torch, "mps", module)
    monkeypatch.setattr(gradient_caching, "available_memory", lambda: available)
    assert free_memory(torch.device("mps")) == free


@pytest.mark.parametrize("device_type", ["cuda", "xpu"])
def test_torch_has_the_functions_that_are_called(device_type):
    module = getattr(torch, device_type)
    assert all(hasattr(module, name) for name in ("mem_get_info", "memory_reserved", "memory_allocated"))


def test_the_processor_has_the_memory_of_the_machine(monkeypatch):
    monkeypatch.setattr(gradient_caching, "available_memory", lambda: 123)
    assert free_memory(CPU) == 123
