"""What a message carries, and that it comes back as it went."""

import datetime
import uuid

from azure.servicebus import ServiceBusMessage, ServiceBusMessageState
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType
from support import now, opened, queue, take, take_one


async def there(clients, message):
    """Sends a message at member 1 and takes it from member 2."""
    name = await queue()
    await clients.sender(name).send_messages(message)
    return await take_one(clients.deleting(name, 2))


async def test_system_properties_come_back(clients):  # (T.15)
    sent = {
        "message_id": "x" * 128,
        "correlation_id": "cor-1",
        "content_type": "text/plain",
        "subject": "subject",
        "to": "somewhere",
        "reply_to": "reply-queue",
        "reply_to_session_id": "reply-session",
        "session_id": "session",
        "partition_key": "session",  # the client lets it equal the session id only
        "time_to_live": datetime.timedelta(hours=1),
    }
    got = await there(clients, ServiceBusMessage("text", **sent))
    assert str(got) == "text"
    assert {name: getattr(got, name) for name in sent} == sent
    assert got.delivery_count == 0
    assert got.state == ServiceBusMessageState.ACTIVE
    assert got.expires_at_utc == got.enqueued_time_utc + datetime.timedelta(hours=1)  # (E.1)


async def test_application_properties_of_every_type(clients):  # (T.15)
    properties = {
        "text": "žluťoučký kůň 🐎",
        "empty": "",
        "int": -7,
        "double": 1.5,
        "yes": True,
        "no": False,
        "nothing": None,
        "uuid": uuid.UUID("00112233-4455-6677-8899-aabbccddeeff"),
    }
    got = (await there(clients, ServiceBusMessage("b", application_properties=properties))).application_properties
    # The client hands keys and texts out as bytes; bytes it sends as texts, and whole numbers
    # beyond 32 bits not at all.
    want = {k.encode(): v.encode() if isinstance(v, str) else v for k, v in properties.items()}
    assert got == want


async def test_bodies_of_each_kind(clients):  # (T.1)
    data = [b"", b"\x00", b"x" * 255, b"x" * 256, b"x" * 70_000]
    values = ["text", 42, True, {"key": "value"}, [1, 2, 3]]
    name = await queue()
    sender, receiver = await opened(clients.sender(name), clients.deleting(name, 2))
    for body in data:
        await sender.send_messages(ServiceBusMessage(body))
        got = await take_one(receiver)
        assert (b"".join(got.body), got.body_type) == (body, AmqpMessageBodyType.DATA)
    for value in values:
        await sender.send_messages(AmqpAnnotatedMessage(value_body=value))
        got = await take_one(receiver)
        assert (decoded(got.body), got.body_type) == (value, AmqpMessageBodyType.VALUE)
    await sender.send_messages(AmqpAnnotatedMessage(sequence_body=[1, "two", 3.0]))
    got = await take_one(receiver)
    assert got.body_type == AmqpMessageBodyType.SEQUENCE
    assert decoded(list(got.body)) in ([1, "two", 3.0], [[1, "two", 3.0]])
    await sender.send_messages(AmqpAnnotatedMessage(data_body=[b"in ", b"two ", b"sections"]))
    assert list((await take_one(receiver)).body) == [b"in ", b"two ", b"sections"]


def decoded(value):
    """Texts that the client hands out as bytes, as texts."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list):
        return [decoded(v) for v in value]
    if isinstance(value, dict):
        return {decoded(k): decoded(v) for k, v in value.items()}
    return value


async def test_the_sections_of_an_annotated_message(clients):  # (T.1)
    got = await there(
        clients,
        AmqpAnnotatedMessage(
            data_body=b"annotated",
            header={"durable": True, "priority": 7},
            properties={"message_id": "annotated-1", "content_encoding": "identity", "group_sequence": 3},
            annotations={"x-opt-of-the-user": "kept", "x-opt-sequence-number": 999_999},
            application_properties={"a": "b"},
        ),
    )
    raw = got.raw_amqp_message
    assert got.message_id == "annotated-1"
    assert (raw.header.durable, raw.header.priority) == (True, 7)
    assert decoded(raw.annotations)["x-opt-of-the-user"] == "kept"
    assert got.sequence_number == 1, "the broker's own, not the sender's"
    assert decoded(raw.properties.content_encoding) == "identity"
    assert raw.properties.group_sequence == 3
    assert decoded(raw.application_properties) == {"a": "b"}


async def test_the_annotations_of_the_broker(clients):  # (T.5)
    name = await queue(lockDuration="20s")
    before = now()
    await clients.sender(name).send_messages([ServiceBusMessage("1"), ServiceBusMessage("2")])
    got = await take(clients.receiver(name), 2)
    for message in got:
        assert isinstance(message.lock_token, uuid.UUID)
        assert abs((message.enqueued_time_utc - before).total_seconds()) < 10
        assert 5 < (message.locked_until_utc - now()).total_seconds() <= 20.5
        assert message.delivery_count == 0
        assert message.dead_letter_reason is None
    assert [m.sequence_number for m in got] == [1, 2]
    assert got[0].lock_token != got[1].lock_token


async def test_a_message_that_was_received_can_be_sent_on(clients):  # (C.9)
    first, second = await queue(), await queue()
    await clients.sender(first).send_messages(
        ServiceBusMessage("passed", message_id="passed", application_properties={"p": 1})
    )
    receiver = clients.receiver(first)
    message = await take_one(receiver)
    await clients.sender(second).send_messages(message)
    await receiver.complete_message(message)
    got = await take_one(clients.deleting(second, 2))
    assert (str(got), got.message_id, got.application_properties) == ("passed", "passed", {b"p": 1})
