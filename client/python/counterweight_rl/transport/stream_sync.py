"""One call of ``CorrectStream`` with grpc's blocking interface."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from counterweight_rl.correction import Correction, reading
from counterweight_rl.result import Result
from counterweight_rl.transport import frames
from counterweight_rl.transport.streaming import Download, Upload


def correct_by_stream(
    start: Callable[..., Any],
    correction: Correction[Any],
    chunk_bytes: int,
    timeout: float | None,
    on_admission: Callable[[], None],
) -> Result[Any]:
    """Sends the batch, waits, and returns the Result.

    Args:
        start: The method, a grpc stream_stream of bytes.
        correction: The batch; its arrays are not read after this returns a Result.
        chunk_bytes: Largest chunk, bytes.
        timeout: Seconds; None: no limit.
        on_admission: Called when the server has admitted the batch.

    Raises:
        grpc.RpcError: The call failed.
        CounterweightError: The answer is unreadable.
        Exception: The exception of ``correction.progress``.
    """
    sender = _Sender(correction, chunk_bytes)
    rpc = start(sender.messages(), timeout=timeout)
    if not rpc.add_callback(sender.stop):
        sender.stop()  # the call is already over
    download = Download(correction)
    try:
        for message in rpc:
            waiting = not download.admitted
            with reading(correction.head["request_id"]):
                download.take(message)
            if waiting and download.admitted:
                on_admission()
                sender.report(0)
                sender.go(rpc.cancel)
        sender.report(correction.num_bytes)
        if not sender.has_failed:
            with reading(correction.head["request_id"]):
                return download.result()
    except grpc.RpcError:
        if not sender.has_failed:
            raise
    finally:
        sender.stop()
        rpc.cancel()
    raise sender.failure()


class _Sender:
    """The messages up, which grpc's thread pulls while the caller waits for the answer."""

    def __init__(self, correction: Correction[Any], chunk_bytes: int) -> None:
        self._correction = correction
        self._upload = Upload(correction.batch.tensors, chunk_bytes)
        self._cancel: Callable[[], object] = lambda: None
        self._decided = threading.Event()  # set when ``_goes`` is final
        self._goes = False
        self._stopped = False
        self._reporting = threading.Lock()
        self._failure: BaseException | None = None

    def messages(self) -> Iterator[bytes]:
        yield frames.header(self._correction.request())
        self._decided.wait()
        if not self._goes:
            return
        for message, sent in self._upload.messages():
            yield message
            # grpc requests the next message, so this one is on its way.
            if self._stopped:
                return
            if self._correction.progress is not None and sent < self._correction.num_bytes:
                try:
                    self.report(sent)
                except BaseException as error:
                    # grpc would only log an exception of its thread; the caller raises this one.
                    self._failure = error
                    self._cancel()
                    return

    def go(self, cancel: Callable[[], object]) -> None:
        """Permits the chunks; ``cancel`` ends the call if a report fails."""
        self._cancel = cancel
        self._goes = True
        self._decided.set()

    def stop(self) -> None:
        """Ends the messages; the call is over."""
        self._stopped = True
        self._decided.set()

    def report(self, num_bytes: int) -> None:
        """Reports the bytes sent, in one thread at a time."""
        if self._correction.progress is not None:
            with self._reporting:
                if self._failure is None:
                    self._correction.report(num_bytes)

    @property
    def has_failed(self) -> bool:
        """Whether the caller's function raised an exception in the other thread."""
        return self._failure is not None

    def failure(self) -> BaseException:
        """Returns that exception."""
        assert self._failure is not None
        return self._failure
