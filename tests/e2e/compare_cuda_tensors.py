"""Passes torch CUDA tensors to a server in place and compares the answers with the CPU's.

    COUNTERWEIGHT_SERVER=build/cuda/counterweight-server python3 tests/e2e/compare_cuda_tensors.py

It starts the server twice, with --backend=cuda and a shared-memory socket, and with --backend=cpu.
All answers must have the same bytes, and only names of memory may travel. --tokens is the size of
the timed batch. It needs a GPU, torch for it, numpy, grpcio and protobuf. Exit codes: 0 success, 1
a failure, 2 no comparison was possible.
"""

from __future__ import annotations

import argparse
import gc
import pathlib
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, Protocol

from server_process import DEADLINE_SECONDS, REPOSITORY, ServerProcess, binary

try:
    import counterweight_rl as cw
except ImportError:
    sys.path.insert(0, str(REPOSITORY / "client/python"))
    import counterweight_rl as cw
import numpy as np
from batches import packed, padded_batch
from transports import LOSS, assert_same

try:
    import torch
except ImportError:
    sys.exit("compare_cuda_tensors: needs torch")

OUTPUTS = ("weights", "keep_mask", "token_reasons", "sequence_reasons", "gradient")
MEBIBYTE = 1 << 20
# Method, layout, rules and destinations are not tensors.
MOST_BYTES_SENT = 64 << 10
DEVICE = "cuda"


class Sides(Protocol):
    """Clients with answers to compare: tensors in place on the GPU, and the CPU."""

    in_place: cw.Client
    on_cpu: cw.Client


class Servers:
    """A server on the GPU, one on the CPU, and clients of both."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.cuda = ServerProcess(
            "--backend=cuda",
            f"--shared_memory_socket={folder}/memory",
            "--max_tokens=268435456",
            "--max_bytes_in_flight=34359738368",
            listen=f"unix:{folder}/cuda",
        )
        self.cpu = ServerProcess("--backend=cpu", "--max_tokens=268435456")
        self.in_place = cw.Client(self.cuda.address, transport="shared_memory", timeout=300)
        self.by_stream = cw.Client(self.cuda.address, transport="stream", timeout=300)
        self.on_cpu = cw.Client(self.cpu.address, timeout=300)

    def close(self) -> None:
        for client in (self.in_place, self.by_stream, self.on_cpu):
            client.close()
        self.cuda.stop()
        self.cpu.stop()

    def sent(self) -> float:
        names = ("request", "response")
        return sum(self.cuda.metric(f"counterweight_{name}_bytes_total") for name in names)


def on_device(batch: dict[str, Any]) -> dict[str, Any]:
    return {
        name: torch.from_numpy(value).to(DEVICE)
        if isinstance(value, np.ndarray) and value.ndim and "length" not in name
        else value
        for name, value in batch.items()
    }


def on_host(result: cw.Result[Any], like: cw.Result[Any]) -> cw.Result[Any]:
    """Returns the result with numpy's arrays."""
    arrays = {}
    for name in OUTPUTS:
        tensor, expected = getattr(result, name), getattr(like, name)
        if expected is not None:
            assert tensor.is_cuda, f"{name} came back on {tensor.device}"
            arrays[name] = tensor.cpu().numpy().astype(expected.dtype)
    return replace(result, backend="cpu", **arrays)


def batches() -> Iterator[tuple[str, dict[str, Any]]]:
    yield "small", padded_batch()
    yield "one token", padded_batch(1, 1, seed=3)
    yield "long rows", padded_batch(3, 100_000, seed=5)
    yield "many rows", padded_batch(20_000, 40, seed=6)
    yield "packed", packed(padded_batch(300, 2000, spread=1.0, seed=7))
    half = padded_batch(50, 3000, seed=8)
    yield (
        "float16, bool",
        {
            name: array.astype(np.float16) if array.dtype == np.float32 else array.astype(bool)
            for name, array in half.items()
        },
    )


def check_answers(servers: Servers) -> None:
    for name, batch in batches():
        for method in (LOSS, "token_tis"):
            request = {**batch, "method": method}
            outputs = OUTPUTS if method is LOSS else OUTPUTS[:4]
            expected = servers.on_cpu.correct(**request, outputs=outputs)
            before = servers.sent()
            result = servers.in_place.correct(**on_device(request), outputs=outputs)
            sent = servers.sent() - before
            assert sent < MOST_BYTES_SENT + 16 * len(batch.get("sequence_lengths", ())), (
                f"{name}: {sent} bytes travelled"
            )
            assert_same(on_host(result, expected), expected)
            assert servers.cuda.metric("counterweight_shared_memory_bytes") == 0, (
                f"{name}: host memory was shared"
            )


def check_streams(sides: Sides) -> None:
    """The call waits for the caller's current stream."""
    batch = padded_batch(64, 4096, seed=11)
    expected = sides.on_cpu.correct(**batch, method=LOSS, outputs=OUTPUTS)
    right = on_device(batch)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        for submit in (False, True):
            late = {name: torch.zeros_like(tensor) for name, tensor in right.items()}
            torch.cuda._sleep(200_000_000)  # about a tenth of a second
            for name, tensor in right.items():
                late[name].copy_(tensor)
            request = {**late, "method": LOSS, "outputs": OUTPUTS}
            result = (
                sides.in_place.submit(**request).result(DEADLINE_SECONDS)
                if submit
                else sides.in_place.correct(**request)
            )
            assert_same(on_host(result, expected), expected)


def check_destinations(sides: Sides) -> None:
    """``out`` is written in place, and an input may be an output."""
    batch = padded_batch(64, 4096, seed=12)
    expected = sides.on_cpu.correct(**batch, method=LOSS, outputs=OUTPUTS)
    tensors = on_device(batch)
    shape = batch["response_mask"].shape
    whole = torch.empty((3, *shape), device=DEVICE)
    out = {"weights": whole[1], "gradient": tensors["old_log_probs"]}
    result = sides.in_place.correct(**tensors, method=LOSS, outputs=OUTPUTS, out=out)
    assert result.weights is out["weights"]
    assert_same(on_host(result, expected), expected)


def check_given_up_calls(servers: Servers) -> None:
    """A late write of the server does not reach another tensor's memory."""
    batch = on_device(padded_batch(256, 8192, seed=13))
    size = batch["response_mask"].numel()
    given_up = 0
    for attempt in range(30):
        try:
            servers.in_place.correct(**batch, method=LOSS, timeout=0.0005 * (attempt % 10 + 1))
        except cw.DeadlineError:
            given_up += 1
        others = [torch.full((size,), 7.0, device=DEVICE) for _ in range(3)]
        torch.cuda.synchronize()
        time.sleep(0.02)
        assert all(bool((other == 7.0).all()) for other in others), "memory was overwritten"
    print(f"  {given_up} of 30 calls were given up")


def check_memory_goes_back(servers: Servers) -> None:
    gc.collect()
    torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info()[0]
    for _ in range(3):
        tensors = on_device(padded_batch(512, 8192, seed=14))
        servers.in_place.correct(**tensors, method="token_tis")
        del tensors
        gc.collect()
        end = time.monotonic() + DEADLINE_SECONDS
        while servers.cuda.metric("counterweight_shared_memory_regions") > 0:
            assert time.monotonic() < end, "regions stay"
        torch.cuda.empty_cache()
    assert torch.cuda.mem_get_info()[0] >= free - 64 * MEBIBYTE, "device memory stays"


def check_memory_in_parts(servers: Servers) -> None:
    """Expandable segments have no handle, but a descriptor for each part."""
    settings = getattr(torch.cuda.memory, "_set_allocator_settings", None)
    if settings is None:
        print("  left out: this torch cannot change its allocator")
        return
    settings("expandable_segments:True")
    try:
        # Tensors of 64 MiB span several parts of 20 MiB.
        batch = padded_batch(2048, 8192, seed=15)
        tensors = on_device(batch)
        expected = servers.on_cpu.correct(**batch, method=LOSS, outputs=OUTPUTS)
        # A client of its own: an earlier refusal would be remembered.
        with cw.Client(servers.cuda.address, transport="shared_memory", timeout=300) as client:
            before = servers.sent()
            result = client.correct(**tensors, method=LOSS, outputs=OUTPUTS)
            sent = servers.sent() - before
        assert sent < MOST_BYTES_SENT + 16 * len(batch.get("sequence_lengths", ())), (
            f"{sent} bytes travelled"
        )
        assert_same(on_host(result, expected), expected)
    finally:
        settings("expandable_segments:False")


def time_ways(servers: Servers, num_tokens: int) -> None:
    length = 8192
    batch = {
        name: tensor
        for name, tensor in on_device(padded_batch(max(1, num_tokens // length), length)).items()
        if name in ("rollout_log_probs", "old_log_probs", "response_mask")
    }
    out = {
        "weights": torch.empty(batch["response_mask"].shape, device=DEVICE),
        "keep_mask": torch.empty_like(batch["response_mask"]),
    }
    tokens = batch["response_mask"].numel()
    for name, client in (("CUDA IPC", servers.in_place), ("stream", servers.by_stream)):
        seconds = []
        for _ in range(7):
            begin = time.perf_counter()
            result = client.correct(**batch, method="token_tis", out=out)
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - begin)
        best = min(seconds)
        print(
            f"  {name:8} {tokens / MEBIBYTE:.0f} Mi tokens: {best * 1e3:9.2f} ms, "
            f"{tokens / best / 1e9:7.3f} G tokens/s, server computed "
            f"{result.timing.compute_seconds * 1e3:.2f} ms"
        )


def run(checks: Sequence[Callable[[Any], None]], subject: Any) -> int:
    """Runs each check and prints how it ended; the exit code is 1 if one failed."""
    failures = 0
    for check in checks:
        name = check.__name__.removeprefix("check_").replace("_", " ").replace("<lambda>", "time")
        begin = time.monotonic()
        try:
            check(subject)
        except (AssertionError, cw.CounterweightError, TypeError, Warning) as error:
            failures += 1
            print(f"FAILED {name}: {type(error).__name__}: {str(error)[:2000]}")
        else:
            print(f"ok     {name} ({time.monotonic() - begin:.1f} s)")
    return 1 if failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=64 * MEBIBYTE)
    tokens = parser.parse_args().tokens
    if not torch.cuda.is_available() or not binary().exists():
        print(f"compare_cuda_tensors: needs a GPU, and {binary()}", file=sys.stderr)
        return 2
    warnings.simplefilter("error", cw.CopyWarning)
    checks: list[Callable[[Servers], None]] = [
        check_answers,
        check_streams,
        check_destinations,
        check_given_up_calls,
        check_memory_goes_back,
        check_memory_in_parts,
        lambda servers: time_ways(servers, tokens),
    ]
    with (
        tempfile.TemporaryDirectory(prefix="cw") as folder,
        closing(Servers(pathlib.Path(folder))) as servers,
    ):
        print(f"compare_cuda_tensors: {torch.cuda.get_device_name()}, torch {torch.__version__}")
        return run(checks, servers)


if __name__ == "__main__":
    sys.exit(main())
