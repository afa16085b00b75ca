"""Times of Correct as a trainer sees them: the Python client over a Unix socket, beside an echo
of the same bytes by a gRPC server that does nothing."""

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

import counterweight as cw  # noqa: E402
import grpc  # noqa: E402
import numpy as np  # noqa: E402
from headline import VERL_BLOCK  # noqa: E402
from server_process import ServerProcess  # noqa: E402

# Sequences, length, calls.
SHAPES = ((64, 512, 300), (1024, 1024, 15), (8192, 1024, 7))
UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
# Two float32 log-probs and a mask there, weights and the keep mask back.
REQUEST_BYTES, ANSWER_BYTES = 9, 5

Json = dict[str, Any]


@contextlib.contextmanager
def echo_server(binary: pathlib.Path, address: str) -> Iterator[grpc.Channel]:
    process = subprocess.Popen(
        [str(binary), address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        if process.stdout.readline() != "listening\n":
            raise RuntimeError(f"{binary} did not start")
        with grpc.insecure_channel(address, UNLIMITED) as channel:
            yield channel
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
        "old_log_probs": rollout + noise,
        "response_mask": (generator.random(shape, np.float32) < 0.9).astype(np.uint8),
    }


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def time_shape(
    client: cw.Client, echo: grpc.Channel, method: cw.Method, shape: tuple[int, int, int]
) -> Json:
    sequences, length, calls = shape
    tokens = sequences * length
    batch = random_batch(sequences, length)
    message = bytes(REQUEST_BYTES * tokens)
    answer = echo.unary_unary(f"/echo/{ANSWER_BYTES * tokens}")
    client.correct(**batch, method=method)
    answer(message)
    ours, echoes = [], []
    # In turn, so that a noisy neighbour disturbs both.
    for _ in range(calls):
        ours.append(seconds(lambda: client.correct(**batch, method=method)))
        echoes.append(seconds(lambda: answer(message)))
    moved = (REQUEST_BYTES + ANSWER_BYTES) * tokens
    return {
        "sequences": sequences,
        "length": length,
        "tokens": tokens,
        "bytes": moved,
        "correct_min_seconds": min(ours),
        "correct_p50_seconds": statistics.median(ours),
        "echo_min_seconds": min(echoes),
        "echo_p50_seconds": statistics.median(echoes),
        "correct_GB_per_s": 1e-9 * moved / min(ours),
        "echo_GB_per_s": 1e-9 * moved / min(echoes),
    }


def largest_difference(client: cw.Client) -> Json | None:
    """How far the server's metrics are from eager torch's; None without torch."""
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
    """All shapes."""
    with tempfile.TemporaryDirectory() as folder:
        server = ServerProcess(listen=f"unix:{folder}/server")
        try:
            with (
                cw.Client(server.address) as client,
                echo_server(build / "benchmark/echo_server", f"unix:{folder}/echo") as echo,
            ):
                method = cw.Dialect("verl", VERL_BLOCK)
                return {
                    "agreement": largest_difference(client),
                    "rows": [time_shape(client, echo, method, shape) for shape in SHAPES],
                }
        finally:
            server.stop()
