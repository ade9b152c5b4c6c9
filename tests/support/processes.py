"""Functions run in processes of their own, with gloo between them.

The processes are forked from a server that has imported the package before, so that one starts in milliseconds; what
they see of their group is what torchrun would have told them.
"""

import gc
import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch

_FORKS = multiprocessing.get_context("forkserver")
_MODELS = [f"transformers.models.{name}.modeling_{name}" for name in ("bert", "clip", "resnet")]
_FORKS.set_forkserver_preload(["babelens.trainers.mural", "PIL.IcnsImagePlugin", *_MODELS])
_TIMEOUT = 240


class ProcessesDied(Exception):
    """Processes that ended without a result."""

    def __init__(self, codes: list[int | None]) -> None:
        super().__init__(f"processes ended with {codes}")
        self.codes = codes


def together(count: int, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> list[Any]:
    """What `function(*args, **kwargs)` returns in each of `count` processes that know of each other.

    Raises:
        ProcessesDied: when one of them is killed.
        RuntimeError: when one of them raises, with its traceback.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = []
    try:
        for rank in range(count):
            here, there = _FORKS.Pipe()
            process = _FORKS.Process(target=_run, args=(there, rank, count, port, function, args, kwargs))
            process.start()
            there.close()
            started.append((process, here))
        answers = [_receive(process, pipe) for process, pipe in started]
        if None in answers:
            for process, _ in started:
                process.join(10)
            raise ProcessesDied([process.exitcode for process, _ in started])
        for _, error in answers:
            if error:
                raise RuntimeError(error)
        for process, pipe in started:
            pipe.send("all have answered")
            process.join(10)
        return [result for result, _ in answers]
    finally:
        for process, pipe in started:
            process.kill()
            pipe.close()


def _receive(process: BaseProcess, pipe: Connection) -> tuple[Any, str | None] | None:
    ready = wait([pipe, process.sentinel], _TIMEOUT)  # the pipe of a dead one may live on in its children
    if not ready:
        raise TimeoutError(f"no answer after {_TIMEOUT} seconds")
    try:
        return pipe.recv() if pipe in ready else None
    except EOFError:
        return None


def _run(
    pipe: Connection, rank: int, count: int, port: int, function: Callable[..., Any], args: tuple, kwargs: dict
) -> None:
    torch.set_num_threads(1)
    multiprocessing.set_start_method("fork", force=True)  # of data loaders' workers, without another server
    gc.freeze()  # what all share is not looked through, and so not copied
    if count > 1:
        group = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        os.environ.update({name: str(value) for name, value in (group | address).items()})
    try:
        answer = function(*args, **kwargs), None
    except Exception:
        answer = None, traceback.format_exc()
    pipe.send(answer)
    pipe.recv()  # nobody leaves while another may still be talking to him
    os._exit(0)  # gloo's threads do not end well
