"""Refusals: keys, signatures, entities. Programs look at the class, people read the text."""

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import MessagingEntityDisabledError, ServiceBusAuthenticationError, ServiceBusError
from support import counts_become, nothing, part, queue, refused, signed, take_one, with_key

UNKNOWN = "python-no-such-queue"


async def test_a_wrong_key_and_an_unknown_key_name_are_refused(clients):  # (T.1)
    name = await queue()
    wrong = with_key(part("SharedAccessKeyName"), "wrong")
    await refused(ServiceBusAuthenticationError, clients.sender(name, connection=wrong).send_messages(ServiceBusMessage("1")))
    await refused(ServiceBusAuthenticationError, clients.receiver(name, connection=wrong).receive_messages(max_wait_time=5))
    await refused(ServiceBusAuthenticationError, clients.receiver(name, connection=wrong).peek_messages())
    nobody = with_key("Nobody", part("SharedAccessKey"))
    await refused(ServiceBusAuthenticationError, clients.sender(name, connection=nobody).send_messages(ServiceBusMessage("1")))
    await counts_become(name, active=0)


async def test_an_unknown_entity_is_refused(clients):  # (T.1)
    # The broker says 404 when the token is put, as the cloud does and the Go client needs it;
    # this client has one class for all that is refused there, and drops the text.
    await refused(ServiceBusAuthenticationError, clients.sender(UNKNOWN).send_messages(ServiceBusMessage("1")))
    await refused(ServiceBusAuthenticationError, clients.receiver(UNKNOWN).receive_messages(max_wait_time=5))
    await refused(ServiceBusAuthenticationError, clients.receiver(UNKNOWN).peek_messages())
    await refused(ServiceBusAuthenticationError, clients.dead_letters(UNKNOWN).receive_messages(max_wait_time=5))


async def test_nobody_sends_to_a_dead_letter_queue(clients):  # (T.11)
    name = await queue()
    with pytest.raises(ServiceBusError):
        await clients.sender(f"{name}/$DeadLetterQueue").send_messages(ServiceBusMessage("1"))
    await clients.sender(name).send_messages(ServiceBusMessage("1"))
    await counts_become(name, active=1, deadLetter=0)


async def test_a_queue_whose_sending_is_disabled_says_so(clients):
    name = await queue(status="SendDisabled")
    await refused(MessagingEntityDisabledError, clients.sender(name, 2).send_messages(ServiceBusMessage("1")))
    await nothing(clients.receiver(name, 2))


async def test_a_client_that_holds_only_a_signature_works_where_it_is_signed_for(clients):  # (T.1)
    own, other = await queue(), await queue()
    connection = signed(own)
    await clients.sender(own, connection=connection).send_messages(ServiceBusMessage("1"))
    await refused(ServiceBusAuthenticationError, clients.sender(other, connection=connection).send_messages(ServiceBusMessage("1")))
    assert str(await take_one(clients.receiver(own, connection=connection))) == "1"
    await counts_become(other, active=0)


async def test_a_signature_by_a_wrong_key_or_that_has_run_out_is_refused(clients):  # (T.1)
    name = await queue()
    for connection in (signed(key="wrong"), signed(seconds=-60)):
        sender = clients.sender(name, connection=connection)
        await refused(ServiceBusAuthenticationError, sender.send_messages(ServiceBusMessage("1")))
