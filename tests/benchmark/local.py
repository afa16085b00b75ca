"""One small batch, token_tis of 64 x 512, in this process, over a Unix socket and in eager torch.

    .venv-torch/bin/python tests/benchmark/local.py [build/release]

Prints a table of medians and their ratios. Needs libcounterweight.so and the server; without torch
its row is a note.
"""

from __future__ import annotations

import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import counterweight_rl as cw
import numpy as np

SHAPE = (64, 512)
CALLS = 300
WARM_UP = 30
LISTENING = "counterweight-server listening on "


def main() -> None:
    build = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/release")
    rng = np.random.default_rng(0)
    old = (-rng.exponential(1.0, SHAPE)).astype(np.float32)
    rollout = old + rng.normal(0.0, 0.1, SHAPE).astype(np.float32)
    batch = {
        "rollout_log_probs": rollout,
        "old_log_probs": old,
        "response_mask": np.ones(SHAPE, bool),
    }
    with tempfile.TemporaryDirectory() as folder:
        socket = f"unix:{folder}/counterweight"
        command = [str(build / "counterweight-server"), f"--listen={socket}", "--metrics_listen="]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
            try:
                assert server.stdout is not None
                while not server.stdout.readline().decode().startswith(LISTENING):
                    assert server.poll() is None, "the server did not start"
                with cw.Client("local:") as local, cw.Client(socket) as remote:
                    calls: dict[str, Callable[[], object]] = {
                        "local:": lambda: local.correct(method="token_tis", **batch),
                        "local:, metrics=False": lambda: local.correct(
                            method="token_tis", metrics=False, **batch
                        ),
                        "Unix socket": lambda: remote.correct(method="token_tis", **batch),
                    }
                    add_torch(calls, batch)
                    print_table(in_turn(calls))
            finally:
                server.terminate()
                server.wait()


def add_torch(calls: dict[str, Callable[[], object]], batch: dict[str, np.ndarray]) -> None:
    try:
        import torch
    except ImportError:
        print("eager torch: not measured, because torch is not installed")
        return
    old, rollout, mask = (
        torch.from_numpy(batch[n]) for n in ("old_log_probs", "rollout_log_probs", "response_mask")
    )
    # As in eager_torch.py; threads that wait for each other are slow on a machine that is shared.
    torch.set_num_threads(1)
    # Weights alone: none of the drift metrics that an answer brings.
    calls["eager torch, one thread, weights only"] = lambda: (
        torch.exp(torch.clamp(old - rollout, -20.0, 20.0)).clamp(max=2.0) * mask
    )


def in_turn(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The median of each in seconds, all of them measured in the same minutes."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for i in range(WARM_UP + CALLS):
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            if i >= WARM_UP:
                seconds[name].append(time.perf_counter() - begin)
    return {name: statistics.median(values) for name, values in seconds.items()}


def print_table(medians: dict[str, float]) -> None:
    print("| token_tis, 64 x 512 | p50, us | of the Unix socket |")
    print("| --- | ---: | ---: |")
    for name, median in medians.items():
        print(f"| {name} | {1e6 * median:.0f} | {median / medians['Unix socket']:.2f} |")


if __name__ == "__main__":
    main()
