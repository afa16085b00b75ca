"""Calls under way in an engine, and its end: the last one to leave ends it."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import pytest
from sample import BATCH

import counterweight_rl as cw
from counterweight_rl import calls
from counterweight_rl.local import connection_sync
from counterweight_rl.local.connection_sync import LocalCalls
from counterweight_rl.local.placing import STOP
from counterweight_rl.local.target import LocalTarget
from counterweight_rl.status import StatusCode

KNOWN: Any = object()


class FakePrepared:
    """Plans of calls: knows KNOWN once it has learnt it."""

    def __init__(self) -> None:
        self.learnt: list[float | None] = []
        self.stops: list[int] = []
        self.inside: Callable[[], Any] = lambda: "answer"

    def known(self, call: Any) -> Any:
        return KNOWN

    def has(self, known: Any) -> bool:
        return bool(self.learnt)

    def learn(self, known: Any, call: Any, correction: Any, timeout: float | None) -> None:
        self.learnt.append(timeout)

    def run(self, known: Any, call: Any, stop: int) -> Any:
        self.stops.append(stop)
        return self.inside()


class FakeEngine:
    """Holds each call while the test wishes."""

    def __init__(self, *_: Any) -> None:
        self.prepared = FakePrepared()
        self.closes = 0
        self.inside: Callable[[], Any] = lambda: "answer"

    def run(self, call: Any, timeout: float | None, stop: STOP) -> Any:
        return self.inside()

    def close(self) -> None:
        self.closes += 1


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> LocalCalls:
    monkeypatch.setattr(connection_sync, "Engine", FakeEngine)
    return LocalCalls(LocalTarget())


def engine_of(local: LocalCalls) -> Any:
    return local._engine


def call(request_id: str = "mine") -> Any:
    return calls.correct(**BATCH, request_id=request_id)


class Inside:
    """A call that stays until it is released."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.goes_on = threading.Event()

    def __call__(self) -> Any:
        self.began.set()
        assert self.goes_on.wait(60)
        return "answer"


def test_an_idle_engine_ends_at_once_and_once(local: LocalCalls) -> None:
    assert local.run(call(), None, STOP()) == "answer"
    assert engine_of(local).closes == 0
    for _ in range(3):
        local.end_calls()
    assert engine_of(local).closes == 1
    with pytest.raises(cw.CounterweightError, match="closed") as failure:
        local.run(call(), None, STOP())
    assert failure.value.code is StatusCode.CANCELLED
    assert failure.value.request_id == "mine"
    assert engine_of(local).closes == 1


@pytest.mark.parametrize("way", ["run", "correct"])
def test_the_last_of_several_calls_ends_it(local: LocalCalls, way: str) -> None:
    """All of them receive the stop request, and none loses its engine."""
    engine = engine_of(local)
    engine.prepared.learnt.append(None)
    stops = [STOP(), STOP()]
    insides = [Inside(), Inside()]
    threads = []
    for stop, inside in zip(stops, insides, strict=True):
        engine.inside = engine.prepared.inside = inside
        if way == "run":
            target, arguments = local.run, (call(), None, stop)
        else:
            target, arguments = local.correct, (KNOWN, BATCH, stop)  # type: ignore[assignment]
        threads.append(threading.Thread(target=target, args=arguments))
        threads[-1].start()
        assert inside.began.wait(60)
    assert [stop.value for stop in stops] == [0, 0]
    local.end_calls()
    assert [stop.value for stop in stops] == [1, 1]
    assert engine.closes == 0
    insides[0].goes_on.set()
    threads[0].join(60)
    assert engine.closes == 0
    local.end_calls()
    assert engine.closes == 0
    insides[1].goes_on.set()
    threads[1].join(60)
    assert engine.closes == 1


@pytest.mark.parametrize("way", ["run", "correct"])
def test_a_call_that_failed_is_no_longer_under_way(local: LocalCalls, way: str) -> None:
    def fail() -> Any:
        raise cw.DeadlineError("too slow", code=StatusCode.DEADLINE_EXCEEDED)

    engine = engine_of(local)
    engine.prepared.learnt.append(None)
    engine.inside = engine.prepared.inside = fail
    stop = STOP()
    ways: dict[str, Callable[[], Any]] = {
        "run": lambda: local.run(call(), None, stop),
        "correct": lambda: local.correct(KNOWN, BATCH, stop),
    }
    with pytest.raises(cw.DeadlineError):
        ways[way]()
    local.end_calls()
    assert engine.closes == 1
    assert stop.value == 0


def test_a_plan_is_used_only_if_there_is_one(local: LocalCalls) -> None:
    prepared = engine_of(local).prepared
    stop = STOP()
    assert local.known(BATCH) is KNOWN
    assert not local.has(KNOWN)
    assert local.correct(KNOWN, BATCH, stop) is None
    assert local.correct(None, BATCH, stop) is None
    assert prepared.stops == []
    local.learn(KNOWN, BATCH, call(), 5.0)
    local.learn(None, BATCH, call(), 6.0)
    assert local.has(KNOWN)
    assert local.correct(KNOWN, BATCH, stop) == "answer"
    assert prepared.stops == [ctypes.addressof(stop)]
    assert prepared.learnt == [5.0]


def test_a_plan_has_the_timeout_of_its_call(local: LocalCalls) -> None:
    prepared = engine_of(local).prepared
    local.learn(KNOWN, BATCH, calls.correct(**BATCH, timeout=2.0), 5.0)
    local.learn(KNOWN, BATCH, call(), None)
    assert prepared.learnt == [2.0, None]


def test_a_closed_client_learns_nothing(local: LocalCalls) -> None:
    local.end_calls()
    prepared = engine_of(local).prepared
    assert local.known(BATCH) is None
    local.learn(KNOWN, BATCH, call(), 5.0)
    assert prepared.learnt == []
    prepared.learnt.append(None)
    with pytest.raises(cw.CounterweightError, match="closed"):
        local.correct(KNOWN, {**BATCH, "request_id": "mine"}, STOP())
    assert prepared.stops == []
    assert engine_of(local).closes == 1


def test_without_plans_each_call_goes_the_whole_way(local: LocalCalls) -> None:
    engine_of(local).prepared = None
    assert local.known(BATCH) is None
    assert not local.has(KNOWN)
    assert local.correct(KNOWN, BATCH, STOP()) is None
    local.learn(KNOWN, BATCH, call(), 5.0)
    assert local.run(call(), None, STOP()) == "answer"
