"""Sending: results, batches, sizes."""

import asyncio
import os

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import MessageSizeExceededError
from support import bodies, counts_become, numbered, queue, refused, take, take_one, up_to


async def test_a_send_waits_for_the_broker_and_the_message_is_there(clients):  # (T.1)
    name = await queue()
    sender = clients.sender(name)
    await sender.send_messages(ServiceBusMessage("hello", message_id="one"))
    await counts_become(name, active=1, locked=0, deferred=0, deadLetter=0)
    await sender.send_messages([ServiceBusMessage("1"), ServiceBusMessage("2")])  # travels as a batch
    await counts_become(name, active=3)


async def test_too_large_a_message_is_refused_and_the_sender_lives_on(clients):  # (T.1)
    name = await queue()  # 256 KiB by default
    sender = clients.sender(name)
    await refused(MessageSizeExceededError, sender.send_messages(ServiceBusMessage(b"x" * 300 * 1024)))
    await sender.send_messages(ServiceBusMessage("small"))
    await counts_become(name, active=1)


async def test_senders_side_by_side(clients):  # (T.2)
    name = await queue()
    senders = [clients.sender(name, member) for member in (1, 2, 3)]

    async def send(sender):
        for message in numbered(20):
            await sender.send_messages(message)

    await asyncio.gather(*map(send, senders))
    got = await take(clients.deleting(name), 60)
    assert sorted(bodies(got), key=int) == [str(i) for i in range(20) for _ in senders]


async def test_a_batch_is_stored_as_its_messages_in_order(clients):  # (T.1)
    name = await queue()
    sender = clients.sender(name)
    batch = await sender.create_message_batch()
    assert batch.max_size_in_bytes >= 256 * 1024
    for n, message in enumerate(numbered(200)):
        message.application_properties = {"n": n}
        batch.add_message(message)
    await sender.send_messages(batch)
    await counts_become(name, active=200)
    got = await take(clients.deleting(name, 3), 200)
    assert bodies(got) == up_to(200)
    assert [m.message_id for m in got] == [m.message_id for m in numbered(200)]
    assert [m.application_properties[b"n"] for m in got] == list(range(200)), "inner ones, not the envelope's"


async def test_a_batch_takes_no_more_than_the_link_allows(clients):  # (T.1)
    name = await queue()
    sender = clients.sender(name, 2)
    batch = await sender.create_message_batch()
    piece = os.urandom(10 * 1024)
    try:
        while True:
            batch.add_message(ServiceBusMessage(piece))
            assert len(batch) < 1000, "a batch must become full"
    except MessageSizeExceededError:
        assert len(batch) >= 24, f"{len(batch)} messages of 10 KiB in 256 KiB"
    await sender.send_messages(batch)
    await counts_become(name, active=len(batch))
    for message in await take(clients.deleting(name), len(batch)):
        assert b"".join(message.body) == piece


async def test_bodies_travel_over_many_frames_both_ways(clients):  # (T.1)
    name = await queue(maxMessageBytes=1024 * 1024)
    sender = clients.sender(name)
    sent = [os.urandom(256 * 1024), os.urandom(1000 * 1024), os.urandom(1)]
    for body in sent:
        await sender.send_messages(ServiceBusMessage(body))
    receiver = clients.receiver(name, 3)
    got = await take(receiver, len(sent))
    assert [b"".join(m.body) for m in got] == sent
    for message in got:
        await receiver.complete_message(message)
    await counts_become(name, active=0)


async def test_an_answer_comes_back_through_a_reply_queue(clients):  # (C.7)
    requests, replies = await queue(), await queue()
    await clients.sender(requests).send_messages(ServiceBusMessage("6*7", message_id="question", reply_to=replies))
    server = clients.receiver(requests, 2)
    question = await take_one(server)
    await clients.sender(question.reply_to, 2).send_messages(ServiceBusMessage("42", correlation_id=question.message_id))
    await server.complete_message(question)
    answer = await take_one(clients.deleting(replies))
    assert (str(answer), answer.correlation_id) == ("42", "question")
