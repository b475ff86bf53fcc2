"""Receiving: modes, competition, peeking, waiting, iterating."""

import asyncio
import time

from azure.servicebus import ServiceBusMessage, ServiceBusMessageState
from support import bodies, counts_become, create, nothing, numbered, opened, queue, take, take_one, up_to


async def test_receive_and_delete_settles_as_it_sends_in_order(clients):  # (T.4)
    name = await clients.filled(50)
    receiver = clients.deleting(name, 2)
    assert bodies(await take(receiver, 50)) == up_to(50)
    await nothing(receiver)
    await counts_become(name, active=0, locked=0)


async def test_a_thousand_messages_in_one_call(clients):  # (T.4)
    name = await queue()
    sender = clients.sender(name)
    for start in (0, 500):
        await sender.send_messages(numbered(1000)[start : start + 500])
    assert bodies(await take(clients.deleting(name, 3), 1000)) == up_to(1000)


async def test_a_locked_message_is_hidden_from_others(clients):  # (T.5)
    name = await clients.filled(2)
    first, second = clients.receiver(name), clients.receiver(name, 2)
    a, b = await take_one(first), await take_one(second)
    assert bodies([a, b]) == ["0", "1"]
    await nothing(second)
    await counts_become(name, active=2, locked=2)
    await second.complete_message(b)
    await first.complete_message(a)
    await counts_become(name, active=0, locked=0)


async def test_a_waiting_receiver_gets_a_message_as_soon_as_it_is_sent(clients):  # (T.5)
    name = await queue()
    receiver, sender = await opened(clients.receiver(name, 3), clients.sender(name))
    waiting = asyncio.create_task(receiver.receive_messages(max_wait_time=20))
    await asyncio.sleep(0.7)  # let the receiver wait
    sent = time.monotonic()
    await sender.send_messages(ServiceBusMessage("at last"))
    got = await waiting
    assert bodies(got) == ["at last"]
    assert time.monotonic() - sent < 5
    await receiver.complete_message(got[0])


async def test_a_message_that_nobody_asked_for_any_more_is_handed_back_uncounted(clients):  # (T.5)
    name = await queue(maxDeliveryCount=1)
    receiver = await opened(clients.receiver(name))
    assert await receiver.receive_messages(max_message_count=10, max_wait_time=0.3) == []
    await clients.sender(name, 2).send_messages(numbered(3))
    # The client looks at what came when it is called the next time, or closes.
    await receiver.close()
    other = clients.receiver(name, 3)
    got = await take(other, 3)
    assert [m.delivery_count for m in got] == [0, 0, 0]
    for message in got:
        await other.complete_message(message)
    await counts_become(name, active=0, locked=0, deadLetter=0)


async def test_no_message_is_lost_or_doubled_by_receivers_that_wait_for_little(clients):  # (T.5)
    name = await queue(maxDeliveryCount=1)  # a message that was lost on the way would be seen
    receiver, sender = await opened(clients.receiver(name, 2), clients.sender(name))

    async def send():
        for message in numbered(30):
            await sender.send_messages(message)
            await asyncio.sleep(0.01)

    sending = asyncio.create_task(send())
    seen = []
    deadline = time.monotonic() + 30
    while len(seen) < 30 and time.monotonic() < deadline:
        for message in await receiver.receive_messages(max_message_count=3, max_wait_time=0.06):
            seen.append(str(message))
            await receiver.complete_message(message)
    await sending
    assert sorted(seen, key=int) == up_to(30)
    await counts_become(name, active=0, locked=0, deadLetter=0)


async def test_prefetch(clients):  # (T.5)
    name = await clients.filled(100)
    receiver = clients.receiver(name, prefetch_count=30)
    got = await take(receiver, 40)
    assert bodies(got) == up_to(40)
    for message in got:
        await receiver.complete_message(message)
    await receiver.close()  # what it holds ahead is handed back
    await counts_become(name, active=60, locked=0, deadLetter=0)


async def test_messages_are_iterated(clients):  # (T.9)
    name = await clients.filled(20)
    receiver = clients.receiver(name, 2, max_wait_time=2)
    seen = []
    async for message in receiver:
        seen.append(str(message))
        await receiver.complete_message(message)
    assert seen == up_to(20)
    await counts_become(name, active=0, locked=0)


async def test_competing_receivers_share_the_messages_each_one_once(clients):  # (C.1)
    name = await queue()
    seen = {1: [], 2: [], 3: []}
    receivers = {member: clients.receiver(name, member) for member in seen}
    await opened(*receivers.values())

    async def receive(member):
        while sum(map(len, seen.values())) < 150:
            for message in await receivers[member].receive_messages(max_message_count=5, max_wait_time=0.5):
                await receivers[member].complete_message(message)
                seen[member].append(str(message))

    receiving = asyncio.gather(*map(receive, seen))
    await clients.sender(name).send_messages(numbered(150))
    await asyncio.wait_for(receiving, 30)
    assert sorted(sum(seen.values(), []), key=int) == up_to(150)
    assert min(map(len, seen.values())) > 5, {member: len(got) for member, got in seen.items()}
    await counts_become(name, active=0, locked=0, deadLetter=0)


async def test_handlers_side_by_side(clients):  # (C.10)
    name = await clients.filled(10, maxDeliveryCount=3)
    receiver = clients.receiver(name)
    got = await take(receiver, 10)
    if clients.kind == "aio":  # the client that blocks is for one thread at a time
        await asyncio.gather(*map(receiver.complete_message, got))
    else:
        for message in reversed(got):
            await receiver.complete_message(message)
    await counts_become(name, active=0, locked=0)


async def test_peek_shows_active_locked_and_deferred_messages_and_touches_none(clients):  # (T.12)
    name = await clients.filled(5)
    receiver = clients.receiver(name, 2)
    locked, deferred = await take(receiver, 2)
    await receiver.defer_message(deferred)
    peeker = clients.receiver(name, 3)
    peeked = await peeker.peek_messages(max_message_count=3)
    assert bodies(peeked) == ["0", "1", "2"], "from the first one"
    active = ServiceBusMessageState.ACTIVE
    assert [m.state for m in peeked] == [active, ServiceBusMessageState.DEFERRED, active]
    assert bodies(await peeker.peek_messages(max_message_count=10)) == ["3", "4"], "goes on where it was"
    assert await peeker.peek_messages(max_message_count=10) == [], "and ends"
    again = await peeker.peek_messages(max_message_count=2, sequence_number=peeked[1].sequence_number)
    assert bodies(again) == ["1", "2"]
    await receiver.complete_message(locked)
    await counts_become(name, active=3, locked=0, deferred=1)


async def test_peek_pages_through_more_than_fits_in_one_answer(clients):  # (T.12)
    name = await queue()
    sender = clients.sender(name)
    for i in range(15):
        await sender.send_messages(ServiceBusMessage(b"x" * 100 * 1024, message_id=f"m-{i}"))
    peeker = clients.receiver(name, 2)
    seen = []
    while len(seen) < 15:
        page = await peeker.peek_messages(max_message_count=100)
        assert page, f"an empty page after {len(seen)} of 15"
        seen += [m.message_id for m in page]
    assert seen == [m.message_id for m in numbered(15)]


async def test_any_member_serves_any_client(clients):  # (T.17)
    name = await queue()
    for member in (1, 2, 3):
        await clients.sender(name, member).send_messages(numbered(6))
    await counts_become(name, active=18)
    for member in (1, 2, 3):
        receiver = clients.receiver(name, member)
        got = await take(receiver, 6)
        assert bodies(got) == up_to(6), "in the order of the sends"
        for message in got:
            await receiver.complete_message(message)
    await counts_become(name, active=0, locked=0)


async def test_names_have_parts_and_no_case(clients):  # (T.17)
    name = await queue()
    nested = f"{name}/orders/EU.1_x"
    await create(nested)
    await clients.sender(nested.upper(), 2).send_messages(ServiceBusMessage("nested"))
    await clients.sender(name.upper(), 3).send_messages(ServiceBusMessage("plain"))
    assert str(await take_one(clients.deleting(nested, 3))) == "nested"
    assert str(await take_one(clients.deleting(name, 2))) == "plain"
