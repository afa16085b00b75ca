"""Retried calls, their pauses and their requests."""

from __future__ import annotations

import asyncio
import math
import threading
from typing import Any

import grpc
import pytest
from fake_server import FakeServer, failing, in_turn, retry_info
from sample import BATCH, MASK, OLD, ROLLOUT, answer, correct

import counterweight_rl as cw
from counterweight_rl import aio
from counterweight_rl.transport.retry import Attempts, Retry

OVERLOADED = cw.OverloadedError("full", retry_after=0.25)
FULL = failing(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", retry_info(1))
DRAINING = failing(grpc.StatusCode.UNAVAILABLE, "draining", retry_info(1))


class Clock:
    """Seconds that pass when a test advances them."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def begin(policy: cw.RetryPolicy, timeout: float | None = None) -> tuple[Attempts, Clock]:
    clock = Clock()
    return Retry(policy).begin(timeout, clock), clock


def test_pauses_double_from_what_the_server_asked_for() -> None:
    attempts, _ = begin(cw.RetryPolicy(attempts=5, seed=1))
    pauses = [attempts.pause(OVERLOADED) for _ in range(5)]
    assert pauses[4] is None
    for pause, least in zip(pauses, (0.25, 0.5, 1.0, 2.0), strict=False):
        assert pause is not None
        assert least <= pause <= 1.25 * least


def test_pauses_stop_growing_and_attempts_need_not_end() -> None:
    attempts, _ = begin(cw.RetryPolicy(attempts=None, max_pause=1.0, seed=1))
    # 2**1024 is no float any more.
    pauses = [attempts.pause(OVERLOADED) for _ in range(1100)]
    assert all(pause is not None and 1.0 <= pause <= 1.25 for pause in pauses[2:])


def test_no_pause_is_shorter_than_the_server_asked_for() -> None:
    attempts, _ = begin(cw.RetryPolicy(attempts=9, seed=1))
    pauses = [attempts.pause(cw.OverloadedError("", retry_after=7.0)) for _ in range(8)]
    assert all(pause is not None and 7.0 <= pause <= 8.75 for pause in pauses)


def test_no_pause_is_longer_than_a_thread_can_wait() -> None:
    attempts, _ = begin(cw.RetryPolicy())
    pause = attempts.pause(cw.OverloadedError("", retry_after=1e15))
    assert pause == threading.TIMEOUT_MAX


def test_the_random_part_follows_from_the_seed() -> None:
    def pauses(seed: int) -> list[float | None]:
        attempts, _ = begin(cw.RetryPolicy(seed=seed))
        return [attempts.pause(OVERLOADED) for _ in range(4)]

    assert pauses(3) == pauses(3)
    assert pauses(3) != pauses(4)


@pytest.mark.parametrize(
    "error",
    [
        cw.OverloadedError("beyond a limit"),
        cw.OverloadedError("told not to", retry_after=math.inf),
        cw.UnavailableError("told not to", retry_after=math.inf),
        cw.InvalidRequestError("wrong"),
        cw.DeadlineError("late", code=grpc.StatusCode.DEADLINE_EXCEEDED),
        cw.CounterweightError("broken", code=grpc.StatusCode.INTERNAL),
        cw.CounterweightError("closed", code=grpc.StatusCode.CANCELLED),
    ],
    ids=lambda error: f"{error.code.name} {error}",
)
def test_what_is_not_tried_again(error: cw.CounterweightError) -> None:
    attempts, _ = begin(cw.RetryPolicy())
    assert attempts.pause(error) is None


def test_nobody_there_is_tried_again() -> None:
    attempts, _ = begin(cw.RetryPolicy(seed=1))
    pause = attempts.pause(cw.UnavailableError("nobody listens"))
    assert pause is not None
    assert 0.1 <= pause <= 0.125


def test_a_cancellation_that_is_not_ours_is_tried_again_once() -> None:
    """gRPC's servers end calls so that arrive while they shut down."""
    ended = cw.UnavailableError("in a shutdown", code=grpc.StatusCode.CANCELLED)
    attempts, _ = begin(cw.RetryPolicy(seed=1))
    pause = attempts.pause(ended)
    assert pause is not None
    assert 0.1 <= pause <= 0.125
    # Meanwhile the port may have no server.
    assert attempts.pause(cw.UnavailableError("nobody listens")) is not None
    assert attempts.pause(ended) is None
    for policy in (cw.RetryPolicy(attempts=1), cw.RetryPolicy(max_seconds=0)):
        assert begin(policy)[0].pause(ended) is None
    admitted, _ = begin(cw.RetryPolicy())
    admitted.admitted()
    assert admitted.pause(ended) is None


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "aio"])
def test_an_ending_server_costs_no_call(server: FakeServer, asynchronous: bool) -> None:
    cancelled = failing(grpc.StatusCode.CANCELLED, "CANCELLED")
    server.handler = in_turn(cancelled, answer, cancelled)

    async def use() -> None:
        async with aio.Client(server.target, timeout=30) as client:
            await client.correct(**BATCH)
            with pytest.raises(cw.UnavailableError) as caught:
                await client.correct(**BATCH)
            assert caught.value.code is grpc.StatusCode.CANCELLED

    if asynchronous:
        asyncio.run(use())
    else:
        with cw.Client(server.target, timeout=30) as client:
            correct(client)
            with pytest.raises(cw.UnavailableError) as caught:
                correct(client)
            assert caught.value.code is grpc.StatusCode.CANCELLED
    ids = [request.request_id for request in server.requests]
    assert ids[0] == ids[1] != ids[2] == ids[3]
    assert len(ids) == 4


@pytest.mark.parametrize(
    ("policy", "timeout"),
    [
        (cw.RetryPolicy(seed=1), 10.0),
        (cw.RetryPolicy(seed=1, max_seconds=10.0), None),
        (cw.RetryPolicy(seed=1, max_seconds=60.0), 10.0),
        (cw.RetryPolicy(seed=1, max_seconds=10.0), 60.0),
    ],
    ids=["timeout", "max_seconds", "timeout is first", "max_seconds is first"],
)
def test_a_pause_beyond_the_end_is_not_begun(policy: cw.RetryPolicy, timeout: float | None) -> None:
    attempts, clock = begin(policy, timeout)
    assert attempts.remaining() == timeout
    clock.now += 9.5
    assert attempts.remaining() == (None if timeout is None else timeout - 9.5)
    assert attempts.pause(OVERLOADED) is not None
    clock.now += 0.25
    assert attempts.pause(OVERLOADED) is None


@pytest.mark.parametrize(
    "error",
    [
        cw.UnavailableError("the connection broke"),
        cw.UnavailableError("in a shutdown", code=grpc.StatusCode.CANCELLED),
    ],
    ids=lambda error: error.code.name,
)
def test_what_the_server_left_in_the_midst_is_tried_again_if_wished(
    error: cw.CounterweightError,
) -> None:
    attempts, _ = begin(cw.RetryPolicy(interrupted=True, seed=1))
    attempts.admitted()
    pause = attempts.pause(error)
    assert pause is not None
    assert 0.1 <= pause <= 0.125
    # The client's own close() is not an interruption.
    closed = cw.CounterweightError("closed", code=grpc.StatusCode.CANCELLED)
    assert attempts.pause(closed) is None


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"max_seconds": -1.0}, {"max_pause": 0.0}])
def test_policies_out_of_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be (at least|above)"):
        cw.RetryPolicy(**wrong)
    with pytest.raises(TypeError, match="retry must be a RetryPolicy or False, not True"):
        cw.Client("localhost:1", retry=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("refusal", [FULL, DRAINING], ids=["full", "draining"])
def test_a_refused_request_is_sent_again_as_it_was(
    server: FakeServer, client: cw.Client, refusal: Any
) -> None:
    server.handler = in_turn(refusal, refusal, answer)
    result = correct(client)
    first, *others = server.requests
    assert len(others) == 2
    assert all(other == first for other in others)
    # Both attempts have one request_id, so that the server counts the batch once.
    assert result.request_id == first.request_id != ""


def test_attempts_end(server: FakeServer) -> None:
    server.handler = FULL
    policy = cw.RetryPolicy(attempts=3, seed=1)
    with cw.Client(server.target, retry=policy) as client:
        with pytest.raises(cw.OverloadedError) as caught:
            correct(client)
        assert len(server.requests) == 3
        assert caught.value.retry_after == 0.001
        assert caught.value.request_id == server.requests[0].request_id


def test_a_pause_beyond_the_timeout_is_the_servers_error_at_once(
    server: FakeServer, client: cw.Client
) -> None:
    server.handler = failing(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", retry_info(3_600_000))
    with pytest.raises(cw.OverloadedError) as caught:
        correct(client)
    assert caught.value.retry_after == 3600
    assert len(server.requests) == 1


def test_retry_false_is_one_attempt(server: FakeServer) -> None:
    server.handler = in_turn(FULL, answer)
    with (
        cw.Client(server.target, retry=False) as client,
        pytest.raises(cw.OverloadedError),
    ):
        correct(client)
    assert len(server.requests) == 1


def test_attempts_share_the_timeout(server: FakeServer, client: cw.Client) -> None:
    remaining: list[float] = []

    def note(request: Any, context: Any) -> Any:
        remaining.append(context.time_remaining())
        return answer(request, context)

    refuse = failing(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", retry_info(500))
    server.handler = in_turn(refuse, note)
    correct(client, timeout=10)
    # 10 s less a pause of at least 0.5 s, plus the wire's rounding of deadlines.
    assert remaining[0] < 9.75


def test_closing_ends_a_pause(server: FakeServer) -> None:
    refused = threading.Event()

    def refuse(request: Any, context: Any) -> Any:
        refused.set()
        return failing(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", retry_info(3_600_000))(
            request, context
        )

    server.handler = refuse
    client = cw.Client(server.target, timeout=None)
    future = client.submit(
        rollout_log_probs=ROLLOUT, old_log_probs=OLD, response_mask=MASK, method="token_tis"
    )
    assert refused.wait(150)
    client.close()
    # Either was first: the refusal, or the end of the call.
    error = future.exception()
    assert isinstance(error, cw.CounterweightError)
    assert len(server.requests) == 1
