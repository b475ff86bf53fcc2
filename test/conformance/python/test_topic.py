"""Topics and subscriptions."""

import datetime

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode, ServiceBusSubQueue
from azure.servicebus.exceptions import ServiceBusError
from support import after, bodies, no_rule, nothing, numbered, opened, rule, take, take_one, topic, until, up_to


async def test_each_subscription_gets_each_message_to_settle_for_itself(clients):
    name = await topic("a", "b")
    publisher = clients.publisher(name)
    await publisher.send_messages(numbered(5))
    await publisher.send_messages(ServiceBusMessage("5"))
    a, b = clients.subscriber(name, "a", 2), clients.subscriber(name, "b", 3)
    got = await take(a, 6)
    assert bodies(got) == up_to(6)
    for message in got:
        await a.complete_message(message)
    await nothing(a)
    assert bodies(await b.peek_messages(max_message_count=10)) == up_to(6)
    got = await take(b, 6)
    assert bodies(got) == up_to(6)
    number = got[2].sequence_number
    await b.abandon_message(got[0])
    await b.dead_letter_message(got[1], reason="why")
    await b.defer_message(got[2])
    assert bodies(await b.receive_deferred_messages(number)) == ["2"]
    assert (await take_one(b)).delivery_count == 1
    dead = clients.subscriber(
        name, "b", sub_queue=ServiceBusSubQueue.DEAD_LETTER, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
    )
    message = await take_one(dead)
    assert (str(message), message.dead_letter_reason) == ("1", "why")


async def test_scheduled_messages_of_a_topic(clients):
    name = await topic("a")
    publisher, a = await opened(clients.publisher(name, 2), clients.subscriber(name, "a", 3))
    due = after(3)
    numbers = await publisher.schedule_messages(numbered(2), due)
    await publisher.cancel_scheduled_messages(numbers[0])
    await nothing(a)
    await until(due)
    assert str(await take_one(a)) == "1"
    await nothing(a)


async def test_rules_choose_and_change_messages(clients):
    name = await topic("a")
    await no_rule(name, "a", "$Default")
    await rule(name, "a", "large", filter={"kind": "sql", "expression": "amount > 100 AND price < 1.5"})
    await rule(
        name, "a", "east", filter={"kind": "correlation", "conditions": {"sys.Label": "east"}},
        action={"expression": "SET checked = TRUE; REMOVE amount"},
    )

    def order(body, subject, amount):
        return ServiceBusMessage(body, subject=subject, application_properties={"amount": amount, "price": 1.25})

    await clients.publisher(name, 2).send_messages(
        [order("small", "west", 5), order("big", "west", 500), order("eastern", "east", 7)]
    )
    a = clients.subscriber(name, "a", 3)
    got = await take(a, 2)
    assert bodies(got) == ["big", "eastern"]
    assert got[0].application_properties == {b"amount": 500, b"price": 1.25}
    assert got[1].application_properties[b"checked"] is True
    assert b"amount" not in got[1].application_properties
    await nothing(a)


async def test_time_to_live_on_a_subscription(clients):
    name = await topic("a")
    short = ServiceBusMessage("short", time_to_live=datetime.timedelta(seconds=1))
    await clients.publisher(name).send_messages([short, ServiceBusMessage("long")])
    a = await opened(clients.subscriber(name, "a", 2))
    await until(after(1.5))
    assert bodies(await a.peek_messages(max_message_count=10)) == ["long"]
    assert str(await take_one(a)) == "long"


async def test_nobody_receives_from_a_topic_or_sends_to_a_subscription(clients):
    name = await topic("a")
    for refused in (
        clients.receiver(name).receive_messages(max_wait_time=5),
        clients.sender(f"{name}/Subscriptions/a").send_messages(ServiceBusMessage("1")),
        clients.subscriber(name, "none").peek_messages(),
        clients.publisher(f"{name}-none").send_messages(ServiceBusMessage("1")),
    ):
        with pytest.raises(ServiceBusError):
            await refused
