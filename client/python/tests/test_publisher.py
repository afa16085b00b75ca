"""The queue between a local client and the server that it publishes to."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from fake_server import FakeServer, failing, retry_info

from counterweight_rl._gen.counterweight.v1 import correction_service_pb2 as pb
from counterweight_rl.transport import publisher
from counterweight_rl.transport.publisher import QUEUE, Publisher, open_publisher

Open = Callable[..., Publisher]


def message(i: int) -> bytes:
    return pb.PublishRequest(request_id=str(i)).SerializeToString()


def ids(server: FakeServer) -> list[int]:
    return [int(each.request_id) for each in server.published]


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def opened(server: FakeServer) -> Iterator[Open]:
    made: list[Publisher] = []

    def make(target: str = server.target, **access: Any) -> Publisher:
        settings = {"tls": None, "token": None, "token_file": None, "allow_insecure_token": False}
        sender = open_publisher(target, **{**settings, **access})
        assert sender is not None
        made.append(sender)
        return sender

    yield make
    for each in made:
        each.close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "PAUSE_SECONDS", 0.02)


class CountedPauses(threading.Condition):
    """A publisher's condition that notes its pauses and skips them."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        if timeout is None:
            return super().wait_for(predicate)
        self.seconds.append(timeout)
        return predicate()


class Gate:
    """Holds every message until it is opened."""

    def __init__(self) -> None:
        self.arrived = threading.Semaphore(0)
        self.is_open = threading.Event()

    def __call__(self, request: Any, context: Any) -> Any:
        self.arrived.release()
        self.is_open.wait(30)
        return pb.PublishResponse()


def test_closing_sends_the_rest_in_order(
    server: FakeServer, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher, "FLUSH_SECONDS", 60.0)  # for a busy machine
    sender = opened(token="secret")
    for i in range(100):
        sender.put(message(i))
    sender.close()
    assert ids(server) == list(range(100))
    assert sender.dropped == 0
    sender.put(message(100))
    assert sender.dropped == 1  # too late
    sender.close()


def test_the_oldest_give_way(server: FakeServer, opened: Open) -> None:
    server.publish = gate = Gate()
    sender = opened()
    sender.put(message(0))
    assert gate.arrived.acquire(timeout=150)
    for i in range(1, QUEUE + 4):
        sender.put(message(i))
    assert sender.dropped == 3
    gate.is_open.set()
    wait_until(lambda: len(server.published) == QUEUE + 1)
    assert ids(server) == [0, *range(4, QUEUE + 4)]
    assert sender.dropped == 3


def test_a_message_that_failed_finds_no_room(server: FakeServer, opened: Open) -> None:
    """The queue filled up while it was on its way."""
    gate = Gate()

    def publish(request: Any, context: Any) -> Any:
        gate(request, context)
        return failing(grpc.StatusCode.UNAVAILABLE, "away")(request, context)

    server.publish = publish
    sender = opened()
    sender.put(message(0))
    assert gate.arrived.acquire(timeout=150)
    for i in range(1, QUEUE + 1):
        sender.put(message(i))
    assert sender.dropped == 0
    gate.is_open.set()
    wait_until(lambda: sender.dropped == 1)
    assert len(sender._waiting) <= QUEUE
    server.publish = lambda *_: pb.PublishResponse()
    wait_until(lambda: len(server.published) >= QUEUE + 1)
    sender.close()
    assert ids(server)[-QUEUE:] == list(range(1, QUEUE + 1))
    assert sender.dropped == 1


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("code", "details"),
    [
        (grpc.StatusCode.UNAVAILABLE, ()),
        (grpc.StatusCode.CANCELLED, ()),
        (grpc.StatusCode.DEADLINE_EXCEEDED, ()),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, (retry_info(250),)),
    ],
)
def test_what_may_pass_is_sent_again(
    server: FakeServer,
    opened: Open,
    caplog: pytest.LogCaptureFixture,
    code: grpc.StatusCode,
    details: tuple[Any, ...],
) -> None:
    answers = [failing(code, "not now", *details)] * 3
    server.publish = lambda *call: answers.pop()(*call) if answers else pb.PublishResponse()
    sender = opened()
    for i in range(3):
        sender.put(message(i))
    wait_until(lambda: len(server.published) == 6)
    sender.close()
    assert ids(server) == [0, 0, 0, 0, 1, 2]
    assert sender.dropped == 0
    told = [each.message for each in caplog.records]
    assert len(told) == 2, told
    assert "cannot be sent" in told[0]
    assert "again" in told[1]


@pytest.mark.usefixtures("quick")
def test_each_absence_is_told(
    server: FakeServer, opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    away = failing(grpc.StatusCode.UNAVAILABLE, "away")
    taken = lambda *_: pb.PublishResponse()  # noqa: E731
    answers = [away, away, taken, taken, away, taken]
    server.publish = lambda *call: answers.pop(0)(*call)
    sender = opened()
    for i in range(3):
        sender.put(message(i))
    wait_until(lambda: not answers)
    sender.close()
    assert ids(server) == [0, 0, 0, 1, 2, 2]
    assert sender.dropped == 0
    assert ["cannot" in each.message for each in caplog.records] == [True, False] * 2
    assert server.target in caplog.records[0].message
    assert "256" in caplog.records[0].message


def test_each_kind_of_refusal_is_told_once(
    server: FakeServer, opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    codes = [
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.UNAUTHENTICATED,
    ]
    server.publish = lambda *call: failing(codes.pop(0), "no")(*call)
    sender = opened()
    for i in range(4):
        sender.put(message(i))
    wait_until(lambda: sender.dropped == 4)
    assert len(caplog.records) == 2


def test_an_attempt_has_a_deadline(
    server: FakeServer, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that freezes is found out; at the end the rest has what is left of the time."""
    seconds: list[float] = []

    def publish(_: Any, context: Any) -> Any:
        seconds.append(context.time_remaining())
        return pb.PublishResponse()

    server.publish = publish
    sender = opened()
    sender.put(message(0))
    wait_until(lambda: len(seconds) == 1)
    assert seconds[0] < publisher.ATTEMPT_SECONDS + 0.1  # gRPC rounds up
    # Else a busy machine ends the attempt at the gate, and the next begins before the close.
    monkeypatch.setattr(publisher, "ATTEMPT_SECONDS", 600.0)
    server.publish = gate = Gate()
    sender.put(message(1))
    assert gate.arrived.acquire(timeout=150)
    sender.put(message(2))
    monkeypatch.setattr(publisher, "FLUSH_SECONDS", 3.0)
    closing = threading.Thread(target=sender.close)
    closing.start()
    wait_until(lambda: sender._end is not None)
    server.publish = publish
    gate.is_open.set()
    closing.join(60)
    # A busy machine may have no time for the rest, which then is dropped. gRPC sends a deadline
    # rounded up.
    assert all(each < 3.1 for each in seconds[1:])
    assert len(seconds) - 1 + sender.dropped >= 1


def test_a_token_file_that_vanishes_leaves_its_token(
    server: FakeServer, opened: Open, tmp_path: Path
) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("first")
    tokens: list[Any] = []

    def publish(_: Any, context: Any) -> Any:
        tokens.append(dict(context.invocation_metadata())["authorization"])
        return pb.PublishResponse()

    server.publish = publish
    sender = opened(token_file=token_file)
    for content in ("", None, "two words"):
        if content is None:
            token_file.unlink()
        else:
            token_file.write_text(content)
        sender.put(message(len(tokens)))
        count = len(tokens) + 1
        wait_until(lambda: len(tokens) >= count)  # noqa: B023
    assert tokens == ["Bearer first"] * 3
    assert sender.dropped == 0


def test_its_thread_holds_no_process(opened: Open) -> None:
    sender = opened("localhost:1")
    sender.put(message(0))
    thread = sender._thread
    assert thread is not None
    assert thread.daemon
    sender.put(message(1))
    assert sender._thread is thread, "one is enough"
    sender.close()
    thread.join(60)
    assert not thread.is_alive()


def test_pauses_do_not_grow(server: FakeServer, opened: Open) -> None:
    """However long the server was away, its return is noticed within two seconds."""
    answers = [failing(grpc.StatusCode.UNAVAILABLE, "away")] * 12
    server.publish = lambda *call: answers.pop()(*call) if answers else pb.PublishResponse()
    sender = opened()
    sender._changed = pauses = CountedPauses()
    sender.put(message(0))
    wait_until(lambda: len(server.published) == 13)
    assert pauses.seconds == [publisher.PAUSE_SECONDS] * 12
    # A channel takes a second at most to connect again.
    assert publisher.PAUSE_SECONDS <= 1.0


@pytest.mark.usefixtures("quick")
def test_each_attempt_has_the_token_of_its_time(
    server: FakeServer, opened: Open, tmp_path: Path
) -> None:
    """After a rotation the server takes no more of the old one."""
    token_file = tmp_path / "token"
    token_file.write_text("first")
    tokens: list[str] = []
    names: set[str] = set()

    def publish(request: Any, context: Any) -> Any:
        metadata = dict(context.invocation_metadata())
        tokens.append(metadata["authorization"])
        names.add(metadata["counterweight-client"])
        if len(tokens) == 2:
            token_file.write_text("the-second")
            return failing(grpc.StatusCode.UNAVAILABLE, "away")(request, context)
        return pb.PublishResponse()

    server.publish = publish
    sender = opened(token_file=token_file)
    for i in range(2):
        sender.put(message(i))
    wait_until(lambda: len(tokens) == 3)
    assert ids(server) == [0, 1, 1]
    assert tokens == ["Bearer first", "Bearer first", "Bearer the-second"]
    assert len(names) == 1, "the server's queue is fair between names"


@pytest.mark.parametrize(
    "code",
    [
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    ],
)
def test_what_is_refused_is_dropped(
    server: FakeServer, opened: Open, caplog: pytest.LogCaptureFixture, code: grpc.StatusCode
) -> None:
    server.publish = failing(code, "no")
    sender = opened()
    for i in range(5):
        sender.put(message(i))
    wait_until(lambda: sender.dropped == 5)
    assert ids(server) == list(range(5))
    assert [each.message.endswith("dropped: no") for each in caplog.records] == [True]
    server.publish = lambda *_: pb.PublishResponse()
    sender.put(message(5))
    sender.close()
    assert sender.dropped == 5


def test_closing_beside_an_absent_server_drops_at_once(opened: Open) -> None:
    sender = opened("localhost:1")
    for i in range(7):
        sender.put(message(i))
    sender.close()
    assert sender.dropped == 7


def test_closing_has_a_deadline(
    server: FakeServer, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher, "FLUSH_SECONDS", 0.1)
    server.publish = gate = Gate()
    sender = opened()
    for i in range(7):
        sender.put(message(i))
    assert gate.arrived.acquire(timeout=150)
    sender.close()  # the gate would hold it for half a minute
    assert len(server.published) == 1
    assert sender.dropped == 7
    sender.close()
    assert sender.dropped == 7, "each counts once"
    gate.is_open.set()
    assert sender._thread is not None
    sender._thread.join(60)
    assert sender.dropped == 7


def test_no_thread_before_the_first_batch(opened: Open) -> None:
    before = threading.active_count()
    sender = opened()
    assert threading.active_count() == before
    sender.close()
    assert sender.dropped == 0


def test_a_machine_without_threads(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: Any) -> None:
        raise RuntimeError("can't start new thread")

    sender = opened()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        sender.put(message(0))
    assert sender.dropped == 1


def test_a_child_begins_anew(opened: Open) -> None:
    sender = opened("localhost:1")
    sender.put(message(0))
    sender.drop()
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        was = sender.dropped
        sender.close()
        os._exit(10 * was + sender.dropped)  # the parent's message is not the child's
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    sender.close()
    assert sender.dropped == 2


def test_a_grandchild_of_a_process_that_published_loses_its_sums_too(opened: Open) -> None:
    """Each fork begins anew; gRPC, once used, works in no descendant."""
    sender = opened("localhost:1")
    sender.put(message(0))
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        grandchild = os.fork()
        if grandchild != 0:
            os._exit(os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1]))
        signal.alarm(30)
        sender.put(message(1))
        os._exit(sender.dropped)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
