"""Batches in the background."""

from __future__ import annotations

import threading
from typing import Any

import grpc
import numpy as np
import pytest
from fake_server import FakeServer, Held, failing
from sample import MASK, OLD, ROLLOUT, SHAPE, WEIGHTS, Request, Response, answer, sent

import counterweight_rl as cw
from counterweight_rl._gen.counterweight.v1 import tensor_pb2

BATCH: dict[str, Any] = {
    "rollout_log_probs": ROLLOUT,
    "old_log_probs": OLD,
    "response_mask": MASK,
    "method": "token_tis",
}


def test_the_future_has_the_result(server: FakeServer, client: cw.Client) -> None:
    server.handler = answer
    result = client.submit(**BATCH, request_id="mine").result(30)
    np.testing.assert_array_equal(result.weights, WEIGHTS)
    assert result.request_id == "mine"
    assert server.requests[0].request_id == "mine"


def test_arrays_may_be_reused_at_once(server: FakeServer, client: cw.Client) -> None:
    def echo(request: Request, context: Any) -> Response:
        data = sent(request, tensor_pb2.TENSOR_ROLE_OLD_LOG_PROBS).data
        return Response(
            tensors=[tensor_pb2.Tensor(role="TENSOR_ROLE_WEIGHTS", dtype="D_TYPE_F32", data=data)]
        )

    server.handler = echo
    reused = np.zeros(SHAPE, np.float32)
    futures = []
    for number in range(20):
        reused.fill(number)
        futures.append(client.submit(**{**BATCH, "old_log_probs": reused}))
    for number, future in enumerate(futures):
        assert (future.result(30).weights == number).all()


def test_no_more_than_max_in_flight(server: FakeServer) -> None:
    held = Held()
    server.handler = held
    submitted = threading.Event()
    futures = []
    with cw.Client(server.target, max_in_flight=2) as client:
        futures = [client.submit(**BATCH) for _ in range(2)]
        assert held.arrived.acquire(timeout=150)
        assert held.arrived.acquire(timeout=150)

        def submit_one_more() -> None:
            futures.append(client.submit(**BATCH))
            submitted.set()

        thread = threading.Thread(target=submit_one_more)
        thread.start()
        # It does not return, and the server receives nothing, before another batch is done.
        assert not submitted.is_set()
        assert not held.arrived.acquire(blocking=False)
        held.release()
        assert submitted.wait(150)
        thread.join()
        for future in futures:
            assert future.result(30).request_id
    assert len(server.requests) == 3


def test_errors_are_in_the_future(server: FakeServer, client: cw.Client) -> None:
    server.handler = failing(grpc.StatusCode.FAILED_PRECONDITION, "no such feature")
    # More errors than slots: each error frees its slot.
    for _ in range(5):
        with pytest.raises(TypeError, match="old_log_probs must be"):
            client.submit(**{**BATCH, "old_log_probs": 3}).result(30)
        with pytest.raises(cw.InvalidRequestError, match="response_mask"):
            client.submit(**{**BATCH, "response_mask": MASK[0]}).result(30)
        with pytest.raises(cw.CounterweightError, match="no such feature"):
            client.submit(**BATCH).result(30)


def test_closing_ends_what_is_in_flight(server: FakeServer) -> None:
    held = Held()
    server.handler = held
    client = cw.Client(server.target)
    futures = [client.submit(**BATCH) for _ in range(3)]
    for _ in futures:
        assert held.arrived.acquire(timeout=150)
    client.close()
    for future in futures:
        assert future.done()
        error = future.exception()
        assert isinstance(error, cw.CounterweightError)
        assert error.code is grpc.StatusCode.CANCELLED
    for _ in futures:
        assert held.ended.acquire(timeout=150)


def test_a_closed_client_says_so(server: FakeServer) -> None:
    client = cw.Client(server.target)
    client.close()
    for call in (lambda: client.submit(**BATCH).result(30), lambda: client.correct(**BATCH)):
        with pytest.raises(cw.CounterweightError, match="the client is closed") as caught:
            call()
        assert caught.value.code is grpc.StatusCode.CANCELLED
        assert caught.value.request_id


def test_max_in_flight_is_positive() -> None:
    with pytest.raises(ValueError, match="max_in_flight must be at least 1; got 0"):
        cw.Client("localhost:1", max_in_flight=0)
