"""Sends a message, and receives and completes it, with the official client and its tracing. Client and members export their spans to
the same collector, and the trace has all of them."""

import json
import os
import urllib.request

from azure.core.settings import settings
from azure.core.tracing.ext.opentelemetry_span import OpenTelemetrySpan
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from collector import Collector, tree

COLLECTOR = "http://127.0.0.1:" + os.environ["COLLECTOR_PORT"]
OF_MEMBERS = ["receive from client", "deliver to client", "settle"]

collector = Collector(int(os.environ["COLLECTOR_PORT"]))
provider = TracerProvider(resource=Resource({"service.name": "shop"}))
provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(COLLECTOR + "/v1/traces")))
trace.set_tracer_provider(provider)
settings.tracing_implementation = OpenTelemetrySpan

request = urllib.request.Request(os.environ["ADMIN"] + "/v1/queues/orders", b"{}", method="PUT")
json.load(urllib.request.urlopen(request, timeout=30))

tracer = trace.get_tracer("shop")
with ServiceBusClient.from_connection_string(os.environ["CONNECTION_STRING"]) as client:
    with tracer.start_as_current_span("place order") as order:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("one coffee"))
    with client.get_queue_receiver("orders", max_wait_time=30) as receiver:
        for message in receiver:
            receiver.complete_message(message)
            break

trace_id = f"{order.get_span_context().trace_id:032x}"
spans = [s for s in collector.wait(lambda all: {s.name for s in all if s.trace == trace_id} >= {"place order", *OF_MEMBERS}) if s.trace == trace_id]
print("\n".join(tree(spans)))

by_name = {s.name: s for s in spans}
sent = next(s for s in spans if s.service == "shop" and s.kind == "producer")
for name in OF_MEMBERS:
    s = by_name[name]
    assert s.service == "peeklock" and not s.failed and s.attributes["messaging.destination.name"] == "orders", vars(s)
assert by_name["receive from client"].parent == sent.id == by_name["deliver to client"].parent, "the spans of members are not below that of the message"
assert sent.id in by_name["deliver to client"].links, "the delivery is not linked to the message"
assert by_name["settle"].parent == by_name["deliver to client"].id
assert by_name["settle"].attributes["messaging.servicebus.disposition_status"] == "complete"
