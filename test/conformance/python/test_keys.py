"""Keys, tokens and TLS: the sample of the manual, rights, tokens that end, the development
authority, WebSocket, and a member that dies."""

import asyncio
import time

import pytest
from azure.core.credentials import AccessToken, AzureSasCredential
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.exceptions import ServiceBusConnectionError, ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient
from support import (
    AUTHORITY,
    SECURE,
    TRUSTED,
    connection_string,
    counts_become,
    doomed,
    kill,
    part,
    queue,
    refused,
    secure_queue,
    signature,
    take,
    take_one,
    token_of,
    with_key,
)

# This client drops the port of an endpoint that is not the emulator's; it takes another one here.
ELSEWHERE = {"custom_endpoint_address": part("Endpoint", of=SECURE), "connection_verify": AUTHORITY}


async def test_quickstart(clients):
    """The sample of the manual, with its connection string changed."""
    queue_name = await queue()
    if clients.kind == "sync":
        await asyncio.to_thread(quickstart, clients.module, queue_name)
    else:
        await quickstart_aio(clients.module, queue_name)
    await counts_become(queue_name, active=0, locked=0)


def quickstart(module, queue_name):
    servicebus_client = module.ServiceBusClient.from_connection_string(conn_str=connection_string(1), logging_enable=True)
    with servicebus_client:
        sender = servicebus_client.get_queue_sender(queue_name=queue_name)
        with sender:
            sender.send_messages(ServiceBusMessage("Single Message"))
            sender.send_messages([ServiceBusMessage("Message in list") for _ in range(5)])
            batch_message = sender.create_message_batch()
            for _ in range(10):
                batch_message.add_message(ServiceBusMessage("Message inside a ServiceBusMessageBatch"))
            sender.send_messages(batch_message)
        receiver = servicebus_client.get_queue_receiver(queue_name=queue_name, max_wait_time=5)
        received = []
        with receiver:
            for msg in receiver:
                received.append(str(msg))
                receiver.complete_message(msg)
        assert len(received) == 16


async def quickstart_aio(module, queue_name):
    async with module.ServiceBusClient.from_connection_string(conn_str=connection_string(1), logging_enable=True) as servicebus_client:
        sender = servicebus_client.get_queue_sender(queue_name=queue_name)
        async with sender:
            await sender.send_messages(ServiceBusMessage("Single Message"))
            await sender.send_messages([ServiceBusMessage("Message in list") for _ in range(5)])
            batch_message = await sender.create_message_batch()
            for _ in range(10):
                batch_message.add_message(ServiceBusMessage("Message inside a ServiceBusMessageBatch"))
            await sender.send_messages(batch_message)
        receiver = servicebus_client.get_queue_receiver(queue_name=queue_name)
        async with receiver:
            received = []
            while len(received) < 16:
                for msg in await receiver.receive_messages(max_wait_time=5, max_message_count=20):
                    received.append(str(msg))
                    await receiver.complete_message(msg)


async def test_who_may_send_may_not_receive_and_the_other_way_round(clients):
    name = await queue()
    sends, listens = (with_key(key, part("SharedAccessKey")) for key in ("Sender", "Listener"))
    await clients.sender(name, connection=sends).send_messages(ServiceBusMessage("1"))
    # The broker says 401 of an unknown key and attaches nothing without the right; both classes are the client's.
    await refused_somehow(clients.sender(name, connection=listens).send_messages(ServiceBusMessage("2")))
    await refused_somehow(clients.receiver(name, connection=sends).receive_messages(max_wait_time=5))
    await refused_somehow(clients.receiver(name, connection=sends).peek_messages())
    assert str(await take_one(clients.receiver(name, connection=listens))) == "1"
    await counts_become(name, active=1, locked=1)


async def refused_somehow(call):
    """A refusal of one of the classes that this client has for keys and rights."""
    try:
        await call
    except ServiceBusError as error:
        assert type(error).__name__ in ("ServiceBusAuthenticationError", "ServiceBusAuthorizationError"), repr(error)
    else:
        raise AssertionError("was to be refused")


async def test_a_link_ends_with_its_token_and_goes_on_with_the_next_one(clients):
    name = await secure_queue()
    credential = AzureSasCredential(signature("sb://localhost/", seconds=8))
    client = clients.module.ServiceBusClient("localhost", credential, retry_total=0, transport_type=TransportType.Amqp, **ELSEWHERE)
    sender, receiver = clients.closing(client.get_queue_sender(name)), clients.closing(client.get_queue_receiver(name))
    await sender.send_messages([ServiceBusMessage("1"), ServiceBusMessage("2")])
    first, second = await take(receiver, 2)
    await receiver.complete_message(first)
    await asyncio.sleep(9)
    late = clients.closing(client.get_queue_sender(name))
    await refused(ServiceBusConnectionError, late.send_messages(ServiceBusMessage("3")))  # by the client's own clock
    with pytest.raises(ServiceBusError):
        await receiver.complete_message(second)  # the client closes the receiver for good
    credential.update(signature("sb://localhost/"))
    sender, receiver = clients.closing(client.get_queue_sender(name)), clients.closing(client.get_queue_receiver(name))
    await sender.send_messages(ServiceBusMessage("4"))
    assert str(await take_one(receiver)) == "4"


class Bearer:
    """A credential with a role at the identity provider."""

    def __init__(self, role):
        self.role = role

    def get_token(self, *scopes, **options):
        return AccessToken(token_of(self.role, 600), int(time.time()) + 600)


class AwaitedBearer(Bearer):
    async def get_token(self, *scopes, **options):
        return await asyncio.to_thread(Bearer.get_token, self)


async def test_a_token_of_an_identity_provider_lets_in_to_what_its_roles_allow(clients):
    name = await queue()

    def bearer(role):
        credential = Bearer(role) if clients.kind == "sync" else AwaitedBearer(role)
        return clients.module.ServiceBusClient(
            "localhost", credential, retry_total=0, transport_type=TransportType.Amqp,
            custom_endpoint_address="sb://" + TRUSTED, connection_verify=AUTHORITY,
        )

    owner = bearer("Azure Service Bus Data Owner")
    await clients.closing(owner.get_queue_sender(name)).send_messages(ServiceBusMessage("1"))
    receiver = clients.closing(owner.get_queue_receiver(name))
    await receiver.complete_message(await take_one(receiver))
    sends = bearer("Azure Service Bus Data Sender")
    await clients.closing(sends.get_queue_sender(name)).send_messages(ServiceBusMessage("2"))
    await refused_somehow(clients.closing(sends.get_queue_receiver(name)).receive_messages(max_wait_time=5))
    with pytest.raises(ServiceBusError):  # of a class for connections: at an endpoint of one's own, this client doubts that first
        await clients.closing(bearer("Reader").get_queue_sender(name)).send_messages(ServiceBusMessage("3"))
    await counts_become(name, active=1)


async def test_tls_by_the_development_authority(clients):
    await secure_round_trip(clients, TransportType.Amqp)


async def test_amqp_over_websocket(clients):
    await secure_round_trip(clients, TransportType.AmqpOverWebsocket)


async def secure_round_trip(clients, transport):
    name = await secure_queue()
    client = clients.module.ServiceBusClient.from_connection_string(SECURE, retry_total=0, transport_type=transport, **ELSEWHERE)
    await clients.closing(client.get_queue_sender(name)).send_messages(ServiceBusMessage("x" * 100_000))
    receiver = clients.closing(client.get_queue_receiver(name))
    message = await take_one(receiver)
    assert len(str(message)) == 100_000
    await receiver.complete_message(message)


async def test_administration_over_https(clients):
    name = await secure_queue() + "/made"

    def administer():
        with ServiceBusAdministrationClient.from_connection_string(SECURE, connection_verify=AUTHORITY) as admin:
            admin.create_queue(name)
            assert admin.get_queue_runtime_properties(name).total_message_count == 0
            admin.delete_queue(name)

    await asyncio.to_thread(administer)


async def test_its_member_dies_and_it_goes_on_at_another(clients):
    name = await queue()
    connection = await doomed()
    client = clients.module.ServiceBusClient.from_connection_string(connection, retry_total=10, retry_backoff_factor=0.2, retry_backoff_max=2)
    sender, receiver = clients.closing(client.get_queue_sender(name)), clients.closing(client.get_queue_receiver(name))
    await sender.send_messages(ServiceBusMessage("before"))
    held = await take_one(receiver)
    await kill()
    await sender.send_messages(ServiceBusMessage("after"))
    after = await take_one(receiver)
    assert str(after) == "after"
    await receiver.complete_message(after)
    await receiver.complete_message(held)
    await counts_become(name, active=0, locked=0)
