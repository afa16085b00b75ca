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
        correction: The batch; its arrays are not read any more when this returns a Result.
        chunk_bytes: Bytes of a chunk at most.
        timeout: Seconds; None: any.
        on_admission: Called when the server has admitted the batch.

    Raises:
        grpc.RpcError: The call failed.
        CounterweightError: The answer cannot be read.
        Exception: What ``correction.progress`` raised.
    """
    sender = _Sender(correction, chunk_bytes)
    rpc = start(sender.messages(), timeout=timeout)
    if not rpc.add_callback(sender.stop):
        sender.stop()  # it is over already
    download = Download(correction)
    try:
        for message in rpc:
            waiting = not download.admitted
            with reading(correction.head.request_id):
                download.take(message)
            if waiting and download.admitted:
                on_admission()
                sender.report(0)
                sender.go(rpc.cancel)
        sender.report(correction.num_bytes)
        sender.raise_failure()
        with reading(correction.head.request_id):
            return download.result()
    except grpc.RpcError:
        sender.raise_failure()
        raise
    finally:
        sender.stop()
        rpc.cancel()


class _Sender:
    """The messages up, which a thread of grpc's pulls while the caller waits for those down."""

    def __init__(self, correction: Correction[Any], chunk_bytes: int) -> None:
        self._correction = correction
        self._upload = Upload(correction.batch.tensors, chunk_bytes)
        self._cancel: Callable[[], object] = lambda: None
        self._decided = threading.Event()  # to go on after the header, or not to
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
            # It is asked for the next one: this one is on its way.
            if self._stopped:
                return
            if self._correction.progress is not None and sent < self._correction.num_bytes:
                try:
                    self.report(sent)
                except BaseException as error:
                    # Here it would end in a log; the caller shall have it.
                    self._failure = error
                    self._cancel()
                    return

    def go(self, cancel: Callable[[], object]) -> None:
        """Lets the tensors follow the header; ``cancel`` ends the call if reporting fails."""
        self._cancel = cancel
        self._goes = True
        self._decided.set()

    def stop(self) -> None:
        """The call is over: nothing more is sent."""
        self._stopped = True
        self._decided.set()

    def report(self, num_bytes: int) -> None:
        """Tells the caller how much was sent; one thread at a time."""
        if self._correction.progress is not None:
            with self._reporting:
                if self._failure is None:
                    self._correction.report(num_bytes)

    def raise_failure(self) -> None:
        """Raises what the caller's function raised in the other thread."""
        if self._failure is not None:
            raise self._failure
