"""Runs functions in separate processes with gloo, as torchrun starts them, forked from a server that has imported the
package, so each starts in milliseconds."""

import gc
import multiprocessing
import os
import pickle
import socket
import tempfile
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import torch
from torch.multiprocessing import ProcessExitedException, ProcessRaisedException, start_processes

# Another process may notice first that one was killed: its exchange with it fails.
DIED = (ProcessExitedException, ProcessRaisedException)
_FORKS = multiprocessing.get_context("forkserver")
_MODELS = [f"transformers.models.{name}.modeling_{name}" for name in ("bert", "clip", "resnet")]
_FORKS.set_forkserver_preload(["babelens.trainers.mural", "PIL.IcnsImagePlugin", *_MODELS])


def together(count: int, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> list[Any]:
    """Returns the results of `function` in `count` processes that know of each other; `ProcessExitedException` means
    that one was killed, `ProcessRaisedException` has its traceback."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        given = (count, port, folder, _FORKS.Barrier(count), function, args, kwargs)
        start_processes(_run, given, count, start_method="forkserver")
        return [pickle.loads(Path(folder, str(rank)).read_bytes()) for rank in range(count)]


def _run(
    rank: int, count: int, port: int, folder: str, end: Barrier, function: Callable[..., Any], args: Any, kwargs: Any
) -> None:
    torch.set_num_threads(1)
    multiprocessing.set_start_method("fork", force=True)  # of data loaders' workers, without another server
    gc.freeze()  # what all share is not looked through, and so not copied
    if count > 1:
        group = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        os.environ.update({name: str(value) for name, value in (group | address).items()})
    Path(folder, str(rank)).write_bytes(pickle.dumps(function(*args, **kwargs)))
    end.wait()  # nobody leaves while another one may still be talking to him
    os._exit(0)  # gloo's threads do not end well
