"""Status codes and details become typed errors."""

from __future__ import annotations

import math
import pickle
import threading
from typing import Any

import grpc
import numpy as np
import pytest
from fake_server import FakeServer, failing, retry_info
from google.rpc import error_details_pb2

import counterweight_rl as cw
from counterweight_rl._gen.counterweight.v1 import correction_service_pb2 as service_pb2

LOG_PROBS = np.full((1, 2), -1.0, np.float32)
MASK = np.ones((1, 2), np.uint8)


def correct(client: cw.Client, **kwargs: Any) -> cw.Result[Any]:
    return client.correct(
        rollout_log_probs=LOG_PROBS,
        old_log_probs=LOG_PROBS,
        response_mask=MASK,
        method="token_tis",
        **kwargs,
    )


def test_invalid_argument_lists_violations(server: FakeServer, client: cw.Client) -> None:
    bad = error_details_pb2.BadRequest()
    bad.field_violations.add(field="method.preset.name", description="is unknown; want token_tis")
    bad.field_violations.add(field="tensors[0].data", description="has 7 bytes, must have 8 µ")
    server.handler = failing(
        grpc.StatusCode.INVALID_ARGUMENT,
        "2 invalid fields",
        error_details_pb2.DebugInfo(detail="something else"),
        bad,
    )
    with pytest.raises(cw.InvalidRequestError) as caught:
        correct(client, request_id="mine")
    assert caught.value.violations == [
        cw.Violation("method", "is unknown; want token_tis", "method.preset.name"),
        cw.Violation("rollout_log_probs", "has 7 bytes, must have 8 µ", "tensors[0].data"),
    ]
    assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.request_id == "mine"
    assert str(caught.value).splitlines() == [
        "2 invalid fields",
        "  method: is unknown; want token_tis",
        "  rollout_log_probs: has 7 bytes, must have 8 µ",
    ]


def test_an_invalid_request_is_a_value_error() -> None:
    error = cw.InvalidRequestError("bad", violations=[cw.Violation("a", "is wrong")])
    assert isinstance(error, cw.CounterweightError)
    assert isinstance(error, ValueError)
    assert pickle.loads(pickle.dumps(error)).violations == error.violations


@pytest.mark.parametrize(
    ("fields", "message", "lines"),
    [
        (["labels.run"], "labels.run: is wrong", ["run: is wrong"]),
        (
            ["method.config.rules[0].µ", "group_ids"],
            "18 violations: method.config.rules[0].??: is wrong; group_ids: is wr...",
            ["18 violations:", "  method.rules[0].µ: is wrong", "  group_ids: is wrong"],
        ),
        # The text of another server is unchanged.
        (["seed"], "no: the seed", ["no: the seed", "  seed: is wrong"]),
        ([""], "is wrong", ["is wrong", "  : is wrong"]),
    ],
)
def test_violations_are_told_once(
    server: FakeServer, client: cw.Client, fields: list[str], message: str, lines: list[str]
) -> None:
    bad = error_details_pb2.BadRequest()
    for field in fields:
        bad.field_violations.add(field=field, description="is wrong")
    server.handler = failing(grpc.StatusCode.INVALID_ARGUMENT, message, bad)
    with pytest.raises(cw.InvalidRequestError) as caught:
        correct(client)
    assert str(caught.value).splitlines() == lines
    assert [violation.path for violation in caught.value.violations] == fields


@pytest.mark.parametrize(
    "code", [grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.DEADLINE_EXCEEDED]
)
def test_refusals_name_the_transport(server: FakeServer, code: grpc.StatusCode) -> None:
    server.handler = failing(code, "send the batch by CorrectStream, or in smaller ones")
    with (
        cw.Client(server.target, retry=False) as client,
        pytest.raises(cw.CounterweightError, match='by transport="stream", or in smaller'),
    ):
        correct(client)


def test_violations_already_in_the_message_are_not_repeated() -> None:
    error = cw.InvalidRequestError("bad: a: is wrong", violations=[cw.Violation("a", "is wrong")])
    assert str(error) == "bad: a: is wrong"


@pytest.mark.parametrize(
    ("code", "cls"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, cw.OverloadedError),
        (grpc.StatusCode.UNAVAILABLE, cw.UnavailableError),
    ],
)
def test_retry_hint(server: FakeServer, code: grpc.StatusCode, cls: type[Any]) -> None:
    with cw.Client(server.target, retry=False) as client:
        server.handler = failing(code, "later", retry_info(1250))
        with pytest.raises(cls) as caught:
            correct(client)
        assert caught.value.retry_after == 1.25
        server.handler = failing(code, "never")
        with pytest.raises(cls, match="never") as caught:
            correct(client)
        assert caught.value.retry_after is None
        assert caught.value.code is code


@pytest.mark.parametrize(
    ("pushback", "seconds"),
    [("1250", 1.25), ("0", 0), ("-1", math.inf), ("soon", math.inf)],
)
def test_retry_pushback(server: FakeServer, pushback: str, seconds: float) -> None:
    """gRPC's trailer: anything but a number >= 0 forbids retries."""
    server.handler = failing(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "full",
        metadata=(("grpc-retry-pushback-ms", pushback),),
    )
    with (
        cw.Client(server.target, retry=False) as client,
        pytest.raises(cw.OverloadedError) as caught,
    ):
        correct(client)
    assert caught.value.retry_after == seconds


def test_other_codes_keep_their_code(server: FakeServer, client: cw.Client) -> None:
    server.handler = failing(grpc.StatusCode.FAILED_PRECONDITION, "no such feature")
    with pytest.raises(cw.CounterweightError, match="no such feature") as caught:
        correct(client)
    assert type(caught.value) is cw.CounterweightError
    assert caught.value.code is grpc.StatusCode.FAILED_PRECONDITION
    assert caught.value.request_id == server.requests[-1].request_id


@pytest.mark.parametrize("details", [b"\xff\xff", b"\x1a\x03\x0a\x09a", b"\x1a\x02\xff\xff"])
def test_unreadable_details_do_not_hide_the_error(
    server: FakeServer, client: cw.Client, details: bytes
) -> None:
    server.handler = failing(
        grpc.StatusCode.INVALID_ARGUMENT, "bad", metadata=(("grpc-status-details-bin", details),)
    )
    with pytest.raises(cw.InvalidRequestError, match="bad") as caught:
        correct(client)
    assert caught.value.violations == []


def test_deadline(server: FakeServer, client: cw.Client) -> None:
    def wait_for_caller(request: Any, context: Any) -> Any:
        gone = threading.Event()
        context.add_callback(gone.set)
        gone.wait(30)
        return None

    server.handler = wait_for_caller
    with pytest.raises(cw.DeadlineError) as caught:
        correct(client, timeout=0.05)
    assert caught.value.code is grpc.StatusCode.DEADLINE_EXCEEDED


def test_cancelled_by_a_stopping_server_is_unavailable(
    server: FakeServer, client: cw.Client
) -> None:
    server.handler = failing(grpc.StatusCode.CANCELLED, "")
    with pytest.raises(cw.UnavailableError) as caught:
        correct(client)
    assert caught.value.code is grpc.StatusCode.CANCELLED


def test_cancelled_by_closing_is_not(server: FakeServer) -> None:
    arrived, gone = threading.Event(), threading.Event()

    def wait_for_caller(request: Any, context: Any) -> Any:
        context.add_callback(gone.set)
        arrived.set()
        gone.wait(30)

    server.handler = wait_for_caller
    client = cw.Client(server.target)
    raised: list[Exception] = []

    def call() -> None:
        with pytest.raises(cw.CounterweightError) as caught:
            correct(client)
        raised.append(caught.value)

    thread = threading.Thread(target=call)
    thread.start()
    assert arrived.wait(150)
    client.close()
    thread.join()
    (error,) = raised
    assert type(error) is cw.CounterweightError
    assert error.code is grpc.StatusCode.CANCELLED


def test_nobody_listens(tmp_path: Any) -> None:
    with (
        cw.Client(f"unix:{tmp_path}/nobody.sock") as client,
        pytest.raises(cw.UnavailableError),
    ):
        client.server_info()


@pytest.mark.parametrize(
    ("role", "dtype", "data"),
    [
        ("WEIGHTS", "F32", b"123"),
        ("WEIGHTS", "F32", b"1234"),
        ("WEIGHTS", "U8", b"12"),
        ("KEEP_MASK", "F32", b"12345678"),
        ("ADVANTAGES", "F32", b"12345678"),
    ],
    ids=["bytes", "shape", "weights' dtype", "mask's dtype", "an input"],
)
def test_unreadable_answer_is_an_error(
    server: FakeServer, client: cw.Client, role: str, dtype: str, data: bytes
) -> None:
    def wrong(request: Any, context: Any) -> Any:
        response = service_pb2.CorrectResponse()
        response.tensors.add(role=f"TENSOR_ROLE_{role}", dtype=f"D_TYPE_{dtype}", data=data)
        return response

    server.handler = wrong
    with pytest.raises(cw.CounterweightError, match="cannot read the server's answer") as caught:
        correct(client)
    assert caught.value.code is grpc.StatusCode.INTERNAL
    assert caught.value.request_id


@pytest.mark.parametrize(
    "error",
    [
        cw.InvalidRequestError("a", violations=[cw.Violation("f", "d", "p")], request_id="r"),
        cw.OverloadedError("b", retry_after=1.5),
        cw.UnavailableError("c", retry_after=2.5, request_id="r"),
        cw.DeadlineError("d", code=grpc.StatusCode.DEADLINE_EXCEEDED),
        cw.CounterweightError("e", code=grpc.StatusCode.INTERNAL),
    ],
)
def test_errors_survive_pickling(error: cw.CounterweightError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert copy.__dict__ == error.__dict__
    assert isinstance(copy, cw.CounterweightError)
