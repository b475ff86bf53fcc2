"""Sessions: named and next, order, state, locks."""

import datetime

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage
from azure.servicebus.exceptions import (
    OperationTimeoutError, ServiceBusError, SessionCannotBeLockedError, SessionLockLostError,
)
from support import bodies, counts_become, nothing, opened, queue, refused, take, take_one, until


def of(session, n):
    """n messages of a session; their bodies tell the session and the place in it."""
    return [ServiceBusMessage(f"{session}{i}", session_id=session) for i in range(n)]


async def filled(clients, **settings):
    name = await queue(requiresSession=True, **settings)
    await clients.sender(name).send_messages(of("a", 3))
    await clients.sender(name, 2).send_messages(of("b", 2))
    return name


async def session(clients, name, member, session_id, **options):
    """An open receiver of a session, and the session."""
    receiver = await opened(clients.receiver(name, member, session_id=session_id, **options))
    return receiver, clients.session(receiver)


async def test_a_session_by_its_name(clients):
    name = await filled(clients)
    b, held = await session(clients, name, 2, "b")
    assert clients.session_id(held) == "b"
    got = await take(b, 2)
    assert bodies(got) == ["b0", "b1"]
    assert got[0].session_id == "b"
    for message in got:
        await b.complete_message(message)
    await nothing(b)
    await counts_become(name, active=3, locked=0)


async def test_the_next_session_is_one_that_nobody_holds(clients):
    name = await filled(clients)
    first, one = await session(clients, name, 1, NEXT_AVAILABLE_SESSION)
    second, other = await session(clients, name, 3, NEXT_AVAILABLE_SESSION)
    assert [clients.session_id(one), clients.session_id(other)] == ["a", "b"]
    await refused(SessionCannotBeLockedError, opened(clients.receiver(name, 2, session_id="a")))
    for message in await take(first, 3):
        await first.complete_message(message)
    await take(second, 2)
    await second.close()
    again, _ = await session(clients, name, 2, NEXT_AVAILABLE_SESSION)
    got = await take(again, 2)
    assert [(str(m), m.delivery_count) for m in got] == [("b0", 0), ("b1", 0)]


async def test_waiting_for_a_session_ends(clients):
    name = await queue(requiresSession=True)
    receiver = clients.receiver(name, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=3)
    await refused(OperationTimeoutError, opened(receiver))


async def test_the_state_is_kept_with_the_session(clients):
    name = await filled(clients)
    a, held = await session(clients, name, 1, "a")
    assert await held.get_state() is None
    await held.set_state("half done")
    for message in await take(a, 3):
        await a.complete_message(message)
    await a.close()
    _, held = await session(clients, name, 3, "a")
    assert bytes(await held.get_state()) == b"half done"
    await held.set_state(None)
    assert await held.get_state() is None


async def test_the_lock_of_a_session_is_renewed_and_lost_as_a_whole(clients):
    name = await filled(clients, lockDuration="9s")
    a, held = await session(clients, name, 2, "a")
    message = await take_one(a)
    original = clients.locked_until(held)
    await until(original - datetime.timedelta(seconds=6))  # long before: the machine may be busy
    renewed = await held.renew_lock()
    assert renewed > original
    await until(original + datetime.timedelta(seconds=1))
    await a.complete_message(message)
    await until(renewed + datetime.timedelta(seconds=0.5))
    with pytest.raises(SessionLockLostError):
        await held.set_state("late")
    other, _ = await session(clients, name, 1, "a")
    assert str(await take_one(other)) == "a1"


async def test_each_settlement_and_deferred_messages_of_a_session(clients):
    name = await filled(clients)
    a, _ = await session(clients, name, 3, "a")
    got = await take(a, 3)
    number = got[1].sequence_number
    await a.abandon_message(got[0])
    await a.defer_message(got[1])
    await a.dead_letter_message(got[2])
    again = await take_one(a)
    assert (str(again), again.delivery_count) == ("a0", 1)
    assert bodies(await a.peek_messages(max_message_count=10, sequence_number=1)) == ["a0", "a1"]
    [deferred] = await a.receive_deferred_messages(number)
    await a.complete_message(deferred)
    await a.complete_message(again)
    await counts_become(name, active=2, deferred=0, deadLetter=1)
    assert (await take_one(clients.dead_letters(name))).session_id == "a"


async def test_a_message_or_a_receiver_without_a_session_is_refused(clients):
    name = await filled(clients)
    with pytest.raises(ServiceBusError):
        await clients.sender(name).send_messages(ServiceBusMessage("none"))
    with pytest.raises(ServiceBusError):
        await opened(clients.receiver(name))
    with pytest.raises(ServiceBusError):
        await opened(clients.receiver(await queue(), session_id="a"))
