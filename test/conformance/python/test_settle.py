"""Settling in each way, in time and too late; locks and their renewal."""

import asyncio
import datetime

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState, ServiceBusReceiveMode
from azure.servicebus.exceptions import MessageAlreadySettled, MessageLockLostError, MessageNotFoundError
from support import (
    after_lock, believe, bodies, counts_become, nothing, now, queue, refused, take, take_one, until, up_to,
)

DELETE = {"receive_mode": ServiceBusReceiveMode.RECEIVE_AND_DELETE}


async def test_complete_removes_the_message_and_only_that_one(clients):  # (T.9)
    name = await clients.filled(3)
    receiver = clients.receiver(name, 2)
    got = await take(receiver, 3)
    await receiver.complete_message(got[1])
    await counts_become(name, active=2, locked=2)
    await receiver.complete_message(got[0])
    await receiver.complete_message(got[2])
    await counts_become(name, active=0, locked=0, deferred=0, deadLetter=0)


async def test_settling_twice_is_refused_by_the_client_itself(clients):  # (T.13)
    name = await clients.filled(1)
    receiver = clients.receiver(name)
    message = await take_one(receiver)
    await receiver.complete_message(message)
    with pytest.raises(MessageAlreadySettled):
        await receiver.complete_message(message)


async def test_abandon_unlocks_at_once_and_counts(clients):  # (T.10)
    name = await queue()
    await clients.sender(name, 3).send_messages(
        ServiceBusMessage("b", message_id="abandoned", application_properties={"kept": 1})
    )
    receiver = clients.receiver(name, 3)
    first = await take_one(receiver)
    sequence, enqueued, token = first.sequence_number, first.enqueued_time_utc, first.lock_token
    await receiver.abandon_message(first)
    second = await take_one(clients.receiver(name))
    assert (second.message_id, str(second), second.delivery_count) == ("abandoned", "b", 1)
    assert second.application_properties == {b"kept": 1}
    assert (second.sequence_number, second.enqueued_time_utc) == (sequence, enqueued)
    assert second.lock_token != token


async def test_an_abandoned_message_is_back_at_the_front(clients):  # (T.7)
    name = await clients.filled(5)
    receiver = clients.receiver(name)
    first, second = await take(receiver, 2)
    await receiver.abandon_message(second)
    await receiver.abandon_message(first)
    assert bodies(await take(clients.deleting(name, 2), 5)) == up_to(5)


async def test_defer_and_receive_by_sequence_number_at_any_member(clients):  # (T.12)
    name = await clients.filled(3)
    receiver = clients.receiver(name, 2)
    got = await take(receiver, 3)
    first, last = got[0].sequence_number, got[2].sequence_number
    await receiver.defer_message(got[0])
    await receiver.defer_message(got[2])
    await receiver.complete_message(got[1])
    await counts_become(name, active=0, deferred=2)
    await nothing(receiver)

    elsewhere = clients.receiver(name, 3)
    by_body = {str(m): m for m in await elsewhere.receive_deferred_messages([last, first])}
    assert set(by_body) == {"0", "2"}
    assert by_body["0"].state == ServiceBusMessageState.DEFERRED
    before = by_body["0"].locked_until_utc
    assert await elsewhere.renew_message_lock(by_body["0"]) >= before > now()
    await elsewhere.complete_message(by_body["0"])
    await elsewhere.dead_letter_message(by_body["2"], reason="stale", error_description="deferred too long")
    await counts_become(name, active=0, deferred=0, deadLetter=1)
    dead = await take_one(clients.dead_letters(name, 2, **DELETE))
    assert (dead.dead_letter_reason, dead.dead_letter_error_description) == ("stale", "deferred too long")


async def test_a_deferred_message_that_is_abandoned_or_deferred_again_stays_deferred(clients):  # (T.12)
    name = await clients.filled(1)
    receiver = clients.receiver(name)
    message = await take_one(receiver)
    number = message.sequence_number
    await receiver.defer_message(message)
    [message] = await receiver.receive_deferred_messages(number)
    await receiver.abandon_message(message)
    [message] = await receiver.receive_deferred_messages(number)
    await receiver.defer_message(message)
    await counts_become(name, active=0, deferred=1, locked=0)
    assert bodies(await clients.deleting(name, 2).receive_deferred_messages(number)) == ["0"]
    await counts_become(name, deferred=0)


async def test_only_deferred_messages_are_received_by_sequence_number(clients):  # (T.12)
    name = await clients.filled(2)
    receiver = clients.receiver(name)
    [active] = await receiver.peek_messages()
    await refused(MessageNotFoundError, receiver.receive_deferred_messages(active.sequence_number))
    await refused(MessageNotFoundError, receiver.receive_deferred_messages(active.sequence_number + 1000))
    assert len(await take(receiver, 2)) == 2


async def test_dead_letter_with_reason_and_description(clients):  # (T.11)
    name = await queue()
    await clients.sender(name, 2).send_messages(
        ServiceBusMessage("poison", message_id="bad", application_properties={"kept": 1})
    )
    receiver = clients.receiver(name, 2)
    await receiver.dead_letter_message(
        await take_one(receiver), reason="cannot parse", error_description="unexpected token"
    )
    await counts_become(name, active=0, locked=0, deadLetter=1)
    await nothing(receiver)
    dead = clients.dead_letters(name, 3)
    [peeked] = await dead.peek_messages()
    assert peeked.dead_letter_reason == "cannot parse"
    message = await take_one(dead)
    assert (str(message), message.message_id) == ("poison", "bad")
    assert (message.dead_letter_reason, message.dead_letter_error_description) == ("cannot parse", "unexpected token")
    assert message.application_properties[b"kept"] == 1
    await dead.complete_message(message)
    await counts_become(name, deadLetter=0)


async def test_the_dead_letter_queue_has_locks_of_its_own(clients):  # (T.11)
    name = await clients.filled(1)
    receiver = clients.receiver(name)
    await receiver.dead_letter_message(await take_one(receiver))
    dead = clients.dead_letters(name)
    await dead.abandon_message(await take_one(dead))
    message = await take_one(dead)
    assert str(message) == "0"
    number, before = message.sequence_number, message.locked_until_utc
    assert await dead.renew_message_lock(message) >= before
    await dead.defer_message(message)
    [message] = await dead.receive_deferred_messages(number)
    await dead.complete_message(message)
    await counts_become(name, active=0, deferred=0, deadLetter=0)


async def test_abandoned_too_often_is_dead_lettered(clients):  # (T.8)
    name = await clients.filled(1, maxDeliveryCount=3)
    receiver = clients.receiver(name, 2)
    for attempt in range(3):
        message = await take_one(receiver)
        assert message.delivery_count == attempt
        await receiver.abandon_message(message)
    await nothing(receiver)
    await counts_become(name, active=0, deadLetter=1)
    dead = await take_one(clients.dead_letters(name, 3, **DELETE))
    assert dead.dead_letter_reason == "MaxDeliveryCountExceeded"


async def test_locked_too_often_is_dead_lettered_with_nobody_receiving(clients):  # (T.8)
    name = await clients.filled(1, maxDeliveryCount=1, lockDuration="5s")
    await after_lock(await take_one(clients.receiver(name)))
    await counts_become(name, active=0, locked=0, deadLetter=1)


async def test_late_settlement_and_renewal_are_refused_and_the_link_lives_on(clients):  # (T.13)
    name = await clients.filled(5, lockDuration="5s")
    receiver = clients.receiver(name, 2)
    got = await take(receiver, 5)
    await after_lock(got[-1])
    await refused(MessageLockLostError, receiver.complete_message(got[0]))  # the client's own word
    for message in got:
        believe(message)
    await refused(MessageLockLostError, receiver.complete_message(got[0]))
    await refused(MessageLockLostError, receiver.abandon_message(got[1]))
    await refused(MessageLockLostError, receiver.defer_message(got[2]))
    await refused(MessageLockLostError, receiver.dead_letter_message(got[3], reason="late"))
    await refused(MessageLockLostError, receiver.renew_message_lock(got[4]))
    await counts_become(name, active=5, locked=0, deferred=0, deadLetter=0)
    again = await take_one(receiver)
    assert (again.message_id, again.delivery_count) == ("m-0", 1)
    await receiver.complete_message(again)
    await counts_become(name, active=4)


async def test_the_lock_of_a_receiver_that_is_gone_runs_out(clients):  # (C.3)
    name = await clients.filled(1, lockDuration="5s")
    gone = clients.receiver(name)
    lost = await take_one(gone)
    await gone.close()
    other = clients.receiver(name, 3)
    message = await take_one(other)
    assert message.delivery_count == 1
    assert now() >= lost.locked_until_utc - datetime.timedelta(seconds=0.05)
    await other.complete_message(message)
    await counts_become(name, active=0)


async def test_renewing_extends_the_lock_by_a_full_lock_duration_from_now(clients):  # (T.6)
    name = await clients.filled(1, lockDuration="5s")
    receiver = clients.receiver(name, 2)
    message = await take_one(receiver)
    original = message.locked_until_utc
    for _ in range(2):
        before = message.locked_until_utc
        await until(before - datetime.timedelta(seconds=2))
        renewed = await receiver.renew_message_lock(message)
        assert renewed > before
        assert abs((renewed - now()).total_seconds() - 5) < 1.5
    await until(original + datetime.timedelta(seconds=1))
    await nothing(clients.receiver(name, 3))
    await receiver.complete_message(message)
    await counts_become(name, active=0)


async def test_the_client_renews_by_itself(clients):  # (T.6)
    name = await clients.filled(1, lockDuration="5s", maxDeliveryCount=1)
    renewer = clients.renewer(max_lock_renewal_duration=30)
    receiver = clients.receiver(name, auto_lock_renewer=getattr(renewer, "blocking", renewer))
    message = await take_one(receiver)
    original = message.locked_until_utc
    await until(original + datetime.timedelta(seconds=1))
    assert message.auto_renew_error is None
    await receiver.complete_message(message)
    await counts_become(name, active=0, deadLetter=0)
