"""The processes behind the fixtures `two_processes` and `four_processes`, forked after the imports.

Each rank runs the functions it is sent, one after the other, in one gloo process group, and sends back what they return
or the traceback they raise. It ends by `os._exit`: torch may abort at a normal exit after gloo work.
"""

import importlib.util
import os
import pickle
import traceback
from multiprocessing.connection import Client

import torch
from torch import Tensor, distributed, nn


def _load(path: str, name: str):
    spec = importlib.util.spec_from_file_location(f"ranks_{abs(hash(path))}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def mean_gradients(module: nn.Module, processes: int) -> dict[str, Tensor]:
    """Gradients of all parameters, averaged over the ranks like DistributedDataParallel's."""
    gradients = {name: parameter.grad for name, parameter in module.named_parameters()}
    if processes > 1:
        for gradient in gradients.values():
            distributed.all_reduce(gradient)
            gradient /= processes
    return gradients


def main(rank: int, address: str, store: str, count: int) -> None:
    os.environ.update(LOCAL_RANK=str(rank), NODE_RANK="0", WORLD_SIZE=str(count))  # what Lightning reads
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=count)
    with Client(address) as connection:
        connection.send(rank)
        while (task := connection.recv_bytes()) != b"stop":
            path, name, args = pickle.loads(task)
            try:
                answer = ("result", _load(path, name)(rank, *args))
            except BaseException:
                answer = ("error", traceback.format_exc())
            connection.send_bytes(pickle.dumps(answer))
    os._exit(0)
