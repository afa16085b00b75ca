"""``on_unavailable`` beside other failures, other calls, and the end of its client."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import grpc
import numpy as np
import pytest
from fake_memory import Sharing
from fake_server import FakeServer, Held, failing, in_turn, retry_info
from sample import ALL, BATCH, MASK, OLD, answer, correct
from test_fallback import AWAY, FULL, QUICK, FakeLibrary, library

import counterweight_rl as cw
import counterweight_rl.aio
from counterweight_rl.shared_memory.region import SUPPORTED
from counterweight_rl.status import StatusCode

__all__ = ["library"]

CHOICES = pytest.mark.parametrize("choice", ["local", "identity"])
LOSS = cw.CorrectionConfig(
    policy_loss=cw.PolicyLoss(
        surrogate=cw.Surrogate.PPO_CLIP,
        aggregation=cw.LossAggregation.TOKEN_MEAN,
        denominator=cw.LossDenominator.ORIGINAL,
        clip_low=0.2,
        clip_high=0.2,
    )
)
pytestmark = pytest.mark.usefixtures("library")


def opened(server: FakeServer, choice: Any, **changes: Any) -> cw.Client:
    settings = {"timeout": 30, "retry": QUICK, "on_unavailable": choice}
    return cw.Client(server.target, **{**settings, **changes})


@CHOICES
@pytest.mark.parametrize(
    "handler",
    [
        FULL,
        *(
            failing(code, "no")
            for code in (
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                grpc.StatusCode.DEADLINE_EXCEEDED,
                grpc.StatusCode.INVALID_ARGUMENT,
                grpc.StatusCode.INTERNAL,
                grpc.StatusCode.UNAUTHENTICATED,
                grpc.StatusCode.PERMISSION_DENIED,
                grpc.StatusCode.UNIMPLEMENTED,
            )
        ),
    ],
)
def test_only_an_absence_is_answered_here(
    server: FakeServer, caplog: pytest.LogCaptureFixture, choice: Any, handler: Any
) -> None:
    """A server that answers is there: its refusals are the caller's."""
    server.handler = handler
    with opened(server, choice) as client:
        for _ in range(2):
            with pytest.raises(cw.CounterweightError) as failure:
                correct(client, request_id="mine")
            assert not isinstance(failure.value, cw.UnavailableError)
            assert failure.value.request_id == "mine"
        assert client.fallbacks == {choice: 0}
        assert not caplog.records
        # Nor does it count as away.
        server.handler = AWAY
        before = len(server.requests)
        correct(client)
        assert len(server.requests) == before + 3


@CHOICES
def test_an_absence_that_ends_in_time_is_none(
    server: FakeServer, caplog: pytest.LogCaptureFixture, choice: Any
) -> None:
    server.handler = in_turn(AWAY, AWAY, answer)
    with opened(server, choice) as client:
        assert correct(client).backend == "cpu"
        assert client.fallbacks == {choice: 0}
    assert not caplog.records


@CHOICES
def test_other_calls_show_the_return_too(
    server: FakeServer, caplog: pytest.LogCaptureFixture, choice: Any
) -> None:
    server.handler = AWAY
    with opened(server, choice) as client:
        correct(client)
        # While it is away, one attempt is enough for any call.
        server.inform = AWAY
        before = server.infos
        with pytest.raises(cw.UnavailableError):
            client.server_info()
        assert server.infos == before + 1
        server.inform = lambda *_: server.info
        client.server_info()
        assert caplog.records[-1].message == "the server is back"
        client.list_methods()
        assert len(caplog.records) == 2
        before = len(server.requests)
        correct(client)
        assert len(server.requests) == before + 3
        assert client.fallbacks == {choice: 2}


def test_without_a_second_answer_nothing_is_told(
    server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(server, "raise") as client:
        for _ in range(2):
            server.handler = AWAY
            before = len(server.requests)
            with pytest.raises(cw.UnavailableError):
                correct(client)
            assert len(server.requests) == before + 3
            server.handler = answer
            assert correct(client).backend == "cpu"
        assert client.fallbacks == {}
    assert not caplog.records


@CHOICES
def test_calls_at_once_tell_of_one_absence(
    server: FakeServer, caplog: pytest.LogCaptureFixture, choice: Any
) -> None:
    together = threading.Barrier(3)

    def away(request: Any, context: Any) -> Any:
        together.wait(60)
        return AWAY(request, context)

    server.handler = away
    with opened(server, choice, retry=False) as client:
        futures = [client.submit(**BATCH) for _ in range(3)]
        assert {future.result().backend for future in futures} <= {"identity", "local:cpu"}
        assert client.fallbacks == {choice: 3}
    assert len(caplog.records) == 1


@CHOICES
@pytest.mark.parametrize("waits", ["for a pause", "for the answer"])
def test_a_client_that_is_closed_answers_nothing(
    server: FakeServer, choice: Any, waits: str
) -> None:
    held = Held()
    long_pause = failing(grpc.StatusCode.UNAVAILABLE, "away", retry_info(60_000))
    arrived = threading.Event()

    def pausing(request: Any, context: Any) -> Any:
        arrived.set()
        return long_pause(request, context)

    server.handler = pausing if waits == "for a pause" else held
    client = opened(server, choice, timeout=None)
    future = client.submit(**BATCH)
    assert arrived.wait(60) if waits == "for a pause" else held.arrived.acquire(timeout=60)
    client.close()
    with pytest.raises(cw.CounterweightError) as failure:
        future.result(60)
    assert failure.value.code is StatusCode.CANCELLED
    assert client.fallbacks == {choice: 0}
    held.release()
    with pytest.raises(cw.CounterweightError, match="closed"):
        correct(client)
    assert client.fallbacks == {choice: 0}


@CHOICES
def test_an_asyncio_client_that_is_closed_answers_nothing(server: FakeServer, choice: Any) -> None:
    server.handler = failing(grpc.StatusCode.UNAVAILABLE, "away", retry_info(60_000))

    async def use() -> None:
        client = counterweight_rl.aio.Client(
            server.target, timeout=None, retry=QUICK, on_unavailable=choice
        )
        call = asyncio.ensure_future(client.correct(**BATCH))
        while not server.requests:
            await asyncio.sleep(0.01)
        await client.close()
        for pending in (lambda: call, lambda: client.correct(**BATCH)):
            with pytest.raises(cw.CounterweightError) as failure:
                await pending()
            assert failure.value.code is StatusCode.CANCELLED
        assert client.fallbacks == {choice: 0}

    asyncio.run(asyncio.wait_for(use(), 60))


def test_the_library_ends_with_its_client(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[FakeLibrary] = []
    monkeypatch.setattr(FakeLibrary, "end_calls", lambda self: ended.append(self))

    async def use() -> None:
        async with counterweight_rl.aio.Client(server.target, on_unavailable="local"):
            assert len(ended) == 1

    with opened(server, "local"):
        assert not ended
    assert len(ended) == 1
    asyncio.run(asyncio.wait_for(use(), 60))
    assert len(ended) == 2
    assert ended[0] is not ended[1]


@CHOICES
def test_progress_reaches_its_end(server: FakeServer, choice: Any) -> None:
    server.handler = AWAY
    told: list[tuple[int, int]] = []

    async def use() -> None:
        async with counterweight_rl.aio.Client(
            server.target, timeout=30, retry=False, on_unavailable=choice
        ) as client:
            await client.correct(**BATCH, progress=lambda *part: told.append(part))

    with opened(server, choice, retry=False) as client:
        correct(client, progress=lambda *part: told.append(part))
    assert told[0][0] == 0
    assert told[-1][0] == told[-1][1] > 0
    told.clear()
    asyncio.run(asyncio.wait_for(use(), 60))
    assert told[-1][0] == told[-1][1] > 0


@CHOICES
def test_an_answer_and_an_error_have_the_calls_id(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, choice: Any
) -> None:
    server.handler = in_turn(answer, AWAY)
    with opened(server, choice, retry=False) as client:
        correct(client)
        assert correct(client, request_id="mine").request_id == "mine"
        monkeypatch.setattr(FakeLibrary, "numerics_version", 8)
        loss: dict[str, Any] = {"outputs": ("loss", "gradient")} if choice == "identity" else {}
        if choice == "identity":
            loss |= {"current_log_probs": BATCH["old_log_probs"]}
            loss |= {"advantages": BATCH["old_log_probs"], "method": "ppo_clip"}
        with pytest.raises(cw.UnavailableError) as failure:
            correct(client, request_id="other", **loss)
        assert failure.value.request_id == "other"
        assert client.fallbacks == {choice: 1}


def test_a_failure_of_the_library_is_no_answer(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise cw.DeadlineError("too slow", code=StatusCode.DEADLINE_EXCEEDED)

    server.handler = AWAY
    with opened(server, "local", retry=False) as client:
        correct(client)
        with monkeypatch.context() as patch:
            patch.setattr(FakeLibrary, "run", fail)
            with pytest.raises(cw.DeadlineError, match="too slow"):
                correct(client)
        assert client.fallbacks == {"local": 1}
        correct(client)
        assert client.fallbacks == {"local": 2}


def test_identity_has_what_is_asked_for_and_corrects_nothing(server: FakeServer) -> None:
    server.handler = AWAY
    with opened(server, "identity", retry=False) as client:
        result = correct(client, outputs=ALL)
        assert result.weights.dtype == np.float32
        np.testing.assert_array_equal(result.weights, MASK)
        np.testing.assert_array_equal(result.keep_mask, MASK)
        assert result.token_reasons.dtype == result.sequence_reasons.dtype == np.uint16
        np.testing.assert_array_equal(result.token_reasons, np.zeros_like(MASK))
        np.testing.assert_array_equal(result.sequence_reasons, [0, 0])
        assert (result.rules, result.metrics, result.non_finite_tokens) == ((), {}, 0)
        assert (result.numerics_version, result.loss, result.gradient) == (0, None, None)
        only = correct(client, outputs=("weights",))
        assert only.keep_mask is None
        assert only.token_reasons is only.sequence_reasons is None
        np.testing.assert_array_equal(only.weights, MASK)
        # The caller's mask is no part of the answer.
        mask = MASK.copy()
        result = correct(client, response_mask=mask)
        result.keep_mask[:] = 0
        np.testing.assert_array_equal(mask, MASK)
        out = {"weights": np.full(MASK.shape, 9, np.float32)}
        written = correct(client, out=out)
        assert written.weights is out["weights"]
        np.testing.assert_array_equal(out["weights"], MASK)


@pytest.mark.parametrize(
    "changes",
    [
        {"outputs": ("loss",), "method": "ppo_clip"},
        {"outputs": ("gradient",), "method": "ppo_clip"},
        {"outputs": ("weights", "gradient"), "method": "token_tis_ppo_clip"},
        {"method": LOSS},
        {"method": "ppo_clip"},
        {"method": cw.Preset("token_tis_ppo_clip", upper=3.0)},
        {"method": cw.Dialect("verl", {"rollout_is": "token"})},
    ],
)
def test_identity_never_stands_for_a_loss(server: FakeServer, changes: dict[str, Any]) -> None:
    server.handler = AWAY
    of_loss = {"current_log_probs": BATCH["old_log_probs"], "advantages": np.ones_like(OLD)}
    with opened(server, "identity", retry=False) as client:
        with pytest.raises(cw.UnavailableError):
            correct(client, **of_loss, **changes)
        assert client.fallbacks == {"identity": 0}


@pytest.mark.parametrize("method", ["opsm", "token_tis", cw.CorrectionConfig()])
def test_identity_stands_for_a_method_without_a_loss(server: FakeServer, method: Any) -> None:
    server.handler = AWAY
    of_loss = {"current_log_probs": BATCH["old_log_probs"], "advantages": np.ones_like(OLD)}
    with opened(server, "identity", retry=False) as client:
        assert correct(client, **of_loss, method=method).backend == "identity"
        only = correct(client, **of_loss, method="ppo_clip", outputs=("keep_mask",))
        np.testing.assert_array_equal(only.keep_mask, MASK)


def test_counts_are_the_clients_own(server: FakeServer) -> None:
    server.handler = AWAY
    with opened(server, "identity") as one, opened(server, "identity") as two:
        correct(one)
        counts = one.fallbacks
        counts["identity"] = 9
        assert (one.fallbacks, two.fallbacks) == ({"identity": 1}, {"identity": 0})
        # Each has to find out by itself.
        before = len(server.requests)
        correct(two)
        assert len(server.requests) == before + 3


@CHOICES
def test_asyncio_clients_judge_alike(
    server: FakeServer, caplog: pytest.LogCaptureFixture, choice: Any
) -> None:
    async def use() -> None:
        async with counterweight_rl.aio.Client(
            server.target, timeout=30, retry=QUICK, on_unavailable=choice
        ) as client:
            for handler in (FULL, failing(grpc.StatusCode.INTERNAL, "no")):
                server.handler = handler
                with pytest.raises(cw.CounterweightError) as failure:
                    await client.correct(**BATCH, request_id="mine")
                assert not isinstance(failure.value, cw.UnavailableError)
                assert failure.value.request_id == "mine"
            server.handler = in_turn(AWAY, answer)
            assert (await client.correct(**BATCH)).backend == "cpu"
            assert client.fallbacks == {choice: 0}
            assert not caplog.records
            server.handler = server.inform = AWAY
            await client.correct(**BATCH)
            before = server.infos
            with pytest.raises(cw.UnavailableError):
                await client.server_info()
            assert server.infos == before + 1
            server.inform = lambda *_: server.info
            await client.server_info()
            assert [each.message[:18] for each in caplog.records] == [
                "the server is away",
                "the server is back",
            ]
            assert client.fallbacks == {choice: 1}

    asyncio.run(asyncio.wait_for(use(), 60))


@pytest.mark.skipif(not SUPPORTED, reason="memory is shared on Linux only")
def test_shared_memory_that_is_not_possible_now_is_an_absence(
    sharing: Sharing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller who chose shared memory has no other transport while its socket is mute."""
    server, memory = sharing
    monkeypatch.setattr("counterweight_rl.shared_memory.registry._PATIENCE_SECONDS", 0.05)
    memory.silent = True
    with opened(server, "identity", transport="shared_memory") as client:
        assert correct(client).backend == "identity"
        assert client.fallbacks == {"identity": 1}

    async def use() -> None:
        async with counterweight_rl.aio.Client(
            server.target,
            timeout=30,
            retry=QUICK,
            on_unavailable="identity",
            transport="shared_memory",
        ) as client:
            assert (await client.correct(**BATCH)).backend == "identity"
            assert client.fallbacks == {"identity": 1}

    asyncio.run(asyncio.wait_for(use(), 60))
    assert not server.requests
