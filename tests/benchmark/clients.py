"""The clients of all languages beside each other: the same batches over one Unix socket, in turn.

``go_rate_of_cpp`` is the median over rounds of C++'s time by Go's.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e"))

import counterweight_rl as cw  # noqa: E402
import e2e  # noqa: E402
import numpy as np  # noqa: E402
from server_process import ServerProcess  # noqa: E402

# Sequences, length, transport, calls of Python and Go in a round, seconds of C++.
SHAPES = (
    (64, 512, "unary", 200, 1),
    (8192, 1024, "stream", 12, 2),
    (8192, 1024, "shared_memory", 12, 2),
)
ROUNDS = 7
BYTES = e2e.REQUEST_BYTES + e2e.ANSWER_BYTES

Json = dict[str, Any]


def build_go() -> pathlib.Path:
    """The Go client's program; .ci/setup go brings what it needs."""
    program = ROOT / "build/bench/go-bench"
    command = [str(ROOT / ".ci/with_go"), "go", "build", "-C", str(ROOT / "client/go")]
    subprocess.run([*command, "-o", str(program), "./internal/bench"], check=True)
    return program


def run(command: list[str]) -> Json:
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    result: Json = json.loads(done.stdout)
    return result


def python_p50(address: str, sequences: int, length: int, transport: Any, calls: int) -> float:
    batch = e2e.random_batch(sequences, length)
    shape = (sequences, length)
    out = {"weights": np.empty(shape, np.float32), "keep_mask": np.empty(shape, np.uint8)}
    with cw.Client(address, transport=transport) as client:
        times = e2e.in_turn(
            {"python": lambda: client.correct(**batch, method="token_tis", out=out)}, calls
        )
    return float(np.median(times["python"]))


def time_shape(address: str, bench: pathlib.Path, go: pathlib.Path, shape: Any) -> Json:
    sequences, length, transport, calls, duration = shape
    size = [f"--target={address}", f"--sequences={sequences}", f"--length={length}"]
    size.append(f"--transport={transport}")
    measured: Json = {}

    def time_python() -> float:
        return python_p50(address, sequences, length, transport, calls)

    def time_cpp() -> float:
        cpp = run([str(bench), *size, f"--duration={duration}", "--json"])
        return float(cpp["latency_seconds"]["p50"])

    def time_go() -> float:
        measured.update(run([str(go), *size, f"--calls={calls}"]))
        return float(measured["p50_seconds"])

    # C++ and Go follow each other, in both orders: what the machine does to one of a round it
    # does to the other.
    turns = [("python", time_python), ("cpp", time_cpp), ("go", time_go)]
    p50: dict[str, list[float]] = {name: [] for name, _ in turns}
    for _ in range(ROUNDS):
        for name, timed in turns:
            p50[name].append(timed())
        turns.reverse()
    ratios = [cpp / go for cpp, go in zip(p50["cpp"], p50["go"], strict=True)]
    # The machine has neighbours: the least median of some rounds is the least disturbed one.
    seconds = {f"{name}_seconds": min(values) for name, values in p50.items()}
    return {
        "sequences": sequences,
        "length": length,
        "transport": transport,
        "bytes": BYTES * sequences * length,
        **seconds,
        "go_rate_of_cpp": float(np.median(ratios)),
        "go_rates_of_cpp": [round(ratio, 3) for ratio in ratios],
        "go_allocations": measured["allocations"],
        "go_allocated_bytes": measured["allocated_bytes"],
    }


def measure(build: pathlib.Path) -> list[Json]:
    """All shapes, of each client the least median of some rounds."""
    go = build_go()
    with tempfile.TemporaryDirectory() as folder:
        server = ServerProcess(
            f"--shared_memory_socket={folder}/memory", listen=f"unix:{folder}/server"
        )
        try:
            bench = build / "counterweight-bench"
            return [time_shape(server.address, bench, go, shape) for shape in SHAPES]
        finally:
            server.stop()


if __name__ == "__main__":
    import os

    os.environ.setdefault("COUNTERWEIGHT_SERVER", str(ROOT / "build/release/counterweight-server"))
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build/release"
    for row in measure(folder):
        print(json.dumps(row))
