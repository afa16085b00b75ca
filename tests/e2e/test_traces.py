"""Traces: what a collector of OpenTelemetry receives, read with OpenTelemetry's own definitions."""

from __future__ import annotations

import pathlib
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import counterweight_rl as cw
import grpc
import pytest
from batches import padded_batch
from certificates import Authority
from counterweight_rl._gen.counterweight.v1 import correction_service_pb2 as pb
from server_process import DEADLINE_SECONDS, ServerProcess, wait_until

# Only the environment that runs tests of the server has it.
pytest.importorskip("opentelemetry.proto")
from opentelemetry.proto.collector.trace.v1 import (
    trace_service_pb2,
    trace_service_pb2_grpc,
)
from opentelemetry.proto.trace.v1 import trace_pb2

pytestmark = [pytest.mark.server_only, pytest.mark.usefixtures("patient")]

StartServer = Callable[..., ServerProcess]
TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT_ID = "00f067aa0ba902b7"
SAMPLED = ("traceparent", f"00-{TRACE_ID}-{PARENT_ID}-01")
NOT_SAMPLED = ("traceparent", f"00-{TRACE_ID}-{PARENT_ID}-00")
CORRECT = "/counterweight.v1.CorrectionService/Correct"
PUBLISH = "/counterweight.v1.CorrectionService/Publish"
# A busy machine must not lose spans: ms, ten minutes.
PATIENT = {"OTEL_EXPORTER_OTLP_TIMEOUT": "600000"}
EXPORTED = "counterweight_spans_exported_total"
DROPPED = "counterweight_spans_dropped_total"


class Collector(trace_service_pb2_grpc.TraceServiceServicer):  # type: ignore[misc]
    """Keeps what it receives; refuses while `refuses` is set."""

    def __init__(self, credentials: grpc.ServerCredentials | None = None, port: int = 0) -> None:
        self.requests: list[Any] = []
        self.metadata: list[dict[str, str]] = []
        self.refuses = False
        self.rejects = 0
        self._server = grpc.server(
            futures.ThreadPoolExecutor(2), options=[("grpc.so_reuseport", 0)]
        )
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self._server)
        address = f"127.0.0.1:{port}"
        if credentials is None:
            self.port = self._server.add_insecure_port(address)
        else:
            self.port = self._server.add_secure_port(address, credentials)
        self._server.start()

    def Export(self, request: Any, context: grpc.ServicerContext) -> Any:
        if self.refuses:
            context.abort(grpc.StatusCode.UNAVAILABLE, "the collector is being replaced")
        self.metadata.append({key: str(value) for key, value in context.invocation_metadata()})
        self.requests.append(request)
        response = trace_service_pb2.ExportTraceServiceResponse()
        response.partial_success.rejected_spans = self.rejects
        return response

    def spans(self) -> list[Any]:
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def stop(self) -> None:
        self._server.stop(0).wait()


@pytest.fixture
def collector() -> Iterator[Collector]:
    started = Collector()
    yield started
    started.stop()


def endpoint(collector: Collector) -> dict[str, str]:
    return PATIENT | {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.port}"}


def correct(server: ServerProcess, transport: str = "unary") -> None:
    with cw.Client(server.address, transport=transport, retry=False) as client:  # type: ignore[arg-type]
        client.correct(method="token_tis", run="a", **padded_batch())


def call(server: ServerProcess, *metadata: tuple[str, str]) -> grpc.RpcError:
    """Sends a request without tensors, which is an error."""
    with grpc.insecure_channel(server.address) as channel:
        send = channel.unary_unary(CORRECT, response_deserializer=pb.CorrectResponse.FromString)
        with pytest.raises(grpc.RpcError) as caught:
            send(b"", metadata=metadata, timeout=DEADLINE_SECONDS)
    return caught.value


def attributes(span: Any) -> dict[str, Any]:
    return {each.key: each.value.string_value or each.value.int_value for each in span.attributes}


@pytest.mark.parametrize(
    ("transport", "rpc", "stages"),
    [
        ("unary", "Correct", ["queue", "decode", "queue", "compute", "queue", "encode"]),
        ("stream", "CorrectStream", ["decode", "queue", "receive", "compute", "encode"]),
    ],
)
def test_a_request_is_a_span_with_its_stages(
    start_server: StartServer, collector: Collector, transport: str, rpc: str, stages: list[str]
) -> None:
    server = start_server(environment=endpoint(collector))
    before = time.time_ns()
    correct(server, transport)
    wait_until(lambda: len(collector.spans()) == 1 + len(stages))
    # A stream's span ends with the stream, which the client may see before.
    after = time.time_ns()
    span, *children = collector.spans()
    assert span.name == f"counterweight.v1.CorrectionService/{rpc}"
    assert span.kind == trace_pb2.Span.SPAN_KIND_SERVER
    assert span.parent_span_id == b""
    assert span.status.code == trace_pb2.Status.STATUS_CODE_UNSET
    assert (len(span.trace_id), len(span.span_id)) == (16, 8)
    assert before <= span.start_time_unix_nano <= span.end_time_unix_nano <= after
    said = attributes(span)
    assert said["rpc.method"] == rpc
    assert said["counterweight.run"] == "a"
    assert said["counterweight.method"] == "token_tis"
    assert said["counterweight.tokens"] > 0
    assert [child.name for child in children] == stages
    end = span.start_time_unix_nano
    for child in children:
        assert child.trace_id == span.trace_id
        assert child.parent_span_id == span.span_id
        assert child.kind == trace_pb2.Span.SPAN_KIND_INTERNAL
        assert end <= child.start_time_unix_nano <= child.end_time_unix_nano
        end = child.end_time_unix_nano
    assert end <= span.end_time_unix_nano
    assert len({each.span_id for each in collector.spans()}) == 1 + len(stages)
    (resource,) = collector.requests[0].resource_spans
    assert resource.resource.attributes[0].value.string_value == "counterweight-server"
    assert collector.requests[0].resource_spans[0].scope_spans[0].scope.version
    wait_until(lambda: server.metric(EXPORTED) == 1 + len(stages))
    assert server.metric(DROPPED) == 0


def test_a_callers_trace_goes_on(start_server: StartServer, collector: Collector) -> None:
    server = start_server(environment=endpoint(collector))
    error = call(server, SAMPLED)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert SAMPLED in [(each.key, each.value) for each in error.trailing_metadata()]
    wait_until(lambda: len(collector.spans()) > 0)
    span = collector.spans()[0]
    assert span.trace_id.hex() == TRACE_ID
    assert span.parent_span_id.hex() == PARENT_ID
    # The request is wrong, not the server.
    assert span.status.code == trace_pb2.Status.STATUS_CODE_UNSET
    assert attributes(span)["rpc.grpc.status_code"] == 3
    (line,) = server.events("request")
    assert line["trace_id"] == TRACE_ID


def test_a_caller_who_does_not_sample_is_followed(
    start_server: StartServer, collector: Collector
) -> None:
    server = start_server(environment=endpoint(collector))
    call(server, NOT_SAMPLED)
    call(server, ("traceparent", "no traceparent"))
    wait_until(lambda: len(collector.spans()) > 0)
    assert TRACE_ID not in [span.trace_id.hex() for span in collector.spans()]
    server.terminate()
    assert server.wait() == 0
    assert TRACE_ID not in [span.trace_id.hex() for span in collector.spans()]


def test_publications_have_no_spans(start_server: StartServer, collector: Collector) -> None:
    """They come with each batch of a client that corrects in its own process."""
    server = start_server(environment=endpoint(collector))
    with grpc.insecure_channel(server.address) as channel:
        publish = channel.unary_unary(PUBLISH)
        with pytest.raises(grpc.RpcError):
            publish(b"", metadata=(SAMPLED,), timeout=DEADLINE_SECONDS)
    correct(server)
    wait_until(lambda: len(collector.spans()) > 0)
    methods = {attributes(span).get("rpc.method") for span in collector.spans()}
    assert "Publish" not in methods
    (line, _) = server.events("request", 2)
    assert (line["rpc"], line["trace_id"]) == ("Publish", TRACE_ID)


def test_without_an_endpoint_nothing_is_sent_but_the_trace_is_logged(
    start_server: StartServer,
) -> None:
    server = start_server()
    error = call(server, SAMPLED)
    assert SAMPLED in [(each.key, each.value) for each in error.trailing_metadata()]
    assert "traceparent" not in dict(call(server).trailing_metadata())
    first, second = server.events("request", 2)
    invalid = ("traceparent", "no traceparent")
    assert "traceparent" not in dict(call(server, invalid).trailing_metadata())
    assert first["trace_id"] == TRACE_ID
    assert "trace_id" not in second
    assert EXPORTED not in server.scrape()


def test_the_last_spans_leave_before_the_process_ends(
    start_server: StartServer, collector: Collector
) -> None:
    server = start_server("--drain_delay=0", environment=endpoint(collector))
    correct(server)
    server.terminate()
    assert server.wait() == 0
    assert [span.name for span in collector.spans()][:1] == [CORRECT.removeprefix("/")]


def test_a_collector_that_is_away_costs_only_spans(
    start_server: StartServer, collector: Collector
) -> None:
    server = start_server("--drain_delay=0", environment=endpoint(collector))
    collector.refuses = True
    for _ in range(3):
        correct(server)
    wait_until(lambda: server.metric(DROPPED) == 3 * 7)
    correct(server)
    wait_until(lambda: server.metric(DROPPED) == 4 * 7)
    (lost,) = server.events("spans_lost")
    assert lost["code"] == "UNAVAILABLE"
    assert lost["error"] == "the collector is being replaced"
    collector.refuses = False
    collector.rejects = 2
    correct(server)
    wait_until(lambda: server.metric(EXPORTED) == 5)
    assert server.metric(DROPPED) == 4 * 7 + 2
    assert len(server.events("spans_taken_again")) == 1
    collector.stop()
    correct(server)
    server.terminate()
    assert server.wait() == 0


def test_a_collector_that_does_not_answer_holds_nothing(start_server: StartServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = start_server(
            "--drain_delay=0",
            environment={
                "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{silent.getsockname()[1]}"
            },
        )
        correct(server)
        wait_until(lambda: server.metric(DROPPED) == 7)
        correct(server)
        server.terminate()
        assert server.wait() == 0


class Proxy(socketserver.ThreadingTCPServer):
    """An HTTP proxy that keeps the requests, and lets CONNECT through."""

    daemon_threads = True

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        super().__init__(("127.0.0.1", 0), self._serve)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def _serve(self, client: socket.socket, _address: Any, _server: Any) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            part = client.recv(4096)
            if not part:
                return
            head += part
        self.requests.append(head)
        client.sendall(b"HTTP/1.1 503 Service Unavailable\r\n\r\n")


@pytest.mark.parametrize("variable", ["grpc_proxy", "https_proxy", "http_proxy"])
def test_a_collector_of_this_machine_is_reached_without_a_proxy(
    start_server: StartServer, collector: Collector, variable: str
) -> None:
    with Proxy() as proxy:
        environment = {variable: proxy.url, "no_proxy": "", "no_grpc_proxy": ""}
        for host in "127.0.0.1", "localhost":
            url = f"http://{host}:{collector.port}"
            server = start_server(
                environment=PATIENT | {"OTEL_EXPORTER_OTLP_ENDPOINT": url, **environment}
            )
            taken = len(collector.spans())
            correct(server)
            wait_until(lambda: len(collector.spans()) > taken)  # noqa: B023
            server.stop()
        assert proxy.requests == []


def test_headers_go_through_no_proxy_without_tls(start_server: StartServer) -> None:
    # Nothing answers at this address, of RFC 5737.
    remote = "192.0.2.1:4317"
    with Proxy() as proxy:
        for scheme, headers, uses_proxy in (
            ("http", "authorization=Bearer%20secret", False),
            ("https", "authorization=Bearer%20secret", True),
            ("http", "", True),
        ):
            proxy.requests.clear()
            server = start_server(
                environment={
                    "OTEL_EXPORTER_OTLP_ENDPOINT": f"{scheme}://{remote}",
                    "OTEL_EXPORTER_OTLP_HEADERS": headers,
                    "http_proxy": proxy.url,
                    "no_proxy": "",
                    "no_grpc_proxy": "",
                }
            )
            correct(server)
            wait_until(lambda: server.metric(DROPPED) > 0)  # noqa: B023
            server.stop()
            assert bool(proxy.requests) == uses_proxy
            assert not any(b"secret" in each for each in proxy.requests)


def test_headers_resource_and_tls(start_server: StartServer, tmp_path: pathlib.Path) -> None:
    authority = Authority(tmp_path, "collector")
    pair = authority.sign("collector")
    collector = Collector(
        grpc.ssl_server_credentials([(pair.key.read_bytes(), pair.certificate.read_bytes())])
    )
    server = start_server(
        environment=PATIENT
        | {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"https://localhost:{collector.port}",
            "OTEL_EXPORTER_OTLP_CERTIFICATE": str(authority.certificate),
            "OTEL_EXPORTER_OTLP_HEADERS": "Api-Key=a%20secret",
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=test",
            "OTEL_SERVICE_NAME": "drift",
        }
    )
    correct(server)
    wait_until(lambda: len(collector.requests) > 0)
    collector.stop()
    assert collector.metadata[0]["api-key"] == "a secret"
    resource = collector.requests[0].resource_spans[0].resource
    assert {each.key: each.value.string_value for each in resource.attributes} == {
        "deployment.environment": "test",
        "service.name": "drift",
    }


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4317"}, "must be http://host:port or https"),
        (
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": "https://collector",
                "OTEL_EXPORTER_OTLP_CERTIFICATE": "/nowhere",
            },
            "OTEL_EXPORTER_OTLP_CERTIFICATE=/nowhere: it cannot be read",
        ),
    ],
)
def test_wrong_variables_are_one_sentence(
    start_server: StartServer, variables: dict[str, str], sentence: str
) -> None:
    with pytest.raises(RuntimeError, match=sentence):
        start_server(environment=variables)
