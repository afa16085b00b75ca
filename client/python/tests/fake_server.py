"""A server in this process that says what a test tells it to."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent import futures
from typing import Any

import grpc

from counterweight._gen.counterweight.v1 import correction_service_pb2 as service_pb2
from counterweight._gen.counterweight.v1 import correction_service_pb2_grpc as service_grpc

Handler = Callable[[service_pb2.CorrectRequest, grpc.ServicerContext], service_pb2.CorrectResponse]


class FakeServer(service_grpc.CorrectionServiceServicer):
    """Answers Correct with ``handler`` and the rest with ``methods`` and ``info``.

    Requests are parsed by the generated code, so that what the client frames by hand is checked
    against the contract.
    """

    def __init__(self) -> None:
        self.requests: list[service_pb2.CorrectRequest] = []
        self.metadata: list[dict[str, Any]] = []
        self.handler: Handler = lambda request, _: service_pb2.CorrectResponse(
            request_id=request.request_id
        )
        self.methods = service_pb2.ListMethodsResponse()
        self.info = service_pb2.GetServerInfoResponse()
        self._lock = threading.Lock()
        self._server = grpc.server(
            futures.ThreadPoolExecutor(max_workers=4),
            options=[("grpc.max_receive_message_length", -1)],
        )
        service_grpc.add_CorrectionServiceServicer_to_server(self, self._server)
        self.target = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def stop(self) -> None:
        self._server.stop(None).wait()

    def Correct(self, request: Any, context: Any) -> Any:  # noqa: N802
        with self._lock:
            self.requests.append(request)
            self.metadata.append(dict(context.invocation_metadata()))
        return self.handler(request, context)

    def ListMethods(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self.methods

    def GetServerInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self.info
