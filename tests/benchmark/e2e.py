"""Measures Correct from a trainer's side: the Python client over a Unix socket, each transport
beside an echo, the same client code against counterweight-bench's server that computes nothing."""

from __future__ import annotations

import contextlib
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e"))

import counterweight_rl as cw  # noqa: E402
import numpy as np  # noqa: E402
from counterweight_rl.transport import connection_sync  # noqa: E402
from counterweight_rl.transport.router import Capabilities, Transport  # noqa: E402
from headline import VERL_BLOCK  # noqa: E402
from server_process import ServerProcess  # noqa: E402

# Sequences, length, calls, transport.
SHAPES: tuple[tuple[int, int, int, Transport], ...] = (
    (64, 512, 300, "unary"),
    (256, 1024, 60, "unary"),
    (1024, 1024, 15, "stream"),
    (8192, 1024, 9, "stream"),
)
# The last shape is measured by shared memory too.
SHARED_CALLS = 15
# Two float32 log-probs and a mask there, weights and the keep mask back.
REQUEST_BYTES, ANSWER_BYTES = 9, 5
OUTPUTS = ("weights", "keep_mask")

Json = dict[str, Any]


class Echo:
    """The real client, calling the service of a server that answers with as many bytes."""

    def __init__(self, client: cw.Client) -> None:
        self.client = client

    def correct(self, **arguments: Any) -> cw.Result[Any]:
        # For this call only: the client reads the name at each one, and so does every other.
        real = connection_sync.SERVICE
        connection_sync.SERVICE = "/counterweight.bench.v1.Echo/"
        try:
            return self.client.correct(**arguments)
        finally:
            connection_sync.SERVICE = real


@contextlib.contextmanager
def echo_client(bench: pathlib.Path, address: str, transport: Transport) -> Iterator[Echo]:
    process = subprocess.Popen(
        [str(bench), "--serve_echo", f"--target={address}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        if "listening" not in process.stdout.readline():
            raise RuntimeError(f"{bench} --serve_echo did not start")
        with cw.Client(address, transport=transport) as client:
            # The echo has no GetServerInfo.
            client._connection.router.capabilities = Capabilities(stream=True)
            yield Echo(client)
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def random_batch(sequences: int, length: int) -> Json:
    generator = np.random.default_rng(1)
    shape = (sequences, length)
    rollout = -generator.standard_exponential(shape, np.float32)
    noise = np.float32(0.1) * generator.standard_normal(shape, np.float32)
    return {
        "rollout_log_probs": rollout,
        "old_log_probs": -np.abs(rollout + noise),
        "response_mask": (generator.random(shape, np.float32) < 0.9).astype(np.uint8),
    }


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def in_turn(calls: dict[str, Callable[[], object]], repetitions: int) -> dict[str, list[float]]:
    """Returns seconds of each call, in turn, so that a noisy neighbour disturbs all."""
    for call in calls.values():
        call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repetitions):
        for name, call in calls.items():
            times[name].append(seconds(call))
    return times


def time_shape(
    address: str,
    bench: pathlib.Path,
    folder: str,
    shape: tuple[int, int, int, Transport],
) -> Json:
    sequences, length, calls, transport = shape
    tokens = sequences * length
    batch = random_batch(sequences, length)
    # The echo returns its input, which must be a valid keep mask.
    zeros = {name: np.full_like(array, 0) for name, array in batch.items()}
    method = cw.Dialect("verl", VERL_BLOCK)
    with (
        cw.Client(address, transport=transport) as client,
        echo_client(bench, f"unix:{folder}/echo", transport) as echo,
    ):
        times = in_turn(
            {
                "correct": lambda: client.correct(**batch, method=method, outputs=OUTPUTS),
                "token_tis": lambda: client.correct(**batch, method="token_tis", outputs=OUTPUTS),
                "echo": lambda: echo.correct(**zeros, method=method, outputs=OUTPUTS),
            },
            calls,
        )
    moved = (REQUEST_BYTES + ANSWER_BYTES) * tokens
    return {
        "sequences": sequences,
        "length": length,
        "tokens": tokens,
        "transport": transport,
        "bytes": moved,
        **{
            f"{name}_{what}_seconds": value
            for name in times
            for what, value in (
                ("min", min(times[name])),
                ("p50", statistics.median(times[name])),
            )
        },
        "correct_GB_per_s": 1e-9 * moved / min(times["correct"]),
        "echo_GB_per_s": 1e-9 * moved / min(times["echo"]),
    }


def time_shared(address: str, method: cw.Method, name: str) -> Json:
    """Compares shared memory with the stream, for shared and for ordinary arrays."""
    sequences, length = SHAPES[-1][:2]
    batch = random_batch(sequences, length)
    with (
        cw.Client(address, transport="stream") as streamed,
        cw.Client(address, transport="shared_memory") as shared,
    ):
        lasting = {key: shared.empty(array.shape, array.dtype) for key, array in batch.items()}
        for key, array in batch.items():
            lasting[key][...] = array
        out = {
            "weights": shared.empty((sequences, length), np.float32, access="output"),
            "keep_mask": shared.empty((sequences, length), np.uint8, access="output"),
        }
        own = {key: np.empty_like(array) for key, array in out.items()}
        asked = {"method": method, "outputs": OUTPUTS}
        times = in_turn(
            {
                "stream": lambda: streamed.correct(**batch, **asked, out=own),
                "shared_memory": lambda: shared.correct(**batch, **asked, out=own),
                "allocated": lambda: shared.correct(**lasting, **asked, out=out),
            },
            SHARED_CALLS,
        )
        result = streamed.correct(**batch, **asked)
        same = all(
            np.array_equal(out[key], getattr(result, key), equal_nan=True) for key in OUTPUTS
        )
    if not same:
        raise RuntimeError("shared memory and the stream gave different bytes")
    return {
        "method": name,
        "tokens": sequences * length,
        **{f"{key}_seconds": min(values) for key, values in times.items()},
    }


def largest_difference(client: cw.Client) -> Json | None:
    """Returns the difference of the server's metrics from eager torch's; None without torch."""
    try:
        import eager_torch
        import torch
    except ModuleNotFoundError:
        return None
    batch = random_batch(64, 512)
    result = client.correct(**batch, method=cw.Dialect("verl", VERL_BLOCK))
    arrays = [batch[name] for name in ("old_log_probs", "rollout_log_probs", "response_mask")]
    old, rollout, mask = (torch.from_numpy(array.astype(np.float32)) for array in arrays)
    _, keep, metrics = eager_torch.correct(old, rollout, mask)
    differences = {
        name: abs(value - result.metrics[name]) / max(abs(value), 1e-6)
        for name, value in metrics.items()
    }
    assert result.keep_mask is not None
    return {
        "metrics": len(differences),
        "worst_metric": max(differences, key=lambda name: differences[name]),
        "worst_relative_difference": max(differences.values()),
        "tokens_kept_differently": int((keep.numpy() != result.keep_mask).sum()),
    }


def measure(build: pathlib.Path) -> Json:
    """All shapes and transports."""
    with tempfile.TemporaryDirectory() as folder:
        server = ServerProcess(
            f"--shared_memory_socket={folder}/memory", listen=f"unix:{folder}/server"
        )
        bench = build / "counterweight-bench"
        try:
            with cw.Client(server.address) as client:
                agreement = largest_difference(client)
            return {
                "agreement": agreement,
                "rows": [time_shape(server.address, bench, folder, shape) for shape in SHAPES],
                "shared": [
                    time_shared(server.address, cw.Dialect("verl", VERL_BLOCK), "verl, 3 rules"),
                    time_shared(server.address, cw.Preset("token_tis"), "token_tis"),
                ],
            }
        finally:
            server.stop()
