"""All goldens by every client and over every transport: the same bytes.

tests/e2e compares the Python client's answers with the files, and client/go its own transports
with each other; here all are compared with the first. As a message each golden is sent by every
client; over another transport by one client in turn, because clients cut the same bytes there.
"""

from __future__ import annotations

import base64
import json
import pathlib
from collections.abc import Iterable
from concurrent import futures
from typing import Any

import numpy as np
import pytest
from goldens import GOLDENS, READ, array, asks_for_loss, release_of
from harness import Driver, commands
from server_process import ServerProcess

pytestmark = [pytest.mark.server_only, pytest.mark.timeout(1500)]

# Calls of a run, so that its bound separates a hang from a slow machine.
RUN_CALLS = 105
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
        if name not in READ:
            continue
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


def taken(place: int, step: int) -> slice:
    """The calls of a way: all as messages; else every ``step``th, where each client begins at another."""
    return slice(None) if WAYS[place][1] == "unary" else slice(place // 3 % step, None, step)


def comparable(report: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in report.items() if name not in UNCOMPARED}
    # Languages have their own words for arguments.
    kept["warnings"] = len(report.get("warnings", []))
    kept["violations"] = [path for path, _ in report.get("violations", [])]
    return kept


def answers(
    calls: list[dict[str, Any]], build: pathlib.Path, sockets: pathlib.Path, step: int = 1
) -> list[list[dict[str, Any]]]:
    """Returns the real server's answers to the calls of each way, see ``taken``."""
    memory = f"--shared_memory_socket={sockets}/golden.mem"
    tcp = ServerProcess()
    unix = ServerProcess(memory, listen=f"unix:{sockets}/golden.sock")
    programs = commands(build)
    drivers = {name: Driver(programs[name]) for name in {name for name, _ in WAYS}}

    def made(place: int) -> list[dict[str, Any]]:
        name, transport = WAYS[place]
        about = {
            "target": (unix if transport == "shared_memory" else tcp).address,
            # Chunks that end inside of elements.
            "client": {"transport": transport, "chunk_bytes": 101},
        }
        own = calls[taken(place, step)]
        parts = [own[first : first + RUN_CALLS] for first in range(0, len(own), RUN_CALLS)]
        return [
            report
            for part in parts
            for report in drivers[name].run({**about, "calls": part})["calls"]
        ]

    try:
        with futures.ThreadPoolExecutor(len(WAYS)) as workers:
            return list(workers.map(made, range(len(WAYS))))
    finally:
        for driver in drivers.values():
            driver.stop()
        tcp.stop()
        unix.stop()


def assert_the_same(
    reports: list[list[dict[str, Any]]], names: Iterable[str], step: int = 1
) -> None:
    expected = list(zip(names, reports[0], strict=True))
    for place, report in enumerate(reports):
        own = expected[taken(place, step)]
        for (name, first), have in zip(own, report, strict=True):
            assert comparable(have) == comparable(first), (WAYS[place], name)


def test_goldens_have_the_same_bytes_everywhere(build: pathlib.Path, sockets: pathlib.Path) -> None:
    # The number of clients that have each other transport.
    reports = answers([call(golden) for golden in GOLDENS.values()], build, sockets, step=3)
    assert len(reports[0]) >= 2093
    assert_the_same(reports, GOLDENS, step=3)
    refused = sum("error" in golden["expect"] for golden in GOLDENS.values())
    assert sum(not report["ok"] for report in reports[0]) == refused, json.dumps(reports[0][0])


def test_staleness_is_the_same_everywhere(build: pathlib.Path, sockets: pathlib.Path) -> None:
    rows, length, newest = 5, 40, 11
    # Row r: version r before position 17, then `newest` to 30, unknown after.
    versions = np.full((rows, length), -1)
    versions[:, :17] = np.arange(rows)[:, None]
    versions[:, 17:30] = newest
    spans = [s for r in range(rows) for s in ([r, 0, 17, r], [r, 17, 30, newest])]
    batch = {"sequences": rows, "length": length}
    told: list[dict[str, Any]] = [
        {"versions": versions.ravel().tolist()},
        {"version_spans": spans},
        {"version_spans": [[0, 0, 1, newest + 1]]},
        {},
    ]
    calls = [{"policy_version": newest, "batch": batch | how} for how in told]
    reports = answers(calls, build, sockets)
    assert_the_same(reports, ("tensor", "spans", "too new", "none"))
    tensor, by_spans, too_new, none = reports[0]
    assert tensor["staleness"] == by_spans["staleness"]
    assert too_new["code"] == "INVALID_ARGUMENT"
    assert none["staleness"] is None
    have = {f"{b[0]}-{b[1]}": b[2] for b in tensor["staleness"]["buckets"]}
    mask = (np.arange(rows * length) % 4 != 3).reshape(rows, length)
    stale = newest - versions
    known = mask & (versions >= 0)
    assert have == {
        "0-0": int((known & (stale == 0)).sum()),
        "1-1": 0,
        "2-2": 0,
        "3-4": 0,
        "5-8": int((known & (stale >= 5) & (stale <= 8)).sum()),
        "9-None": int((known & (stale >= 9)).sum()),
    }
    assert tensor["staleness"]["unknown_tokens"] == int((mask & (versions < 0)).sum())


def drawn(rows: np.ndarray[Any, Any], length: int) -> dict[str, Any]:
    """Rows by number, of sizes at which the order of addition would matter; every fifth is empty."""
    inputs = {}
    generators = [np.random.default_rng(int(row)) for row in rows]
    spread = [10.0 ** each.uniform(-6, 1, length) for each in generators]
    rollout = [-each.exponential(1, length) for each in generators]
    noises = {
        "OLD_LOG_PROBS": 1.0,
        "CURRENT_LOG_PROBS": 0.1,
    }
    arrays = {"ROLLOUT_LOG_PROBS": rollout}
    for name, size in noises.items():
        arrays[name] = [
            np.minimum(r + size * s * each.normal(size=length), 0)
            for r, s, each in zip(rollout, spread, generators, strict=True)
        ]
    arrays["ADVANTAGES"] = [each.normal(size=length) for each in generators]
    mask = [
        (each.random(length) < 0.9) & (row % 5 > 0)
        for row, each in zip(rows, generators, strict=True)
    ]
    for name, values in arrays.items():
        inputs[name] = base64.b64encode(np.array(values, np.float32).tobytes()).decode()
    inputs["RESPONSE_MASK"] = base64.b64encode(np.array(mask, np.uint8).tobytes()).decode()
    return {"sequences": len(rows), "length": length, "inputs": inputs}


def test_parts_of_a_step_are_one_batch_everywhere(
    build: pathlib.Path, sockets: pathlib.Path
) -> None:
    length = 37
    rows = np.random.default_rng(1).permutation(17)
    parts = [drawn(part, length) for part in (rows[:11], rows[11:16], rows[16:])]
    asked: list[dict[str, Any]] = [
        {"method": {"preset": "token_tis"}},
        {"method": {"preset": "geo_rs_token_tis_ppo_clip"}, "omit_loss": True},
        {
            "method": {
                "dialect": "verl",
                "release": "0.9.1",
                "block": {"rollout_is": "token", "rollout_is_threshold": 2.0},
            }
        },
    ]
    whole = drawn(np.arange(17), length)
    calls = [
        call
        for each in asked
        for call in (
            {**each, "batch": whole, "partial_sums": True},
            {**each, "do": "step", "parts": parts},
        )
    ]
    calls.append({**asked[0], "do": "step", "parts": parts[:0]})
    reports = answers(calls, build, sockets)
    assert_the_same(reports, [str(index) for index in range(len(calls))])
    for batch, step in zip(reports[0][0:6:2], reports[0][1:6:2], strict=True):
        number_of_parts = 1
        assert step["sums"]["maxima"] == batch["sums"]["maxima"]
        differ = [
            index
            for index, (a, b) in enumerate(
                zip(step["sums"]["sums"], batch["sums"]["sums"], strict=True)
            )
            if a != b
        ]
        assert differ == [number_of_parts]
        for name in ("metrics", "loss", "rules", "staleness", "non_finite_tokens"):
            assert step[name] == batch[name], name
    # The losses of the second pass divide by it; verl's by the kept tokens, which are all.
    tokens = sum(base64.b64decode(whole["inputs"]["RESPONSE_MASK"]))
    counts = [None, {"num_tokens": tokens}, {"num_kept_tokens": tokens}]
    assert [step["counts"] for step in reports[0][1:6:2]] == counts
    assert reports[0][6]["violations"][0][0] == "parts"
