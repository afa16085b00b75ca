"""Streams: the messages up, the permitted messages down, and the end of a call."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from fake_server import (
    FakeServer,
    Held,
    admission,
    chunk,
    failing,
    in_turn,
    retry_info,
)
from sample import (
    BATCH,
    MASK,
    OLD,
    ROLLOUT,
    SHAPE,
    WEIGHTS,
    Correct,
    Request,
    Response,
    answer,
    sent,
)

import counterweight_rl as cw
import counterweight_rl.aio
from counterweight_rl._gen.counterweight.v1 import correction_service_pb2 as service_pb2
from counterweight_rl._gen.counterweight.v1 import tensor_pb2
from counterweight_rl.arrays.batch import read_batch
from counterweight_rl.transport import frames
from counterweight_rl.transport.streaming import Upload

CHUNK_BYTES = [1, 3, 4097, 2 << 20, 16 << 20]
FULL = failing(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", retry_info(1))


def large(num_positions: int = 3000) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    shape = (2, num_positions // 2)
    return {
        "rollout_log_probs": generator.standard_normal(shape).astype(np.float32),
        "old_log_probs": generator.standard_normal(shape).astype(np.float16),
        "response_mask": generator.integers(0, 2, shape).astype(bool),
    }


def echo(request: Request, context: Any) -> Response:
    """Returns the rollout log-probs as weights, and the mask."""
    response = Response(request_id=request.request_id)
    for role, dtype, data in (
        ("WEIGHTS", "D_TYPE_F32", sent(request, tensor_pb2.TENSOR_ROLE_ROLLOUT_LOG_PROBS).data),
        ("KEEP_MASK", "D_TYPE_U8", sent(request, tensor_pb2.TENSOR_ROLE_RESPONSE_MASK).data),
    ):
        response.tensors.add(role=f"TENSOR_ROLE_{role}", dtype=dtype, data=data)
    return response


@pytest.mark.parametrize("down", [1, 4097, 2 << 20])
@pytest.mark.parametrize("chunk_bytes", CHUNK_BYTES)
def test_chunks_of_any_size(
    streaming: FakeServer, correct: Correct, chunk_bytes: int, down: int
) -> None:
    streaming.handler, streaming.down_chunk_bytes = echo, down
    batch = large(min(3_000_000, 100 * min(chunk_bytes, down)))
    result = correct({"chunk_bytes": chunk_bytes}, **batch)
    np.testing.assert_array_equal(result.weights, batch["rollout_log_probs"])
    np.testing.assert_array_equal(result.keep_mask, batch["response_mask"])
    assert result.keep_mask.dtype == bool
    assert result.weights.flags.writeable
    assert max(size for _, _, size in streaming.chunks) <= chunk_bytes
    (request,) = streaming.requests
    for role, name in (
        (tensor_pb2.TENSOR_ROLE_OLD_LOG_PROBS, "old_log_probs"),
        (tensor_pb2.TENSOR_ROLE_RESPONSE_MASK, "response_mask"),
    ):
        assert sent(request, role).data == batch[name].tobytes()


def test_the_mask_comes_first_and_the_others_side_by_side(streaming: FakeServer) -> None:
    batch = read_batch(
        {"rollout_log_probs": large()["rollout_log_probs"], "advantages": np.ones(2, np.float16)},
        large()["response_mask"],
        None,
        None,
    )
    frames_ = [
        service_pb2.CorrectStreamRequest.FromString(m)
        for m, _ in Upload(batch.tensors, 4000).messages()
    ]
    order = [(f.chunk.tensor, f.chunk.offset, len(f.chunk.data)) for f in frames_]
    assert order == [
        (2, 0, 3000),
        (0, 0, 4000),
        (1, 0, 2000),
        (0, 4000, 4000),
        (1, 2000, 2000),
        (0, 8000, 4000),
        (1, 4000, 2000),
    ]
    # The reported bytes.
    assert [sent for _, sent in Upload(batch.tensors, 4000).messages()][-1] == 3000 * 7


@pytest.mark.parametrize("offset", [0, 127, 128, 1 << 40])
@pytest.mark.parametrize("size", [0, 1, 127, 128, 70000])
def test_frames_are_those_of_the_contract(offset: int, size: int) -> None:
    data = bytes(i % 251 for i in range(size))
    up = service_pb2.CorrectStreamRequest.FromString(frames.chunk(3, offset, memoryview(data)))
    assert (up.chunk.tensor, up.chunk.offset, up.chunk.data) == (3, offset, data)
    kind, payload = frames.read(chunk(300, offset, data).SerializeToString())
    assert kind == frames.CHUNK
    tensor, begin, received = frames.read_chunk(payload)
    assert (tensor, begin, bytes(received)) == (300, offset, data)
    assert frames.read(b"")[0] == 0
    assert frames.read(b"\x7a\x01a")[0] == 0  # field 15, of a newer contract


def test_out(streaming: FakeServer, correct: Correct) -> None:
    streaming.handler = answer
    out = {
        "weights": np.full(SHAPE, np.nan, np.float32),
        "keep_mask": np.ones(SHAPE, np.int64),
        "token_reasons": np.full(SHAPE, 7, np.uint16),
    }
    outputs = ("weights", "keep_mask", "token_reasons")
    result = correct(response_mask=MASK.astype(np.int64), outputs=outputs, out=out)
    for name in outputs:
        assert getattr(result, name) is out[name]
    np.testing.assert_array_equal(out["weights"], WEIGHTS)
    np.testing.assert_array_equal(out["keep_mask"], MASK)
    assert result.timing.compute_seconds == 0.5


def test_an_output_that_the_method_does_not_have(streaming: FakeServer, correct: Correct) -> None:
    streaming.handler = answer
    out = {"weights": np.full(SHAPE, 3, np.float32), "gradient": np.full(SHAPE, 3, np.float32)}
    with pytest.raises(cw.InvalidRequestError, match=r"out\['gradient'\]: the method has no such"):
        correct(out=out)
    assert (out["weights"] == 3).all()


def test_empty_batches(streaming: FakeServer, correct: Correct) -> None:
    streaming.handler = echo
    empty = np.zeros((0, 3), np.float32)
    result = correct(rollout_log_probs=empty, old_log_probs=empty, response_mask=empty)
    assert result.weights.shape == result.keep_mask.shape == (0, 3)
    assert streaming.chunks == []


def test_a_refused_stream_sends_no_payload(streaming: FakeServer, correct: Correct) -> None:
    came: list[Any] = []

    def refuse(requests: Iterator[Any], context: Any) -> Iterator[Any]:
        came.append(next(requests).WhichOneof("frame"))
        # The client waits for this; a client that sent chunks would have reached the assertion.
        timer = threading.Timer(0.05, context.cancel)
        timer.start()
        came.extend(message.WhichOneof("frame") for message in requests)
        yield admission()

    streaming.stream = refuse
    with pytest.raises(cw.CounterweightError):
        correct({"retry": False})
    assert came == ["header"]


@pytest.mark.parametrize("refusal", ["full", "draining"])
def test_tried_again_before_admission(
    streaming: FakeServer, correct: Correct, refusal: str
) -> None:
    draining = failing(grpc.StatusCode.UNAVAILABLE, "draining", retry_info(1))
    refuse = FULL if refusal == "full" else draining
    streaming.handler = answer
    streaming.admit = in_turn(refuse, refuse, lambda *_: None)  # type: ignore[arg-type,return-value]
    result = correct({"retry": cw.RetryPolicy(seed=1)})
    assert [header.request_id for header in streaming.headers] == [result.request_id] * 3
    assert len(streaming.requests) == 1


@pytest.mark.parametrize("code", [grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE])
def test_not_tried_again_after_admission(
    streaming: FakeServer, correct: Correct, code: grpc.StatusCode
) -> None:
    streaming.handler = failing(code, "late", retry_info(1))
    with pytest.raises(cw.CounterweightError, match="late") as caught:
        correct({"retry": cw.RetryPolicy(seed=1)})
    assert caught.value.code is code
    assert len(streaming.headers) == 1


def test_tried_again_after_admission_if_wished(streaming: FakeServer, correct: Correct) -> None:
    gone = failing(grpc.StatusCode.UNAVAILABLE, "late", retry_info(1))
    streaming.handler = in_turn(gone, gone, answer)
    result = correct({"retry": cw.RetryPolicy(seed=1, interrupted=True)})
    assert [request.request_id for request in streaming.requests] == [result.request_id] * 3
    assert all(request == streaming.requests[0] for request in streaming.requests)


def test_progress(streaming: FakeServer, correct: Correct) -> None:
    streaming.handler = echo
    told: list[tuple[int, int]] = []
    batch = large()
    total = sum(array.nbytes for array in batch.values())
    correct({"chunk_bytes": 1000}, progress=lambda *sent: told.append(sent), **batch)
    assert told[0] == (0, total)
    assert told[-1] == (total, total)
    assert [sent for sent, _ in told] == sorted({sent for sent, _ in told})
    assert len(told) > total / 1000


@pytest.mark.parametrize("at", [0, 1000, 21000])
def test_progress_that_raises_ends_the_call(
    streaming: FakeServer, correct: Correct, at: int
) -> None:
    streaming.handler = echo

    def progress(num_bytes: int, total: int) -> None:
        if num_bytes >= at:
            raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        correct({"chunk_bytes": 1000}, progress=progress, **large())


def test_progress_of_other_transports(server: FakeServer, client: cw.Client) -> None:
    server.handler = answer
    told: list[tuple[int, int]] = []
    client.correct(**BATCH, progress=lambda *sent: told.append(sent))
    total = ROLLOUT.nbytes + OLD.nbytes + MASK.nbytes
    assert told == [(0, total), (total, total)]
    with pytest.raises(TypeError, match="progress must be callable, not int"):
        client.correct(**BATCH, progress=3)  # type: ignore[arg-type]


def test_deadline(streaming: FakeServer, correct: Correct) -> None:
    streaming.handler = Held()
    with pytest.raises(cw.DeadlineError):
        correct(timeout=0.2)


def test_a_server_that_does_not_read(streaming: FakeServer, correct: Correct) -> None:
    """The deadline ends a blocked sender."""
    over = threading.Event()

    def hold(requests: Iterator[Any], context: Any) -> Iterator[Any]:
        context.add_callback(over.set)
        yield admission()
        over.wait(500)

    streaming.stream = hold
    with pytest.raises(cw.DeadlineError):
        correct(timeout=1, **large(20_000_000))


def test_an_answer_that_cannot_be_read_ends_the_stream(streaming: FakeServer) -> None:
    """The stream ends at once, although the error keeps the call's objects alive and the client
    stays open."""
    over = threading.Event()

    def babble(requests: Iterator[Any], context: Any) -> Iterator[Any]:
        context.add_callback(over.set)
        yield admission()
        yield admission()
        over.wait(500)

    streaming.stream = babble
    # The timeout would end it too, but only long after the test gave up.
    with cw.Client(streaming.target, transport="stream", timeout=600) as client:
        with pytest.raises(cw.CounterweightError, match="a second admission") as caught:
            client.correct(**BATCH)
        assert over.wait(150)
        assert caught.value.__traceback__ is not None


@pytest.mark.parametrize("stage", ["admission", "chunks", "answer"])
def test_closing_ends_a_stream(streaming: FakeServer, stage: str) -> None:
    reached, over = threading.Event(), threading.Event()

    def hold(requests: Iterator[Any], context: Any) -> Iterator[Any]:
        context.add_callback(over.set)
        next(requests)
        if stage != "admission":
            yield admission()
        if stage == "answer":
            for _ in requests:
                pass
        reached.set()
        over.wait(500)

    streaming.stream = hold
    client = cw.Client(streaming.target, transport="stream", timeout=None)
    future = client.submit(**BATCH | large(20_000_000 if stage == "chunks" else 3000))
    assert reached.wait(150)
    client.close()
    error = future.exception(0)
    assert isinstance(error, cw.CounterweightError)
    assert error.code is grpc.StatusCode.CANCELLED
    assert over.wait(150)


@pytest.mark.parametrize("stage", ["admission", "chunks", "answer"])
def test_cancelling_a_task_ends_its_stream(streaming: FakeServer, stage: str) -> None:
    reached, over = threading.Event(), threading.Event()

    def hold(requests: Iterator[Any], context: Any) -> Iterator[Any]:
        context.add_callback(over.set)
        next(requests)
        if stage != "admission":
            yield admission()
        if stage == "answer":
            for _ in requests:
                pass
        reached.set()
        over.wait(500)

    streaming.stream = hold

    async def main() -> None:
        async with counterweight_rl.aio.Client(
            streaming.target, transport="stream", timeout=None
        ) as aio:
            batch = BATCH | large(20_000_000 if stage == "chunks" else 3000)
            call = asyncio.create_task(aio.correct(**batch))
            assert await asyncio.to_thread(reached.wait, 30)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert await asyncio.to_thread(over.wait, 30)
            # The connection is still usable.
            streaming.stream, streaming.handler = None, answer
            assert (await aio.correct(**BATCH)).backend == "cpu"

    asyncio.run(asyncio.wait_for(main(), 60))


def test_submitted_streams_have_copies(streaming: FakeServer) -> None:
    """Arrays may be reused at once, although they are sent in the background."""
    streaming.handler = echo
    batch = large(600_000)
    with cw.Client(streaming.target, transport="stream", timeout=300) as client:
        futures = []
        for number in range(8):
            batch["rollout_log_probs"].fill(number)
            futures.append(client.submit(method="token_tis", **batch))
        batch["rollout_log_probs"].fill(np.nan)
        for number, future in enumerate(futures):
            assert (future.result(30).weights == number).all()


def test_many_streams_at_once(streaming: FakeServer) -> None:
    streaming.handler = echo
    batches = [large(3000 + 2 * i) for i in range(12)]

    async def main() -> list[cw.Result[Any]]:
        async with counterweight_rl.aio.Client(
            streaming.target, transport="stream", chunk_bytes=999
        ) as aio:
            calls = (aio.correct(method="token_tis", **batch) for batch in batches)
            return await asyncio.gather(*calls)

    for result, batch in zip(asyncio.run(main()), batches, strict=True):
        np.testing.assert_array_equal(result.weights, batch["rollout_log_probs"])
