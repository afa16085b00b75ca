"""One call of ``CorrectStream`` with grpc's asyncio interface."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import grpc.aio

from counterweight_rl.correction import Correction, reading
from counterweight_rl.result import Result
from counterweight_rl.transport import frames
from counterweight_rl.transport.streaming import Download, Upload

# grpc.aio's message for a write to a finished call, until the status has arrived.
_NO_STATUS_YET = "Internal error from Core"
_SECONDS_TO_STATUS = 10.0  # an ample bound: message and status arrive together


async def correct_by_stream(
    start: Callable[..., Any],
    correction: Correction[Any],
    chunk_bytes: int,
    timeout: float | None,
    on_admission: Callable[[], None],
) -> Result[Any]:
    """The asyncio form of ``stream_sync.correct_by_stream``."""
    rpc = start(timeout=timeout)
    outcome = _Outcome(rpc)
    messages = aiter(rpc)
    download = Download(correction)
    try:
        await _write(rpc, frames.header(correction.request()))
        # Before the last chunk is sent, only the admission arrives.
        while not download.admitted and await _take(outcome, messages, download, correction):
            pass
        if download.admitted:
            on_admission()
            correction.report(0)
            await _send(rpc, correction, chunk_bytes)
            while await _take(outcome, messages, download, correction):
                pass
            correction.report(correction.num_bytes)
        with reading(correction.head["request_id"]):
            return download.result()
    finally:
        rpc.cancel()


async def _send(rpc: Any, correction: Correction[Any], chunk_bytes: int) -> None:
    for message, sent in Upload(correction.batch.tensors, chunk_bytes).messages():
        if not await _write(rpc, message):
            return
        if sent < correction.num_bytes:
            correction.report(sent)
    await rpc.done_writing()


async def _write(rpc: Any, message: bytes) -> bool:
    """Returns False if the call is over; reading then reports why."""
    try:
        await rpc.write(message)
    except (grpc.RpcError, asyncio.InvalidStateError):
        return False
    return True


async def _take(
    outcome: _Outcome,
    messages: AsyncIterator[bytes],
    download: Download[Any],
    correction: Correction[Any],
) -> bool:
    """Takes one message; False at the end of the stream."""
    try:
        message = await anext(messages)
    except StopAsyncIteration:
        return False
    except grpc.RpcError as error:
        await outcome.raise_instead_of(error)
        return False
    with reading(correction.head["request_id"]):
        download.take(message)
    return True


class _Outcome:
    """The final status of a call.

    Writes that fail because the call is over set a status of their own in grpc.aio, before or after
    the server's. Therefore the status is recorded when it is set.
    """

    def __init__(self, rpc: Any) -> None:
        self._rpc = rpc
        self._error: grpc.aio.AioRpcError | None = None
        self._is_known = False
        rpc.add_done_callback(self._note)

    def _note(self, rpc: Any) -> None:
        details = _at_once(rpc.details())
        if details == _NO_STATUS_YET or self._is_known:
            return
        code = _at_once(rpc.code())
        if code is not grpc.StatusCode.OK:
            trailing = _at_once(rpc.trailing_metadata())
            self._error = grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailing, details)
        self._is_known = True

    async def raise_instead_of(self, error: Any) -> None:
        """Raises the status, unless it is OK."""
        if error.details() != _NO_STATUS_YET:
            raise error
        end = time.monotonic() + _SECONDS_TO_STATUS
        while not self._is_known and time.monotonic() < end:
            self._note(self._rpc)
            await asyncio.sleep(0.001)
        if self._error is not None or not self._is_known:
            raise self._error or error from None


def _at_once(coroutine: Any) -> Any:
    """Returns the result of a coroutine that has nothing to wait for."""
    try:
        coroutine.send(None)
    except StopIteration as stopped:
        return stopped.value
    coroutine.close()
    raise AssertionError("grpc.aio waits for a status that it has")
