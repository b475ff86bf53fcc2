"""Time and duplicates: scheduled messages, time to live, duplicate detection."""

import datetime

from azure.servicebus import ServiceBusMessage, ServiceBusMessageState, ServiceBusReceiveMode
from azure.servicebus.exceptions import MessageNotFoundError
from support import (
    LATE, after, bodies, counts_become, nothing, now, numbered, opened, queue, refused, take, take_one, until, up_to,
)


async def test_scheduled_messages_come_when_they_are_due(clients):
    name = await queue()
    sender, receiver = await opened(clients.sender(name, 2), clients.deleting(name, 3))
    due = after(4)
    numbers = await sender.schedule_messages(numbered(3), due)
    assert len(set(numbers)) == 3
    peeked = await receiver.peek_messages(max_message_count=10)
    assert [m.state for m in peeked] == [ServiceBusMessageState.SCHEDULED] * 3
    assert [m.sequence_number for m in peeked] == numbers
    assert abs(peeked[0].scheduled_enqueue_time_utc - due) < datetime.timedelta(milliseconds=2)
    await nothing(receiver)
    got = await take(receiver, 3)
    assert due - datetime.timedelta(milliseconds=2) <= now() <= due + datetime.timedelta(seconds=LATE)
    assert bodies(got) == up_to(3)
    for message in got:
        assert message.sequence_number not in numbers, "a new number at activation"
        assert message.state == ServiceBusMessageState.SCHEDULED


async def test_a_message_is_scheduled_by_its_property_too(clients):
    name = await queue()
    sender, receiver = await opened(clients.sender(name), clients.deleting(name))
    due = after(2)
    await sender.send_messages(ServiceBusMessage("later", scheduled_enqueue_time_utc=due))
    await sender.send_messages([ServiceBusMessage("past", scheduled_enqueue_time_utc=after(-60)), ServiceBusMessage("now")])
    assert bodies(await take(receiver, 2)) == ["past", "now"]
    assert str(await take_one(receiver)) == "later"
    assert now() >= due - datetime.timedelta(milliseconds=2)


async def test_cancelled_messages_never_come(clients):
    name = await queue()
    sender, elsewhere, receiver = await opened(clients.sender(name), clients.sender(name, 2), clients.deleting(name, 3))
    due = after(3)
    numbers = await sender.schedule_messages(numbered(3), due)
    await elsewhere.cancel_scheduled_messages([numbers[0], numbers[2]])
    await refused(MessageNotFoundError, sender.cancel_scheduled_messages(numbers[0]))
    await until(due + datetime.timedelta(seconds=LATE))
    assert str(await take_one(receiver)) == "1"
    await nothing(receiver)


async def test_an_expired_message_is_never_delivered_and_leaves_by_itself(clients):  # (E.2)
    name = await queue()
    await clients.sender(name).send_messages([
        ServiceBusMessage("short", time_to_live=datetime.timedelta(seconds=1)),
        ServiceBusMessage("long", time_to_live=datetime.timedelta(seconds=60)),
    ])
    await counts_become(name, active=2)
    await counts_become(name, active=1, deadLetter=0)  # with nobody receiving
    assert str(await take_one(clients.deleting(name, 2))) == "long"


async def test_a_locked_message_may_be_completed_after_it_has_expired(clients):  # (E.3)
    name = await queue(deadLetteringOnMessageExpiration=True)
    sender, receiver = await opened(clients.sender(name), clients.receiver(name, 2))
    await sender.send_messages(ServiceBusMessage("1", time_to_live=datetime.timedelta(seconds=3)))
    message = await take_one(receiver)
    await until(message.expires_at_utc + datetime.timedelta(seconds=0.5))
    await receiver.complete_message(message)
    await counts_become(name, active=0, deadLetter=0)


async def test_expired_messages_are_dead_lettered_when_the_queue_says_so(clients):  # (E.5)
    name = await queue(deadLetteringOnMessageExpiration=True)
    message = ServiceBusMessage("job", message_id="late", time_to_live=datetime.timedelta(seconds=1))
    await clients.sender(name, 3).send_messages(message)
    await counts_become(name, active=0, deadLetter=1)
    dead = clients.dead_letters(name, 3, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE)
    message = await take_one(dead)
    assert (message.dead_letter_reason, message.message_id) == ("TTLExpiredException", "late")
    await nothing(dead)  # (E.6) once


async def test_the_time_to_live_of_the_queue_is_default_and_ceiling(clients):  # (E.4)
    name = await queue(defaultMessageTimeToLive="30s")
    await clients.sender(name, 3).send_messages([
        ServiceBusMessage("none"),
        ServiceBusMessage("more", time_to_live=datetime.timedelta(hours=1)),
        ServiceBusMessage("less", time_to_live=datetime.timedelta(seconds=10)),
    ])
    got = await take(clients.deleting(name), 3)
    assert [(m.expires_at_utc - m.enqueued_time_utc).total_seconds() for m in got] == [30, 30, 10]


async def test_a_second_message_with_the_same_id_is_accepted_and_dropped(clients):  # (T.15)
    name = await queue(requiresDuplicateDetection=True)
    sender = clients.sender(name)
    await sender.send_messages(ServiceBusMessage("first", message_id="same"))
    await clients.sender(name, 2).send_messages(ServiceBusMessage("second", message_id="same"))
    await sender.send_messages([ServiceBusMessage("third", message_id="same"), ServiceBusMessage("other", message_id="o")])
    receiver = clients.deleting(name, 3)
    assert bodies(await take(receiver, 2)) == ["first", "other"]
    await sender.send_messages(ServiceBusMessage("after it was received", message_id="same"))
    await nothing(receiver)


async def test_scheduled_messages_count_as_duplicates_as_well(clients):  # (T.15)
    name = await queue(requiresDuplicateDetection=True)
    sender, receiver = await opened(clients.sender(name), clients.deleting(name, 2))
    await sender.schedule_messages(ServiceBusMessage("scheduled", message_id="same"), after(1.5))
    await sender.send_messages(ServiceBusMessage("sent", message_id="same"))
    assert str(await take_one(receiver)) == "scheduled"
    await nothing(receiver)
