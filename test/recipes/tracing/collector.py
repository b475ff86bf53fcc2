"""Stands in for an OpenTelemetry collector: keeps the spans that it gets by OTLP over HTTP, and prints a trace as a tree."""

import gzip
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

KINDS = ["", "internal", "server", "client", "producer", "consumer"]


class Span:
    def __init__(self, service, span):
        self.service, self.name, self.kind = service, span.name, KINDS[span.kind]
        self.trace, self.id, self.parent = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
        self.links = [link.span_id.hex() for link in span.links]
        self.begin, self.end, self.failed = span.start_time_unix_nano, span.end_time_unix_nano, span.status.code == 2
        self.attributes = {a.key: a.value.string_value or a.value.int_value for a in span.attributes}


class Collector:
    """Listens on a port until the program ends."""

    def __init__(self, port):
        self._spans, self._changed = [], threading.Condition()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                outer._add(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def _add(self, request):
        with self._changed:
            for resource in request.resource_spans:
                service = next(a.value.string_value for a in resource.resource.attributes if a.key == "service.name")
                for scope in resource.scope_spans:
                    self._spans += [Span(service, span) for span in scope.spans]
            self._changed.notify_all()

    def wait(self, complete, seconds=60):
        """Returns all spans as soon as they are complete."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while not complete(self._spans):
                assert self._changed.wait(deadline - time.monotonic()), f"only {[(s.service, s.name) for s in self._spans]}"
            return list(self._spans)


def tree(spans):
    """Returns the spans of one trace as lines, each below its parent, in the order in which they began."""
    known = {s.id for s in spans}
    lines = []

    def below(parent, depth):
        for s in sorted((s for s in spans if (s.parent if s.parent in known else "") == parent), key=lambda s: s.begin):
            lines.append(f"{'  ' * depth}{s.name} ({s.service}, {s.kind})")
            below(s.id, depth + 1)

    below("", 0)
    return lines
