"""The time that a trainer waits for one call from torch tensors, on one core.

    .venv-torch/bin/python tests/benchmark/calls.py [--build build/release] [--quick]

Weights are token_tis; a loss is token_tis_ppo_clip with its gradient and backward. Eager and
compiled torch compute the same weights, loss and gradient, without a metric. All calls of a size are
measured in turn, so that they meet the same machine. Prints JSON; bench.py makes the table.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import counterweight_rl as cw
import torch
from compiled_torch import KEPT_MEMORY
from counterweight_rl.torch import policy_loss
from torch import Tensor

SIZES = ((1, 128), (8, 1024), (64, 512), (256, 1024), (1024, 4096))
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
SECONDS = 1.5  # of each size, for each call
LEAST, MOST = 7, 400  # repetitions
LISTENING = "counterweight-server listening on "
WEIGHTS = "token_tis"
LOSS = "token_tis_ppo_clip"

Json = dict[str, Any]
Calls = dict[str, Callable[[], object]]


def torch_weights(old: Tensor, rollout: Tensor, mask: Tensor) -> Tensor:
    """The mask is float32, with which compiled code is fastest."""
    return torch.exp((old.float() - rollout.float()).clamp(-20.0, 20.0)).clamp(max=2.0) * mask


def torch_loss(
    current: Tensor, old: Tensor, rollout: Tensor, mask: Tensor, advantages: Tensor
) -> Tensor:
    with torch.no_grad():
        weights = torch_weights(old, rollout, mask)
    ratio = torch.exp((current.float() - old.float()).clamp(-20.0, 20.0))
    gain = torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
    return -(weights * gain * mask).sum() / mask.sum()


def random_batch(rows: int, length: int, dtype: torch.dtype) -> dict[str, Tensor]:
    torch.manual_seed(0)
    rollout = -torch.empty(rows, length).exponential_()
    old = rollout + 0.1 * torch.randn(rows, length)
    current = old + 0.1 * torch.randn(rows, length)
    lengths = torch.randint(length // 2, length + 1, (rows, 1))
    return {
        "rollout": rollout.clamp(max=-1e-3).to(dtype),
        "old": old.clamp(max=-1e-3).to(dtype),
        "current": current.clamp(max=-1e-3).to(dtype),
        "mask": torch.arange(length) < lengths,
        "advantages": torch.randn(rows, length).to(dtype),
    }


def weight_calls(batch: dict[str, Tensor], clients: dict[str, cw.Client]) -> Calls:
    old, rollout, mask = batch["old"], batch["rollout"], batch["mask"]
    floats = mask.float()
    compiled = torch.compile(torch_weights, fullgraph=True, dynamic=False)
    calls: Calls = {
        "eager": lambda: torch_weights(old, rollout, floats),
        "compiled": lambda: compiled(old, rollout, floats),
    }
    for name, client in clients.items():
        for metrics in (False, True):
            calls[f"{name}, metrics" if metrics else name] = lambda client=client, metrics=metrics: (
                client.correct(
                    method=WEIGHTS,
                    rollout_log_probs=rollout,
                    old_log_probs=old,
                    response_mask=mask,
                    metrics=metrics,
                )
            )
    return calls


def loss_calls(batch: dict[str, Tensor], clients: dict[str, cw.Client]) -> Calls:
    old, rollout, mask = batch["old"], batch["rollout"], batch["mask"]
    advantages, current = batch["advantages"], batch["current"].requires_grad_()
    floats = mask.float()
    compiled = torch.compile(torch_loss, fullgraph=True, dynamic=False)

    def backward(loss: Tensor) -> None:
        current.grad = None
        loss.backward()

    calls: Calls = {
        "eager": lambda: backward(torch_loss(current, old, rollout, floats, advantages)),
        "compiled": lambda: backward(compiled(current, old, rollout, floats, advantages)),
    }
    for name, client in clients.items():
        for metrics in (False, True):
            calls[f"{name}, metrics" if metrics else name] = lambda client=client, metrics=metrics: (
                backward(
                    policy_loss(
                        client,
                        current_log_probs=current,
                        old_log_probs=old,
                        rollout_log_probs=rollout,
                        response_mask=mask,
                        advantages=advantages,
                        method=LOSS,
                        metrics=metrics,
                    )
                )
            )
    return calls


def in_turn(calls: Calls) -> dict[str, float]:
    """The median of each in microseconds."""
    for call in calls.values():  # compiles, connects, prepares
        for _ in range(3):
            call()
    begin = time.perf_counter()
    for call in calls.values():
        call()
    once = time.perf_counter() - begin
    repetitions = max(LEAST, min(MOST, int(SECONDS * len(calls) / once)))
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repetitions):
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - begin)
    return {name: 1e6 * statistics.median(values) for name, values in times.items()}


@contextlib.contextmanager
def server(build: pathlib.Path) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        target = f"unix:{folder}/counterweight"
        flags = [f"--listen={target}", "--metrics_listen=", "--threads=1"]
        flags.append(f"--shared_memory_socket={folder}/memory")
        with subprocess.Popen(
            [str(build / "counterweight-server"), *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as running:
            try:
                assert running.stdout is not None
                while not running.stdout.readline().decode().startswith(LISTENING):
                    assert running.poll() is None, "the server did not start"
                yield target
            finally:
                running.terminate()
                running.wait()


def measure(build: pathlib.Path, sizes: tuple[tuple[int, int], ...], served: bool) -> list[Json]:
    torch.set_num_threads(1)
    rows = []
    with contextlib.ExitStack() as stack:
        clients = {"local:": stack.enter_context(cw.Client("local:?threads=1"))}
        if served:
            target = stack.enter_context(server(build))
            clients["socket"] = stack.enter_context(cw.Client(target, transport="unary"))
            clients["shared memory"] = stack.enter_context(
                cw.Client(target, transport="shared_memory")
            )
        for dtype, kind in DTYPES.items():
            for size in sizes:
                batch = random_batch(*size, kind)
                for work, make in (("weights", weight_calls), ("loss", loss_calls)):
                    torch.compiler.reset()
                    # One message of 4 Mi tokens is beyond a server's default limit.
                    few = dict(clients)
                    if size[0] * size[1] > 1 << 20:
                        few.pop("socket", None)
                    times = in_turn(make(batch, few))
                    rows.append({"work": work, "dtype": dtype, "size": size, "us": times})
                    print(
                        f"calls: {work} {dtype} {size[0]} x {size[1]}: "
                        + ", ".join(f"{name} {us:.0f}" for name, us in times.items()),
                        file=sys.stderr,
                    )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/release"))
    parser.add_argument(
        "--quick", action="store_true", help="local: alone, the sizes of the targets"
    )
    arguments = parser.parse_args()
    if not KEPT_MEMORY.items() <= os.environ.items():
        # Set before the process begins: torch's best case, as in compiled_torch.py.
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEPT_MEMORY})
    if hasattr(os, "sched_setaffinity") and arguments.quick:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    sizes = SIZES[1:4] if arguments.quick else SIZES
    json.dump(measure(arguments.build, sizes, served=not arguments.quick), sys.stdout)


if __name__ == "__main__":
    main()
