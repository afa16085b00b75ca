"""Messages that a server must not send in a stream."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from fake_server import (
    FakeServer,
    admission,
    chunk,
    stream_answer,
)
from sample import (
    BATCH,
    Correct,
    Request,
    Response,
    answer,
)

import counterweight_rl as cw
import counterweight_rl.aio
from counterweight_rl._gen.counterweight.v1 import correction_service_pb2 as service_pb2

RESULT, *CHUNKS, SUMMARY = stream_answer(answer(Request(), None), 10)
WRONG: dict[str, list[Any]] = {
    "before the admission": [RESULT],
    "a second admission": [admission(), admission()],
    "a second one": [admission(), RESULT, RESULT],
    "chunk came for tensor 0": [admission(), CHUNKS[0]],
    "chunk came for tensor 4": [admission(), RESULT, chunk(4, 0, b"a")],
    "begins at 1 instead of 0": [admission(), RESULT, chunk(0, 1, b"a")],
    "begins at 0 instead of 10": [admission(), RESULT, CHUNKS[0], CHUNKS[0]],
    "more than its 24 bytes": [admission(), RESULT, chunk(0, 0, bytes(25))],
    "tensor 0 has 10 of its 24 bytes": [admission(), RESULT, CHUNKS[0], SUMMARY],
    "a summary came before": [admission(), SUMMARY],
    "the stream ended before its summary": [admission(), RESULT, *CHUNKS],
    "after the stream's summary": [admission(), RESULT, *CHUNKS, SUMMARY, SUMMARY],
    "stream ended before": [],
    "an output came twice": [
        admission(),
        service_pb2.CorrectStreamResponse(
            result=Response(tensors=[*RESULT.result.tensors, RESULT.result.tensors[0]])
        ),
    ],
    "unexpected output weights of dtype 3": [
        admission(),
        service_pb2.CorrectStreamResponse(
            result=Response(tensors=[{"role": "TENSOR_ROLE_WEIGHTS", "dtype": "D_TYPE_F16"}])
        ),
    ],
    "data outside of chunks": [
        admission(),
        service_pb2.CorrectStreamResponse(result=answer(Request(), None)),
    ],
    "keep_mask holds 2": [
        admission(),
        RESULT,
        *(chunk(1, 0, b"\2" * 6) if c.chunk.tensor == 1 else c for c in CHUNKS),
        SUMMARY,
    ],
}


@pytest.mark.parametrize("wrong", WRONG)
def test_malformed_answers(streaming: FakeServer, correct: Correct, wrong: str) -> None:
    streaming.stream = lambda requests, context: iter(WRONG[wrong])
    with pytest.raises(cw.CounterweightError, match=wrong) as caught:
        correct()
    assert caught.value.code is grpc.StatusCode.INTERNAL
    assert caught.value.request_id


class Raw(grpc.GenericRpcHandler):  # type: ignore[misc]
    """A server of one stream with bytes that generated code would not send."""

    def __init__(self, *messages: bytes) -> None:
        self._messages = messages
        self._server = grpc.server(ThreadPoolExecutor(2))
        self._server.add_generic_rpc_handlers((self,))
        self.target = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def service(self, details: Any) -> Any:
        if details.method.endswith("CorrectStream"):
            return grpc.stream_stream_rpc_method_handler(lambda *_: iter(self._messages))
        return None

    def stop(self) -> None:
        self._server.stop(None).wait()


@pytest.mark.parametrize("data", [b"\x1a\x05hi", b"\x0b", b"\x12\x01\xff"])
def test_answers_that_are_no_message(data: bytes) -> None:
    server = Raw(admission().SerializeToString(), data)

    async def main() -> None:
        async with counterweight_rl.aio.Client(server.target, transport="stream") as aio:
            await aio.correct(**BATCH)

    with (
        cw.Client(server.target, transport="stream") as client,
        pytest.raises(cw.CounterweightError, match="cannot read the server's answer"),
    ):
        client.correct(**BATCH)
    with pytest.raises(cw.CounterweightError, match="cannot read the server's answer"):
        asyncio.run(main())
    server.stop()
