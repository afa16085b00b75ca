"""All goldens by every client over every transport: the same bytes.

tests/e2e compares the Python client's answers with the files, and client/go its own transports
with each other; here all are compared with the first.
"""

from __future__ import annotations

import base64
import json
import pathlib
from concurrent import futures
from typing import Any

import numpy as np
import pytest
from goldens import GOLDENS, array, asks_for_loss, release_of
from harness import Driver, commands
from server_process import ServerProcess

pytestmark = [pytest.mark.server_only, pytest.mark.timeout(180)]

# Go's own tests have its other transports.
WAYS = [("python-sync", "unary"), ("go", "unary")] + [
    (driver, transport)
    for driver in ("python-sync", "python-asyncio", "cpp")
    for transport in ("unary", "stream", "shared_memory")
    if (driver, transport) != ("python-sync", "unary")
]
# Differ between runs, or between languages.
UNCOMPARED = ("request_id", "seconds", "compute_seconds", "receive_seconds", "message", "text")


def call(golden: dict[str, Any]) -> dict[str, Any]:
    """Returns the file's request in the words of the drivers."""
    mask = array(golden["inputs"]["response_mask"])
    inputs = {}
    for name, rows in golden["inputs"].items():
        dtype = np.uint8 if name == "response_mask" else np.float32
        inputs[name.upper()] = base64.b64encode(array(rows).astype(dtype).tobytes()).decode()
    outputs = ["KEEP_MASK"]
    if "weights" in golden["expect"]:
        outputs.append("WEIGHTS")
    if asks_for_loss(golden):
        outputs.append("GRADIENT")
    return {
        "batch": {"sequences": mask.shape[0], "length": mask.shape[1], "inputs": inputs},
        "method": {
            "dialect": golden["dialect"],
            "release": release_of(golden),
            "block": golden["params"],
        },
        "outputs": outputs,
    }


def comparable(report: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in report.items() if name not in UNCOMPARED}
    # Languages have their own words for arguments.
    kept["warnings"] = len(report.get("warnings", []))
    kept["violations"] = [path for path, _ in report.get("violations", [])]
    return kept


def test_goldens_have_the_same_bytes_everywhere(build: pathlib.Path, sockets: pathlib.Path) -> None:
    calls = [call(golden) for golden in GOLDENS.values()]
    memory = f"--shared_memory_socket={sockets}/golden.mem"
    tcp = ServerProcess()
    unix = ServerProcess(memory, listen=f"unix:{sockets}/golden.sock")
    programs = commands(build)
    drivers = {name: Driver(programs[name]) for name in {name for name, _ in WAYS}}
    try:
        with futures.ThreadPoolExecutor(len(WAYS)) as workers:
            runs = [
                workers.submit(
                    drivers[name].run,
                    {
                        "target": (unix if transport == "shared_memory" else tcp).address,
                        # Chunks that end inside of elements.
                        "client": {"transport": transport, "chunk_bytes": 101},
                        "calls": calls,
                    },
                )
                for name, transport in WAYS
            ]
        reports = [run.result()["calls"] for run in runs]
    finally:
        for driver in drivers.values():
            driver.stop()
        tcp.stop()
        unix.stop()
    assert len(reports[0]) == 1050
    for way, report in zip(WAYS, reports, strict=True):
        for name, first, have in zip(GOLDENS, reports[0], report, strict=True):
            assert comparable(have) == comparable(first), (way, name)
    refused = sum("error" in golden["expect"] for golden in GOLDENS.values())
    assert sum(not report["ok"] for report in reports[0]) == refused, json.dumps(reports[0][0])
