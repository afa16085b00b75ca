"""Clients of device memory that are killed: ``python device_clients.py TARGET SOCKET COUNT``.

Each client registers memory of the fake CUDA runtime and sends batches there until it is killed at
a random moment. One process forks all clients, since starting an interpreter takes longer than such
a life. The tests beside this file use it.
"""

from __future__ import annotations

import math
import os
import random
import signal
import sys
import time

import grpc
import numpy as np
from batches import padded_batch
from counterweight_rl._gen.counterweight.v1 import correction_service_pb2 as service_pb2
from counterweight_rl.shared_memory.control import Control
from counterweight_rl.shared_memory.device_region import DeviceRegion
from counterweight_rl.shared_memory.region import Access
from counterweight_rl.transport.channel import SERVICE
from fake_cuda import allocate

_AT_ONCE = 8
_MOST_SECONDS = 0.3
_OFFSET = 1 << 18  # distance between tensors


def live(target: str, socket: str) -> None:
    """Sends batches until it is killed."""
    batch = padded_batch(20, 200)
    memory, allocation, _ = allocate(6 * _OFFSET)
    control = Control(socket)
    reads = control.register(DeviceRegion(Access.READ, allocation), math.inf)
    request = service_pb2.CorrectRequest()
    request.layout.padded.num_sequences, request.layout.padded.length = 20, 200
    request.method.preset.name = "token_tis"
    request.outputs.append("TENSOR_ROLE_WEIGHTS")
    for i, name in enumerate(("rollout_log_probs", "old_log_probs", "response_mask")):
        size = batch[name].nbytes
        to = np.frombuffer(memory, np.uint8, size, i * _OFFSET)
        to[...] = np.frombuffer(batch[name], np.uint8)
        dtype = "D_TYPE_U8" if name == "response_mask" else "D_TYPE_F32"
        tensor = request.tensors.add(role=f"TENSOR_ROLE_{name.upper()}", dtype=dtype)
        tensor.shared_memory.handle = reads
        tensor.shared_memory.offset, tensor.shared_memory.length = i * _OFFSET, size
    correct = grpc.insecure_channel(target).unary_unary(SERVICE + "Correct")
    while True:
        writes = control.register(DeviceRegion(Access.WRITE, allocation), math.inf)
        del request.destinations[:]
        to = request.destinations.add(role="TENSOR_ROLE_WEIGHTS", dtype="D_TYPE_F32")
        to.shared_memory.handle = writes
        to.shared_memory.offset, to.shared_memory.length = 5 * _OFFSET, 20 * 200 * 4
        correct(request.SerializeToString(), timeout=30)
        control.release(writes)
        control.pump()


def main(target: str, socket: str, count: int) -> None:
    """Prints the number of clients that were alive when killed."""
    chance = random.Random(7)
    started, killed = 0, 0
    running: list[tuple[float, int]] = []
    while started < count or running:
        while started < count and len(running) < _AT_ONCE:
            child = os.fork()
            if child == 0:
                try:
                    live(target, socket)
                finally:
                    os._exit(1)
            running.append((time.monotonic() + chance.uniform(0, _MOST_SECONDS), child))
            started += 1
        end, child = running.pop(0)
        time.sleep(max(0.0, end - time.monotonic()))
        os.kill(child, signal.SIGKILL)
        killed += os.WIFSIGNALED(os.waitpid(child, 0)[1])
    print(killed)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
