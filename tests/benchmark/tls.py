"""Cost of TLS: Correct by the Python client over loopback TCP, with TLS and without, in turn.

    .venv/bin/python tests/benchmark/tls.py

Prints the table that bench.py puts into RESULTS.md.
"""

from __future__ import annotations

import os
import pathlib
import statistics
import sys
import tempfile
from typing import Any

import counterweight_rl as cw
from counterweight_rl.transport.router import Transport
from e2e import ANSWER_BYTES, OUTPUTS, REQUEST_BYTES, in_turn, random_batch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e"))

from certificates import Authority  # noqa: E402
from server_process import ServerProcess  # noqa: E402

# Sequences, length, calls, transport.
SHAPES: tuple[tuple[int, int, int, Transport], ...] = (
    (64, 512, 300, "unary"),
    (8192, 1024, 9, "stream"),
)

Json = dict[str, Any]


def time_shape(
    plain: ServerProcess,
    encrypted: ServerProcess,
    tls: cw.TlsConfig,
    shape: tuple[int, int, int, Transport],
) -> Json:
    sequences, length, calls, transport = shape
    batch = random_batch(sequences, length)
    with (
        cw.Client(plain.address, transport=transport) as tcp,
        cw.Client(encrypted.address, tls=tls, transport=transport) as secure,
    ):
        times = in_turn(
            {
                "tcp": lambda: tcp.correct(**batch, method="token_tis", outputs=OUTPUTS),
                "tls": lambda: secure.correct(**batch, method="token_tis", outputs=OUTPUTS),
            },
            calls,
        )
    return {
        "sequences": sequences,
        "length": length,
        "transport": transport,
        "bytes": (REQUEST_BYTES + ANSWER_BYTES) * sequences * length,
        **{f"{name}_p50_seconds": statistics.median(found) for name, found in times.items()},
        **{f"{name}_min_seconds": min(found) for name, found in times.items()},
    }


def measure() -> Json:
    """Measures all shapes."""
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(pathlib.Path(folder), "authority")
        plain = ServerProcess()
        try:
            encrypted = ServerProcess(*authority.sign("server").flags())
            try:
                tls = cw.TlsConfig(root_certificates=authority.certificate)
                load = os.getloadavg()[0]
                rows = [time_shape(plain, encrypted, tls, shape) for shape in SHAPES]
            finally:
                encrypted.stop()
        finally:
            plain.stop()
    return {"load": load, "rows": rows}


def main() -> None:
    import tables

    results = measure()
    print(f"Load average {results['load']:.1f}.\n\n{tables.tls_table(results)}")


if __name__ == "__main__":
    main()
