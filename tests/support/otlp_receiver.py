"""A collector of traces as far as it receives them: OTLP over HTTP, in protobuf."""

from __future__ import annotations

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class OtlpReceiver:
    """Receives spans on a port of its own while its context is entered.

    Attributes:
        endpoint: for `OTEL_EXPORTER_OTLP_ENDPOINT`.
        status: what it answers; a retryable one (503) or not (400) refuses spans.
        hangs: it takes a request and does not answer.
        requests: how many came, answered or not.
    """

    def __init__(self) -> None:
        self.status = 200
        self.hangs = False
        self.requests = 0
        self._spans: list[Span] = []
        self._services: set[str] = set()
        self.released = threading.Event()
        self._server = _Server(self)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()

    def take(self, body: bytes) -> None:
        """Keep the spans of a request."""
        request = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            self._services |= {
                one.value.string_value for one in resource.resource.attributes if one.key == "service.name"
            }
            for scope in resource.scope_spans:
                self._spans += scope.spans

    def spans(self, name: str = "") -> list[Span]:
        """The spans that were received so far: all, or those with a name."""
        return [span for span in self._spans if name in {"", span.name}]

    @property
    def services(self) -> set[str]:
        """The names of the services that sent spans."""
        return self._services


def attributes_of(span: Span) -> dict[str, Any]:
    """The attributes of a span as Python values."""
    return {
        each.key: getattr(each.value, kind)
        for each in span.attributes
        if (kind := each.value.WhichOneof("value")) is not None
    }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        """Take the spans of a request."""
        receiver = self.server.receiver
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        receiver.requests += 1
        if receiver.hangs:
            receiver.released.wait()
            self.close_connection = True
            return
        well_formed = (self.path, self.headers["content-type"]) == ("/v1/traces", "application/x-protobuf")
        status = receiver.status if well_formed else 400
        if status == 200:
            receiver.take(body)
        answer = ExportTraceServiceResponse().SerializeToString()
        with contextlib.suppress(OSError):
            self.send_response(status)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Silence."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, receiver: OtlpReceiver) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.receiver = receiver

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away is no news."""
