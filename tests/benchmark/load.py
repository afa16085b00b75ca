"""The server under load by counterweight-bench: cost per token by size, several clients, memory."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import tempfile
import threading
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e"))

from server_process import ServerProcess  # noqa: E402

# The largest batch has 1e8 tokens: 1.4 GB of them in flight.
FLAGS = ("--max_tokens=134217728", "--max_bytes_in_flight=8589934592")
LENGTH = 1000
SIZES = (100_000, 1_000_000, 10_000_000, 100_000_000)
CLIENTS = (1, 2, 4, 8)
MIB = 1 << 20

Json = dict[str, Any]


def bench(build: pathlib.Path, address: str, *flags: str) -> Json:
    done = subprocess.run(
        [str(build / "counterweight-bench"), f"--target={address}", "--json", *flags],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    result: Json = json.loads(done.stdout)
    return result


def resident_bytes(pid: int, field: str) -> int:
    """VmRSS, or VmHWM, its peak."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(status.split(f"{field}:")[1].split()[0])


def cost_by_size(build: pathlib.Path, address: str) -> list[Json]:
    rows = []
    for tokens in SIZES:
        run = bench(
            build,
            address,
            "--transport=stream",
            f"--sequences={tokens // LENGTH}",
            f"--length={LENGTH}",
            "--duration=4",
        )
        p50 = run["latency_seconds"]["p50"]
        rows.append({"tokens": tokens, "ns_per_token": 1e9 * p50 / tokens})
    return rows


def sharing(build: pathlib.Path, address: str) -> list[Json]:
    """Measures the throughput of several concurrent clients."""
    rows = []
    for clients in CLIENTS:
        run = bench(
            build,
            address,
            "--transport=stream",
            "--sequences=512",
            "--length=1024",
            f"--concurrency={clients}",
            "--duration=4",
        )
        rows.append({"clients": clients, "tokens_per_second": run["tokens_per_second"]})
    return rows


def memory(build: pathlib.Path) -> Json:
    """Measures a separate server's memory under four clients: its peak, and its growth."""
    clients = 4
    with tempfile.TemporaryDirectory() as folder:
        server = ServerProcess(listen=f"unix:{folder}/server")
        samples: list[int] = []
        stop = threading.Event()

        def sample() -> None:
            while not stop.wait(0.1):
                samples.append(resident_bytes(server.process.pid, "VmRSS"))

        watcher = threading.Thread(target=sample)
        watcher.start()
        try:
            run = bench(
                build,
                server.address,
                "--transport=stream",
                "--sequences=1024",
                "--length=4096",
                f"--concurrency={clients}",
                "--duration=20",
            )
            peak = resident_bytes(server.process.pid, "VmHWM")
        finally:
            stop.set()
            watcher.join()
            server.stop()
    bytes_each = (run["input_bytes"] + run["output_bytes"]) / run["requests"]
    half = len(samples) // 2
    return {
        "clients": clients,
        "requests": run["requests"],
        "bytes_in_flight": clients * bytes_each,
        "peak_bytes": peak,
        "allowed_bytes": 1.3 * clients * bytes_each + 200 * MIB,
        "growth": max(samples[half:]) / max(samples[:half]),
    }


def measure(build: pathlib.Path) -> Json:
    with tempfile.TemporaryDirectory() as folder:
        server = ServerProcess(*FLAGS, listen=f"unix:{folder}/server")
        try:
            return {
                "sizes": cost_by_size(build, server.address),
                "sharing": sharing(build, server.address),
                "memory": memory(build),
            }
        finally:
            server.stop()
