"""Reports of steps by invented ranks; tests/e2e/test_hook_reports.py has real ones."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from counterweight_rl import Receipt
from counterweight_rl.compat import _ranks
from counterweight_rl.compat._step_books import Books
from counterweight_rl.compat._step_reports import StepReports

MASK = np.ones((2, 3), np.uint8)


class Publisher:
    """Keeps what it is given."""

    def __init__(self, *, takes_turns: bool = False) -> None:
        self.takes_turns = takes_turns
        self.dropped = 0
        self.messages: list[Any] = []

    def report(self, message: Any, rpc: str) -> None:
        assert rpc == "ReportStep"
        self.messages.append(message)


def reports_to(publisher: Publisher) -> StepReports:
    return StepReports("run", publisher)  # type: ignore[arg-type]


def weigh(books: Books) -> None:
    receipt = Receipt(5, 4, 3, 2, 0.5)
    books.enter(receipt, receipt)


@pytest.fixture
def megatron(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Megatron's state of rank 0 of 4 data-parallel ranks."""
    state = SimpleNamespace(tensor=0, context=0, is_initialized=True)
    module = SimpleNamespace(
        model_parallel_is_initialized=lambda: state.is_initialized,
        get_tensor_model_parallel_rank=lambda: state.tensor,
        get_context_parallel_rank=lambda: state.context,
        get_data_parallel_world_size=lambda: 4,
    )
    monkeypatch.setitem(sys.modules, "megatron.core.parallel_state", module)  # type: ignore[arg-type]
    return state


def test_ranks_of_the_same_rows_report_once(megatron: SimpleNamespace) -> None:
    assert _ranks.reports_of_a_step() == 4
    megatron.tensor = 1
    assert _ranks.reports_of_a_step() == 0
    megatron.tensor, megatron.context = 0, 1
    assert _ranks.reports_of_a_step() == 0
    publisher = Publisher()
    reports = reports_to(publisher)
    for rank in (1, 0):
        megatron.context = rank
        reports.enter(weigh)
        reports.end_step(8)
    (message,) = publisher.messages
    assert message["num_reports"] == 4
    assert message["tokens"] == 6  # the other rank's books are closed with its step
    assert message["issued"] == message["applied"]
    assert message["labels"] == {"run": "run", "step": 8}
    megatron.is_initialized = False
    assert _ranks.reports_of_a_step() == 1


def test_parts_that_no_server_sees_together_are_steps(megatron: SimpleNamespace) -> None:
    publisher = Publisher(takes_turns=True)
    reports = reports_to(publisher)
    reports.enter(weigh)
    reports.end_step(0)
    assert publisher.messages[0]["num_reports"] == 1


def test_numbers_of_steps() -> None:
    publisher = Publisher()
    reports = reports_to(publisher)
    for number, own in ((None, None), (None, None), (7, None), (7, 41), (8, None)):
        reports.enter(weigh)
        if own is not None:
            reports.set_number(own)
        reports.end_step(number)
        reports.end_step(99)  # without batches
    steps = [message["labels"]["step"] for message in publisher.messages]
    assert steps == [0, 1, 7, 41, 8]


def test_what_has_no_weights_shows_after_what_had() -> None:
    publisher = Publisher()
    reports = reports_to(publisher)
    uncorrected = lambda books: books.enter_uncorrected(MASK, None)  # noqa: E731
    reports.enter(uncorrected)
    reports.end_step(0)
    reports.enter(lambda books: books.enter_uncorrected(MASK, "late"))
    reports.end_step(1)
    reports.enter(uncorrected)
    reports.enter(lambda books: books.enter_uncorrected(None, None))
    reports.end_step(2)
    assert [message["labels"]["step"] for message in publisher.messages] == [1, 2]
    assert [message["tokens"] for message in publisher.messages] == [6, 6]
    assert publisher.messages[0]["skipped_batches"] == {"late": 1}
    assert not any("issued" in message for message in publisher.messages)


def test_an_answer_of_an_absent_server_is_no_correction() -> None:
    publisher = Publisher()
    reports = reports_to(publisher)
    answer: Any = SimpleNamespace(
        weights=MASK.astype(np.float32), keep_mask=MASK, backend="identity"
    )
    reports.enter(lambda books: books.enter_answer(answer, MASK, None))
    reports.end_step(0)
    assert publisher.messages[0]["skipped_batches"] == {"server_away": 1}


def test_the_loss_may_use_other_weights_than_the_answers() -> None:
    weights = np.full((2, 3), 1.5, np.float32)
    answer: Any = SimpleNamespace(weights=weights, keep_mask=MASK, backend="cpu")
    books = Books()
    books.enter_answer(answer, MASK, None, weights, MASK)
    assert books.issued == books.applied
    books.enter_answer(answer, MASK, None, weights + 1, MASK)
    assert books.issued is not None
    assert books.applied is not None
    assert books.applied.weight_excess - books.issued.weight_excess == 6
    books.enter_answer(answer, MASK, None, weights, np.eye(2, 3, dtype=np.uint8))
    assert (books.issued.tokens, books.applied.tokens) == (18, 14)
    assert books.num_batches == 3


def test_a_failure_spoils_its_step_only(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = Publisher()
    reports = reports_to(publisher)
    for _ in range(2):
        reports.enter(weigh)
        reports.enter(lambda books: books.missing)  # type: ignore[attr-defined]
        reports.end_step(0)
    assert (publisher.messages, reports.dropped) == ([], 2)
    assert caplog.text.count("a step of run run is not reported: AttributeError") == 1
    reports.enter(weigh)
    monkeypatch.setattr(publisher, "report", None)
    reports.end_step(1)
    assert reports.dropped == 3


def test_a_forked_child_forgets_the_books(monkeypatch: pytest.MonkeyPatch) -> None:
    publisher = Publisher()
    reports = reports_to(publisher)
    reports.enter(weigh)
    reports._lock.acquire()  # by another thread of the parent
    monkeypatch.setattr(os, "getpid", lambda: -1)
    reports.end_step(0)
    assert publisher.messages == []
    reports.enter(weigh)
    reports.end_step(0)
    assert publisher.messages[0]["tokens"] == 6
