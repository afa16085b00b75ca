"""Sums of batches on their way to a server's metrics: ``Client("local:", publish=...)``."""

from __future__ import annotations

import atexit
import importlib.util
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from counterweight_rl.errors import (
    CounterweightError,
    DeadlineError,
    OverloadedError,
    UnavailableError,
    from_rpc_error,
)
from counterweight_rl.local.target import check_local
from counterweight_rl.one_process import OneProcess
from counterweight_rl.status import StatusCode
from counterweight_rl.transport.access import Access
from counterweight_rl.transport.channel import SERVICE, TlsConfig
from counterweight_rl.transport.target import read_server

if TYPE_CHECKING:
    import grpc

QUEUE = 256
"""Largest number of batches with waiting sums; beyond it the oldest are dropped."""
ATTEMPT_SECONDS = 5.0
"""Deadline of one attempt to send."""
PAUSE_SECONDS = 1.0
"""Pause between attempts while the server is away."""
FLUSH_SECONDS = 2.0
"""Longest wait for the rest when the client is closed or the process ends."""
FORK_SECONDS = 1.0
"""Longest wait of a fork for the attempts in progress, of all publishers together."""
_MOST_SENTENCES = 64

_log = logging.getLogger(__name__)


def open_publisher(
    publish: str | None,
    tls: TlsConfig | grpc.ChannelCredentials | None,
    token: str | None,
    token_file: str | os.PathLike[str] | None,
    allow_insecure_token: bool,
) -> Publisher | None:
    """The publisher of a local client; the other arguments apply to its server.

    Raises:
        ValueError: ``publish`` is no server's address, or the others are wrong for one or for none.
        ImportError: grpcio is missing.
    """
    if publish is None:
        check_local(
            tls=tls,
            token=token,
            token_file=token_file,
            allow_insecure_token=allow_insecure_token,
        )
        return None
    if isinstance(publish, str) and (not publish or publish.startswith("local:")):
        raise ValueError(
            f'publish must be a server\'s address, "host:port" or "unix:/path"; got {publish!r}'
        )
    address = read_server(publish, "publish")
    if importlib.util.find_spec("grpc") is None:
        raise ImportError(
            f'publish={publish!r} needs grpcio: pip install "counterweight-rl[remote]"'
        )
    return Publisher(publish, lambda: Access(address, tls, token, token_file, allow_insecure_token))


def refuse_publish(publish: str | None) -> None:
    """Refuses the argument of a client with a server as its target.

    Raises:
        ValueError: It was given.
    """
    if publish is not None:
        raise ValueError('publish is for a target "local:"; a server publishes what it corrects')


class Publisher(OneProcess):
    """Sends sums from one thread, without ever letting ``put`` wait for it. Thread-safe.

    A forked child begins anew: what waited in the parent is the parent's to send. But gRPC does not
    survive fork(), so a child of a process that has begun to send drops its own. The threads that
    gRPC starts again in such a child may even crash it if a call was in progress, so a fork waits
    for the end of an attempt.
    """

    def __init__(
        self, target: str, make_access: Callable[[], Access], what: str = "sums of batches"
    ) -> None:
        """Checks the access; sends nothing and starts no thread yet.

        Args:
            target: The server, for messages.
            make_access: Called once, and in forked children.
            what: A name in the plural of what it sends, for messages.

        Raises:
            ValueError: As ``Access``.
        """
        self._target = target
        self._what = what
        self._make_access = make_access
        self._access = make_access()
        self._is_lost = False
        self._begin()
        _publishers.add(self)

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._calling = threading.Lock()  # held during each attempt, and during a fork
        self._waiting: deque[tuple[str, bytes]] = deque()
        self._thread: threading.Thread | None = None
        self._end: float | None = None  # of the flush, on the monotonic clock
        self._dropped = 0
        self._is_away = False
        self._has_given_up = False
        self._warned: set[StatusCode] = set()
        self._sentences: set[str] = set()  # those of the server that were logged

    def another(self, what: str) -> Publisher:
        """Returns one to the same server for messages of another kind."""
        return Publisher(self._target, self._make_access, what)

    def pause(self, seconds: float) -> bool:
        """Keeps attempts from beginning until ``resume``; False if one lasts longer than that."""
        return self._calling.acquire(timeout=max(0.0, seconds))

    def resume(self) -> None:
        """Ends a pause."""
        self._calling.release()

    def begin_in_child(self) -> None:
        """Forgets what the parent does."""
        # Freeing a channel of the parent's could wait for its threads.
        _abandoned.append(self._access)
        self._access = self._make_access()
        self._is_lost = self._is_lost or self._thread is not None
        self._begin()

    @property
    def dropped(self) -> int:
        """Messages that were dropped, and batches whose sums were."""
        return self._dropped

    @property
    def takes_turns(self) -> bool:
        """Whether messages may go to several servers."""
        return self._access.target.takes_turns

    def report(self, message: Mapping[str, Any], rpc: str) -> None:
        """Sends a request of ReportStep or DeclareRun later, as ``put`` does."""
        # Clients that report nothing need no protobuf.
        from counterweight_rl._gen.counterweight.v1 import correction_service_pb2 as pb
        from counterweight_rl.arrays import framing

        kind = pb.ReportStepRequest if rpc == "ReportStep" else pb.DeclareRunRequest
        self.put(framing.to_message(message, kind).SerializeToString(), rpc)

    def put(self, message: bytes, rpc: str = "Publish") -> None:
        """Sends a PublishRequest later; drops the oldest message if too many wait."""
        if self._is_lost:
            self._tell_of_loss()
        with self._changed:
            if self._is_lost or self._end is not None:
                self._dropped += 1
                return
            if len(self._waiting) >= QUEUE:
                self._waiting.popleft()
                self._dropped += 1
            self._waiting.append((rpc, message))
            if self._thread is None:
                self._start()
            self._changed.notify_all()

    def drop(self) -> None:
        """Counts a batch that has no sums to send, because there was no memory for them."""
        with self._changed:
            self._dropped += 1

    def close(self) -> None:
        """Sends the rest, for FLUSH_SECONDS at most, and drops what is left. Idempotent."""
        with self._changed:
            if self._end is None:
                self._end = time.monotonic() + FLUSH_SECONDS
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(FLUSH_SECONDS)
        with self._changed:
            self._drop_all()
            if thread is not None and thread.is_alive() and not self._has_given_up:
                # Its attempt ends by itself, without a report.
                self._has_given_up = True
                self._dropped += 1

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="counterweight-publish", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads, or the interpreter ends
            self._drop_all()
            return
        self._thread = thread

    def _drop_all(self) -> None:
        self._dropped += len(self._waiting)
        self._waiting.clear()

    def _run(self) -> None:
        while (message := self._next()) is not None:
            failure = self._send(message)
            waits = failure is not None and _may_help(failure)
            self._tell(failure, waits)
            if failure is not None:
                self._keep_or_drop(message, waits)
        for channel in self._access.close():
            channel.close()

    def _next(self) -> tuple[str, bytes] | None:
        """The oldest message, once there is one; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._end is not None)
            if not self._waiting or self._seconds_left() <= 0:
                return None
            return self._waiting.popleft()

    def _seconds_left(self) -> float:
        if self._end is None:
            return ATTEMPT_SECONDS
        return min(ATTEMPT_SECONDS, self._end - time.monotonic())

    def _send(self, message: tuple[str, bytes]) -> CounterweightError | None:
        """Sends one; returns why it failed."""
        import grpc

        try:
            with self._calling:
                call = self._access.channel(grpc).unary_unary(SERVICE + message[0])
                answer = call(
                    message[1], timeout=self._seconds_left(), metadata=self._access.metadata()
                )
            if message[0] == "Publish" and answer:
                self._tell_warnings(answer)
        except grpc.RpcError as error:
            return from_rpc_error(error)
        except Exception as error:  # the thread must live; a closed channel is a ValueError
            return CounterweightError(str(error))
        return None

    def _keep_or_drop(self, message: tuple[str, bytes], waits: bool) -> None:
        with self._changed:
            if self._has_given_up:
                return
            if not waits or len(self._waiting) >= QUEUE:
                self._dropped += 1
            else:
                self._waiting.appendleft(message)
            if waits and not self._changed.wait_for(
                lambda: self._end is not None, timeout=PAUSE_SECONDS
            ):
                return
            if waits:
                # A server that is away while the client closes is not waited for.
                self._drop_all()

    def _tell(self, failure: CounterweightError | None, waits: bool) -> None:
        """Warns once while the server is away, and once of each kind of refusal."""
        if failure is None:
            if self._is_away:
                self._is_away = False
                _log.warning("%s are sent to %s again", self._what, self._target)
        elif waits and not self._is_away:
            self._is_away = True
            _log.warning(
                "%s cannot be sent to %s now; the last %d wait, others are dropped: %s",
                self._what,
                self._target,
                QUEUE,
                failure,
            )
        elif not waits and self._end is None and failure.code not in self._warned:
            self._warned.add(failure.code)
            _log.warning("%s refuses %s, which are dropped: %s", self._target, self._what, failure)

    def _tell_warnings(self, answer: bytes) -> None:
        """Logs each sentence of the server about a batch once."""
        from counterweight_rl._gen.counterweight.v1 import correction_service_pb2 as pb

        for warning in pb.PublishResponse.FromString(answer).warnings:
            if warning not in self._sentences and len(self._sentences) < _MOST_SENTENCES:
                self._sentences.add(warning)
                _log.warning("%s warns: %s", self._target, warning)

    def _tell_of_loss(self) -> None:
        if self._warned:
            return
        self._warned.add(StatusCode.FAILED_PRECONDITION)
        _log.warning(
            "%s are not sent to %s: this process was forked after its parent had begun to send, "
            "which gRPC does not survive; make the client after the fork",
            self._what,
            self._target,
        )


def _may_help(failure: CounterweightError) -> bool:
    """Whether the same message may be taken later."""
    if isinstance(failure, OverloadedError):
        return failure.retry_after is not None
    return isinstance(failure, (DeadlineError, UnavailableError))


def _pause_all() -> None:
    end = time.monotonic() + FORK_SECONDS
    for publisher in list(_publishers):
        if publisher.pause(end - time.monotonic()):
            _paused.append(publisher)


def _resume_all() -> None:
    while _paused:
        _paused.pop().resume()


def _begin_in_child() -> None:
    _paused.clear()
    for publisher in list(_publishers):
        publisher.begin_in_child()


def _close_all() -> None:
    for publisher in list(_publishers):
        publisher.close()


_publishers: weakref.WeakSet[Publisher] = weakref.WeakSet()
_abandoned: list[Any] = []
_paused: list[Publisher] = []  # while a fork is made
os.register_at_fork(before=_pause_all, after_in_parent=_resume_all, after_in_child=_begin_in_child)
atexit.register(_close_all)
