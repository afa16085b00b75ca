"""Compares what a run reported with the scenario's ``expect``.

It holds ``calls`` (default: all are ok), ``attempts`` by RPC, ``pauses`` by RPC (s, by the
server's clock), ``seen`` (the server's calls), ``packets``, ``proxy`` (default: nothing), ``peers``,
``warnings`` (number by text), ``chunk_order``, and changes of these for one client (``cpp``). An
object may have more members than are expected.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from harness import Report, Scenario

# On top of a pause: no bound on speed, which a busy machine may not have, but on a wrong unit.
SLACK_SECONDS = 10.0
# A timeout from here on is no limit, with which a client may send no deadline.
NO_LIMIT_SECONDS = 1e8
CHUNK_BYTES = 2 << 20


def differences(actual: Any, expected: Any, where: str) -> Iterator[str]:
    """Yields how ``actual`` differs. An object may have more members than are expected."""
    if isinstance(expected, dict) and "between" in expected:
        low, high = expected["between"]
        if actual is None or not low <= actual <= high:
            yield f"{where} is {actual}, not between {low} and {high}"
    elif isinstance(expected, dict) and "matches" in expected:
        if not isinstance(actual, str) or not re.search(expected["matches"], actual):
            yield f"{where} is {actual!r}, which {expected['matches']!r} does not match"
    elif isinstance(expected, dict) and "lacks" in expected:
        if expected["lacks"] in str(actual):
            yield f"{where} has {expected['lacks']!r}: {actual!r}"
    elif isinstance(expected, dict) and "any_of" in expected:
        if actual not in expected["any_of"]:
            yield f"{where} is {actual!r}, none of {expected['any_of']}"
    elif isinstance(expected, dict) and "has" in expected:
        for item in expected["has"]:
            if not any(not list(differences(have, item, "")) for have in actual):
                yield f"{where} lacks {item}: {actual}"
    elif isinstance(expected, dict):
        for key, value in expected.items():
            if not isinstance(actual, dict) or key not in actual:
                yield f"{where} has no {key}: {actual}"
            else:
                yield from differences(actual[key], value, f"{where}.{key}")
    elif isinstance(expected, list):
        if not isinstance(actual, list) or len(actual) != len(expected):
            yield f"{where} is {actual}, not {expected}"
            return
        for index, value in enumerate(expected):
            yield from differences(actual[index], value, f"{where}[{index}]")
    elif actual != expected:
        yield f"{where} is {actual!r}, not {expected!r}"


def standard_output(role: str, call: dict[str, Any]) -> bytes:
    """Returns the numbers that the scripted server answers."""
    batch = call.get("batch", {"sequences": 1, "length": 4})
    sequences = len(batch["lengths"]) if "lengths" in batch else batch["sequences"]
    positions = sum(batch["lengths"]) if "lengths" in batch else sequences * batch["length"]
    index = np.arange(sequences if role == "SEQUENCE_REASONS" else positions) % (1 << 16)
    if role in ("WEIGHTS", "GRADIENT"):
        return (index * (0.125 if role == "WEIGHTS" else -0.125)).astype(np.float32).tobytes()
    if role == "KEEP_MASK":
        return (index % 2).astype(np.uint8).tobytes()
    return index.astype(np.uint16).tobytes()


def check_calls(scenario: Scenario, report: Report, expect: dict[str, Any]) -> Iterator[str]:
    calls = scenario.about["calls"]
    wanted = expect.get("calls", [{"ok": True}] * len(calls))
    yield from differences(report.driver["calls"], wanted, "calls")
    for call, have, want in zip(calls, report.driver["calls"], wanted, strict=True):
        if not have["ok"] or call.get("do", "correct") != "correct":
            continue
        asked = call.get("outputs", ["WEIGHTS", "KEEP_MASK"]) or list(want["outputs"])
        if sorted(have["outputs"]) != sorted(asked):
            yield f"the outputs are {list(have['outputs'])}, not {asked}"
        for role, output in have["outputs"].items():
            data = standard_output(role, call)
            if (output["bytes"], output["crc32"]) != (len(data), zlib.crc32(data)):
                yield f"the bytes of {role} are not the server's: {output}"


def check_identity(scenario: Scenario, report: Report) -> Iterator[str]:
    """Every run keeps rules 4 and 7, whatever else it is about."""
    calls = scenario.about["calls"]
    timeouts = [about.get("timeout", 0) for about in (scenario.about.get("client", {}), *calls)]
    known = set()
    for call, have in zip(calls, report.driver["calls"], strict=True):
        if call.get("do", "correct") != "correct" or not have.get("request_id"):
            continue
        known.add(have["request_id"])
        if "request_id" in call and have["request_id"] != call["request_id"]:
            yield f"the caller's request_id became {have['request_id']}"
        if "request_id" not in call and not re.fullmatch("[0-9a-f]{32}", have["request_id"]):
            yield f"the client made the request_id {have['request_id']!r}"
    for seen in report.server["calls"]:
        if seen.get("request_id") is not None and known and seen["request_id"] not in known:
            yield f"the server saw the request_id {seen['request_id']!r}, not one of {known}"
        if seen["deadline"] is None and max(timeouts) < NO_LIMIT_SECONDS:
            yield f"{seen['rpc']} has no deadline"


def check_server(report: Report, expect: dict[str, Any]) -> Iterator[str]:
    seen = report.server["calls"]
    for rpc, count in expect.get("attempts", {}).items():
        have = sum(call["rpc"] == rpc for call in seen)
        if have != count:
            yield f"the server saw {have} attempts of {rpc}, not {count}"
    yield from differences(seen, expect.get("seen", {}), "seen") if "seen" in expect else ()
    for rpc, pauses in expect.get("pauses", {}).items():
        calls = [call for call in seen if call["rpc"] == rpc]
        for index, pause in enumerate(pauses):
            if index + 1 >= len(calls):
                yield f"{rpc} has no attempt {index + 2}"
                break
            have = calls[index + 1]["at"] - calls[index]["ended"]
            # A random part of a quarter, and rounding to milliseconds.
            if not pause - 0.002 <= have <= 1.25 * pause + SLACK_SECONDS:
                yield f"pause {index + 1} of {rpc} took {have:.3f} s instead of {pause} s"
    if "peers" in expect and len({call["peer"] for call in seen}) != expect["peers"]:
        yield f"the calls came over {len({call['peer'] for call in seen})} connections"
    if "packets" in expect:
        yield from differences(report.server["packets"], expect["packets"], "packets")
    yield from differences(report.proxy, expect.get("proxy", []), "proxy")


def check_chunks(scenario: Scenario, report: Report) -> Iterator[str]:
    """Compares the chunks of each stream with rule 22."""
    size = scenario.about.get("client", {}).get("chunk_bytes", CHUNK_BYTES)
    limits = scenario.about["server"].get("info", {}).get("limits", {})
    size = min(size, int(limits.get("maxChunkBytes", size)))
    for call in report.server["calls"]:
        if call["rpc"] != "CorrectStream":
            continue
        if call.get("gap"):
            yield "a chunk does not continue its tensor"
        expected = []
        sent = [0] * len(call["tensors"])
        positions = next(have for role, have, _ in call["tensors"] if role == "RESPONSE_MASK")

        def take(tensor: int, end: int) -> None:
            while sent[tensor] < end:  # noqa: B023
                step = min(end - sent[tensor], size)  # noqa: B023
                expected.append([tensor, sent[tensor], step])  # noqa: B023
                sent[tensor] += step  # noqa: B023

        for index, (role, have, _) in enumerate(call["tensors"]):
            if role == "RESPONSE_MASK":
                take(index, have)
        block = max(1, size // 4)
        for begin in range(0, positions, block):
            for index in range(len(sent)):
                if call["tensors"][index][0] != "RESPONSE_MASK":
                    take(index, 4 * min(begin + block, positions))
        if call["chunks"] != expected[: len(call["chunks"])]:
            yield f"the chunks are {call['chunks'][:20]}, not {expected[:20]}"


def check_warnings(report: Report, expect: dict[str, Any]) -> Iterator[str]:
    for text, count in expect.get("warnings", {}).items():
        have = [line for line in report.driver.get("warnings", []) if text in line]
        if len(have) != count:
            yield f"there are {len(have)} warnings with {text!r}, not {count}: {have}"


def failures(scenario: Scenario, driver: str, report: Report) -> list[str]:
    """Returns everything in which a report differs from the scenario."""
    expect = scenario.expected(driver)
    found = [
        *check_calls(scenario, report, expect),
        *check_identity(scenario, report),
        *check_server(report, expect),
        *check_warnings(report, expect),
    ]
    if expect.get("chunk_order"):
        found += check_chunks(scenario, report)
    return found
