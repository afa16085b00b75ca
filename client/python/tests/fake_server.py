"""A server in this process that answers as a test chooses, and handlers for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import grpc

# The widely installed package, in one process with the client: the two must not clash, and it
# writes what a server sends.
from google.rpc import error_details_pb2, status_pb2

from counterweight_rl._gen.counterweight.v1 import correction_service_pb2 as service_pb2
from counterweight_rl._gen.counterweight.v1 import correction_service_pb2_grpc as service_grpc

Handler = Callable[[service_pb2.CorrectRequest, grpc.ServicerContext], service_pb2.CorrectResponse]


class FakeServer(service_grpc.CorrectionServiceServicer):
    """Answers Correct with ``handler`` and the rest with ``methods`` and ``info``.

    The generated code parses requests, and so checks the client's own framing against the contract.
    ``handler`` also answers a stream, after all its chunks; ``stream`` may replace it, and
    ``admit`` may refuse the stream before the chunks. ``publish`` answers Publish.
    """

    def __init__(self, listen: str = "127.0.0.1:0") -> None:
        self.headers: list[service_pb2.CorrectRequest] = []
        self.chunks: list[tuple[int, int, int]] = []  # tensor, offset, size, in order of arrival
        self.stream: Callable[[Iterator[Any], grpc.ServicerContext], Iterator[Any]] | None = None
        self.admit: Callable[[service_pb2.CorrectRequest, grpc.ServicerContext], Any] = nothing
        self.down_chunk_bytes = 1 << 20
        self.requests: list[service_pb2.CorrectRequest] = []
        self.metadata: list[dict[str, Any]] = []
        self.handler: Handler = lambda request, _: service_pb2.CorrectResponse(
            request_id=request.request_id
        )
        self.methods = service_pb2.ListMethodsResponse()
        self.info = service_pb2.GetServerInfoResponse()
        self.inform: Callable[[Any, grpc.ServicerContext], Any] = lambda *_: self.info
        self.infos = 0
        self.published: list[service_pb2.PublishRequest] = []
        self.publish: Callable[..., Any] = lambda *_: service_pb2.PublishResponse()
        self._lock = threading.Lock()
        self._server = grpc.server(
            futures.ThreadPoolExecutor(max_workers=4),
            options=[("grpc.max_receive_message_length", -1)],
        )
        service_grpc.add_CorrectionServiceServicer_to_server(self, self._server)
        port = self._server.add_insecure_port(listen)
        self.target = listen if listen.startswith("unix:") else f"127.0.0.1:{port}"
        self._server.start()

    def stop(self) -> None:
        self._server.stop(None).wait()

    def Correct(self, request: Any, context: Any) -> Any:  # noqa: N802
        with self._lock:
            self.requests.append(request)
            self.metadata.append(dict(context.invocation_metadata()))
        return self.handler(request, context)

    def CorrectStream(self, requests: Any, context: Any) -> Any:  # noqa: N802
        if self.stream is not None:
            yield from self.stream(requests, context)
            return
        header = next(requests).header
        with self._lock:
            self.headers.append(header)
        self.admit(header, context)
        yield admission()
        request = self.assemble(header, requests)
        response = self.Correct(request, context)
        yield from stream_answer(response, self.down_chunk_bytes)

    def assemble(
        self, header: service_pb2.CorrectRequest, requests: Iterator[Any]
    ) -> service_pb2.CorrectRequest:
        """Returns the request with its tensors' data; chunks must continue their tensors."""
        data = [bytearray() for _ in header.tensors]
        for message in requests:
            chunk = message.chunk
            assert message.WhichOneof("frame") == "chunk"
            assert chunk.offset == len(data[chunk.tensor])
            data[chunk.tensor] += chunk.data
            self.chunks.append((chunk.tensor, chunk.offset, len(chunk.data)))
        request = service_pb2.CorrectRequest()
        request.CopyFrom(header)
        for tensor, received in zip(request.tensors, data, strict=True):
            tensor.data = bytes(received)
        return request

    def ListMethods(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self.methods

    def Publish(self, request: Any, context: Any) -> Any:  # noqa: N802
        with self._lock:
            self.published.append(request)
        return self.publish(request, context)

    def GetServerInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
        with self._lock:
            self.infos += 1
        return self.inform(request, context)


def nothing(*_: Any) -> None:
    """Does nothing."""


def admission() -> service_pb2.CorrectStreamResponse:
    return service_pb2.CorrectStreamResponse(admission=service_pb2.Admission(chunk_bytes=2 << 20))


def chunk(tensor: int, offset: int, data: bytes) -> service_pb2.CorrectStreamResponse:
    return service_pb2.CorrectStreamResponse(
        chunk=service_pb2.Chunk(tensor=tensor, offset=offset, data=data)
    )


def stream_answer(
    response: service_pb2.CorrectResponse, chunk_bytes: int
) -> Iterator[service_pb2.CorrectStreamResponse]:
    """Returns the server's messages after the last chunk."""
    result = service_pb2.CorrectResponse()
    result.CopyFrom(response)
    for tensor in result.tensors:
        tensor.ClearField("data")
    yield service_pb2.CorrectStreamResponse(result=result)
    sent = 0
    for index, tensor in enumerate(response.tensors):
        for offset in range(0, len(tensor.data), chunk_bytes):
            yield chunk(index, offset, tensor.data[offset : offset + chunk_bytes])
        sent += len(tensor.data)
    yield service_pb2.CorrectStreamResponse(
        summary=service_pb2.StreamSummary(sent_bytes=sent, timing=response.timing)
    )


def watch_payloads(server: FakeServer) -> list[int]:
    """Records the largest tensor's bytes in the message of each later unary request."""
    sizes: list[int] = []
    inner = server.handler

    def measure(request: Any, context: Any) -> Any:
        sizes.append(max(len(tensor.data) for tensor in request.tensors))
        return inner(request, context)

    server.handler = measure
    return sizes


def failing(
    code: grpc.StatusCode, message: str, *details: Any, metadata: tuple[tuple[str, Any], ...] = ()
) -> Callable[..., Any]:
    """Returns a handler that answers every request with this error."""
    status = status_pb2.Status(code=code.value[0], message=message)
    for detail in details:
        status.details.add().Pack(detail)

    def handler(request: Any, context: Any) -> Any:
        if details:
            trailer = ("grpc-status-details-bin", status.SerializeToString())
            context.set_trailing_metadata((trailer, *metadata))
        else:
            context.set_trailing_metadata(metadata)
        context.abort(code, message)

    return handler


def bad_request(*fields: str) -> Callable[..., Any]:
    """Returns a handler that answers every request with these violations."""
    detail = error_details_pb2.BadRequest()
    for field in fields:
        detail.field_violations.add(field=field, description="is wrong")
    return failing(grpc.StatusCode.INVALID_ARGUMENT, "; ".join(fields), detail)


def retry_info(milliseconds: int) -> error_details_pb2.RetryInfo:
    info = error_details_pb2.RetryInfo()
    info.retry_delay.FromMilliseconds(milliseconds)
    return info


def in_turn(*handlers: Handler) -> Handler:
    """Returns a handler that uses each handler for one request, and the last one for all further
    ones."""
    pending = list(handlers)
    lock = threading.Lock()

    def handler(request: Any, context: Any) -> Any:
        with lock:
            chosen = pending.pop(0) if len(pending) > 1 else pending[0]
        return chosen(request, context)

    return handler


class Held:
    """A handler that holds every request until ``release``, or until its caller has gone.

    Each request adds one to ``arrived`` and, when it ends either way, one to ``ended``.
    """

    def __init__(self) -> None:
        self.arrived = threading.Semaphore(0)
        self.ended = threading.Semaphore(0)
        self._released = False
        self._waiting: list[threading.Event] = []
        self._lock = threading.Lock()

    def release(self) -> None:
        with self._lock:
            self._released = True
            for event in self._waiting:
                event.set()

    def __call__(self, request: Any, context: Any) -> Any:
        over = threading.Event()

        def end() -> None:
            over.set()
            self.ended.release()

        with self._lock:
            self._waiting.append(over)
            if self._released:
                over.set()
        context.add_callback(end)
        self.arrived.release()
        over.wait(500)
        return service_pb2.CorrectResponse(request_id=request.request_id)
