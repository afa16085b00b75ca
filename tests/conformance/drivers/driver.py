"""The Python client's driver, of its blocking or its asyncio form; README.md has the protocol.

Usage: driver.py sync|asyncio
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import math
import struct
import sys
import threading
import time
import warnings
import zlib
from collections.abc import Callable
from typing import Any

import counterweight_rl as cw
import counterweight_rl.aio
import grpc
import numpy as np

MOST_REPORTED_BYTES = 4096  # larger arrays are reported by their checksum alone
OUTPUTS = ("weights", "keep_mask", "token_reasons", "sequence_reasons", "gradient")


class Warnings(logging.Handler):
    """Keeps the log lines and Python warnings of this process."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def client_arguments(about: dict[str, Any]) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        name: about[name]
        for name in (
            *("timeout", "transport", "chunk_bytes"),
            *("token", "token_file", "allow_insecure_token"),
        )
        if name in about
    }
    if "tls" in about:
        names = {"certificate": "certificate_chain", "key": "private_key"}
        files = {names.get(name, name): value for name, value in about["tls"].items()}
        arguments["tls"] = cw.TlsConfig(**files)
    if "attempts" in about:
        arguments["retry"] = cw.RetryPolicy(attempts=about["attempts"])
    return arguments


def inputs(about: dict[str, Any]) -> dict[str, Any]:
    """Returns the arrays of a batch, with the numbers of the README."""
    shape: tuple[int, ...] = (about.get("sequences", 0), about.get("length", 0))
    arrays: dict[str, Any] = {}
    if "lengths" in about:
        shape = (sum(about["lengths"]),)
        arrays["sequence_lengths"] = about["lengths"]
    if "versions" in about:
        versions = np.array(about["versions"], np.int32)
        whole = versions.size == math.prod(shape)
        arrays["policy_versions"] = versions.reshape(shape) if whole else versions
    if "version_spans" in about:
        arrays["version_spans"] = about["version_spans"]
    if "inputs" in about:
        for name, text in about["inputs"].items():
            dtype = np.uint8 if name == "RESPONSE_MASK" else np.float32
            array = np.frombuffer(base64.b64decode(text), dtype)
            arrays[name.lower()] = array.reshape(shape)
        return arrays
    index = np.arange(math.prod(shape))
    arrays["response_mask"] = (index % 4 != 3).astype(np.uint8).reshape(shape)
    short_by = about.get("short_by", {})
    for role, modulus in (("ROLLOUT_LOG_PROBS", 7), ("OLD_LOG_PROBS", 5)):
        numbers = (-1 - index % modulus / 8).astype(np.float32)
        missing = short_by.get(role, 0)
        whole = numbers.reshape(shape)
        arrays[role.lower()] = numbers[: len(numbers) - missing] if missing else whole
    return arrays


def arguments(call: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of ``correct``."""
    asked = inputs(call.get("batch", {"sequences": 1, "length": 4}))
    method = call.get("method", {"preset": "token_tis"})
    if "dialect" in method:
        asked["method"] = cw.Dialect(method["dialect"], method["block"], release=method["release"])
    else:
        asked["method"] = cw.Preset(
            method["preset"], allow_unknown=True, **method.get("parameters", {})
        )
    outputs = [name.lower() for name in call.get("outputs", ["WEIGHTS", "KEEP_MASK"])]
    asked["outputs"] = outputs or None
    asked["request_id"] = call.get("request_id")
    asked["policy_version"] = call.get("policy_version")
    if "step" in call:
        asked["step"] = call["step"]
    asked["partial_sums"] = call.get("partial_sums", call.get("do") == "step")
    asked["omit_loss"] = call.get("omit_loss", False)
    asked["timeout"] = call.get("timeout")
    return asked


def parts(call: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the arguments of ``correct`` for each part of a step."""
    return [arguments({**call, "batch": batch}) for batch in call["parts"]]


def hexadecimal(value: float) -> str:
    return struct.pack(">d", value).hex()


def staleness(summary: cw.Staleness | None) -> dict[str, Any] | None:
    if summary is None:
        return None
    return {
        "buckets": [
            [b.first, b.last, b.tokens, hexadecimal(b.kl), hexadecimal(b.k3)]
            for b in summary.buckets
        ],
        "unknown_tokens": summary.unknown_tokens,
        "mean": hexadecimal(summary.mean),
        "max": summary.max,
    }


def sums(made: cw.PartialSums | None) -> dict[str, Any] | None:
    if made is None:
        return None
    return {
        "sums": [hexadecimal(number) for number in made.sums],
        "maxima": [hexadecimal(number) for number in made.maxima],
    }


def counts(made: cw.GlobalCounts | None) -> dict[str, Any] | None:
    if made is None:
        return None
    return {
        name: hexadecimal(value) if name.startswith("weight_") else value
        for name, value in vars(made).items()
        if value is not None
    }


def numbers(made: cw.Result[Any] | cw.StepTotals) -> dict[str, Any]:
    """Returns the members that reports of a batch and of a step share."""
    return {
        "ok": True,
        "loss": None if made.loss is None else hexadecimal(made.loss),
        "metrics": {name: hexadecimal(value) for name, value in made.metrics.items()},
        "rules": [[r.name, r.dropped_tokens, r.dropped_sequences] for r in made.rules],
        "staleness": staleness(made.staleness),
        "sums": sums(made.sums),
        "non_finite_tokens": made.non_finite_tokens,
        "warnings": list(made.warnings),
    }


def step(totals: cw.StepTotals) -> dict[str, Any]:
    made = numbers(totals)
    return {**made, "counts": counts(totals.counts), "counts_refusal": totals.counts_refusal}


def success(result: cw.Result[Any]) -> dict[str, Any]:
    outputs: dict[str, Any] = {}
    for name in OUTPUTS:
        array = getattr(result, name)
        if array is None:
            continue
        data = array.tobytes()
        entry = {"bytes": len(data), "crc32": zlib.crc32(data)}
        if len(data) <= MOST_REPORTED_BYTES:
            entry["base64"] = base64.b64encode(data).decode()
        outputs[name.upper()] = entry
    return {
        **numbers(result),
        "request_id": result.request_id,
        "numerics_version": result.numerics_version,
        "outputs": outputs,
        "compute_seconds": result.timing.compute_seconds,
        "receive_seconds": result.timing.receive_seconds,
    }


def failure(error: BaseException) -> dict[str, Any]:
    if isinstance(error, asyncio.CancelledError):
        return {"ok": False, "code": "CANCELLED", "kind": "cancelled", "message": ""}
    if not isinstance(error, cw.CounterweightError):
        return {"ok": False, "code": "", "kind": "other", "message": repr(error)}
    kind = "other"
    if isinstance(error, cw.InvalidRequestError):
        kind = "invalid"
    elif isinstance(error, cw.OverloadedError):
        kind = "overloaded"
    elif isinstance(error, cw.UnavailableError):
        kind = "unavailable"
    elif isinstance(error, cw.DeadlineError):
        kind = "deadline"
    elif error.code is grpc.StatusCode.CANCELLED:
        kind = "cancelled"
    violations = error.violations if isinstance(error, cw.InvalidRequestError) else []
    retry_after = getattr(error, "retry_after", None)
    return {
        "ok": False,
        "code": error.code.name,
        "kind": kind,
        "message": error.args[0],
        "text": str(error),
        "violations": [[v.path or v.field, v.description] for v in violations],
        "request_id": error.request_id,
        "retry_after": retry_after if retry_after != math.inf else None,
    }


def call_sync(client: cw.Client, call: dict[str, Any]) -> dict[str, Any]:
    time.sleep(call.get("after", 0))
    # The blocking client has no other way to end a call from outside than to close it.
    end_after = call.get("cancel_after", call.get("close_after"))
    timer = threading.Timer(end_after or 0, client.close)
    # Before the timer, since a busy machine starts its thread first.
    begin = time.monotonic()
    if end_after:
        timer.start()
    try:
        what = call.get("do", "correct")
        if what == "correct":
            report = success(client.correct(**arguments(call)))
        elif what == "step":
            made: list[Any] = [client.correct(**asked).sums for asked in parts(call)]
            method = arguments(call)["method"]
            report = step(client.metrics_of(client.merge(made), method))
        elif what == "server_info":
            info = client.server_info(timeout=call.get("timeout"))
            report = {"ok": True, "version": info.version}
        else:
            methods = client.list_methods(timeout=call.get("timeout"))
            report = {"ok": True, "methods": len(methods)}
    except Exception as error:
        report = failure(error)
    report["seconds"] = time.monotonic() - begin
    timer.cancel()
    return report


def run_sync(command: dict[str, Any]) -> list[dict[str, Any]]:
    with cw.Client(command["target"], **client_arguments(command.get("client", {}))) as client:
        calls = command["calls"]
        if not command.get("concurrent"):
            return [call_sync(client, call) for call in calls]
        reports: list[dict[str, Any]] = [{} for _ in calls]

        def one(index: int) -> None:
            reports[index] = call_sync(client, calls[index])

        threads = [threading.Thread(target=one, args=(index,)) for index in range(len(calls))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return reports


async def step_asyncio(client: counterweight_rl.aio.Client, call: dict[str, Any]) -> cw.StepTotals:
    made: list[Any] = [(await client.correct(**asked)).sums for asked in parts(call)]
    return await client.metrics_of(await client.merge(made), arguments(call)["method"])


async def call_asyncio(client: counterweight_rl.aio.Client, call: dict[str, Any]) -> dict[str, Any]:
    await asyncio.sleep(call.get("after", 0))
    begin = time.monotonic()
    what = call.get("do", "correct")
    try:
        if what == "correct":
            # In a thread: large arrays would delay all other runs, and their pauses are compared.
            asked = await asyncio.to_thread(arguments, call)
            coroutine: Any = client.correct(**asked)
        elif what == "step":
            coroutine = step_asyncio(client, call)
        elif what == "server_info":
            coroutine = client.server_info(timeout=call.get("timeout"))
        else:
            coroutine = client.list_methods(timeout=call.get("timeout"))
        task = asyncio.ensure_future(coroutine)
        loop = asyncio.get_running_loop()
        if "cancel_after" in call:
            loop.call_later(call["cancel_after"], task.cancel)
        if "close_after" in call:
            closing: list[Any] = []
            loop.call_later(
                call["close_after"], lambda: closing.append(loop.create_task(client.close()))
            )
        answer = await task
        if what == "correct":
            report = await asyncio.to_thread(success, answer)
        elif what == "step":
            report = step(answer)
        elif what == "server_info":
            report = {"ok": True, "version": answer.version}
        else:
            report = {"ok": True, "methods": len(answer)}
    except (Exception, asyncio.CancelledError) as error:
        report = failure(error)
    report["seconds"] = time.monotonic() - begin
    return report


async def run_asyncio(command: dict[str, Any]) -> list[dict[str, Any]]:
    about = client_arguments(command.get("client", {}))
    async with counterweight_rl.aio.Client(command["target"], **about) as client:
        calls = command["calls"]
        if command.get("concurrent"):
            return await asyncio.gather(*(call_asyncio(client, call) for call in calls))
        return [await call_asyncio(client, call) for call in calls]


def report_of(command: dict[str, Any], calls: Any, log: Warnings) -> str:
    report = {"run": command["run"], "calls": calls, "warnings": list(log.lines)}
    return json.dumps(report) + "\n"


def refused(command: dict[str, Any], error: ValueError, log: Warnings) -> str:
    """The report of a client that refuses its own arguments."""
    call = {"ok": False, "code": "INVALID_ARGUMENT", "kind": "invalid", "message": str(error)}
    return report_of(command, [{**call, "text": str(error)}] * len(command["calls"]), log)


def failed(command: dict[str, Any], error: BaseException) -> str:
    return json.dumps({"run": command["run"], "failed": repr(error)}) + "\n"


def write(lock: threading.Lock, line: str) -> None:
    with lock:
        sys.stdout.write(line)
        sys.stdout.flush()


def main_sync(log: Warnings) -> None:
    lock = threading.Lock()

    def run(command: dict[str, Any]) -> None:
        try:
            line = report_of(command, run_sync(command), log)
        except ValueError as error:
            line = refused(command, error, log)
        except Exception as error:
            line = failed(command, error)
        write(lock, line)

    threads = []
    for text in sys.stdin:
        threads.append(threading.Thread(target=run, args=(json.loads(text),)))
        threads[-1].start()
    for thread in threads:
        thread.join()


async def main_asyncio(log: Warnings) -> None:
    lock = threading.Lock()

    async def run(command: dict[str, Any]) -> None:
        try:
            line = report_of(command, await run_asyncio(command), log)
        except ValueError as error:
            line = refused(command, error, log)
        except Exception as error:
            line = failed(command, error)
        write(lock, line)

    loop = asyncio.get_running_loop()
    tasks = set()
    read: Callable[[], str] = sys.stdin.readline
    while text := await loop.run_in_executor(None, read):
        tasks.add(loop.create_task(run(json.loads(text))))
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*tasks)


def main() -> None:
    log = Warnings()
    logging.getLogger().addHandler(log)
    warnings.showwarning = lambda message, *_, **__: log.lines.append(str(message))
    if sys.argv[1] == "sync":
        main_sync(log)
    else:
        asyncio.run(main_asyncio(log))


if __name__ == "__main__":
    main()
