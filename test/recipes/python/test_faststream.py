"""FastStream: publish and consume, topics, request and reply, and what happens to a message whose handler fails."""

import asyncio

from faststream import AckPolicy
from faststream_azure_servicebus import ServiceBusBroker

from support import CONNECTION, counts, eventually, queue, topic


def run(test):
    async def bounded():
        async with asyncio.timeout(120):
            await test()

    asyncio.run(bounded())


def test_messages_of_queues_and_topics_arrive():
    async def test():
        orders, events = queue(), topic("billing", "audit")
        got = []
        async with ServiceBusBroker(CONNECTION) as broker:

            @broker.subscriber(queue=orders)
            async def order(body: dict) -> None:
                got.append(("queue", body["id"]))

            @broker.subscriber(topic=events, subscription="billing")
            async def bill(body: dict) -> None:
                got.append(("billing", body["id"]))

            @broker.subscriber(topic=events, subscription="audit")
            async def audit(body: dict) -> None:
                got.append(("audit", body["id"]))

            await broker.start()
            await broker.publish({"id": 1}, queue=orders)
            await broker.publish({"id": 2}, topic=events)
            await eventually("all messages", lambda: len(got) == 3)
        assert sorted(got) == [("audit", 2), ("billing", 2), ("queue", 1)]
        await eventually("the queue is empty", lambda: counts(orders)["active"] == 0)

    run(test)


def test_a_request_gets_its_reply():
    async def test():
        commands, replies = queue(), queue()
        async with ServiceBusBroker(CONNECTION) as broker:

            @broker.subscriber(queue=commands)
            async def handle(body: dict[str, int]) -> dict[str, int]:
                return {"answer": body["value"] * 2}

            await broker.start()
            response = await broker.request({"value": 21}, queue=commands, reply_to=replies, timeout=30)
            assert await response.decode() == {"answer": 42}

    run(test)


def test_a_message_that_fails_is_dead_lettered_or_comes_again():
    async def test():
        rejected, repeated = queue(), queue(maxDeliveryCount=3)
        attempts = []
        async with ServiceBusBroker(CONNECTION) as broker:

            @broker.subscriber(queue=rejected)
            async def reject(body: str) -> None:
                raise ValueError(body)

            @broker.subscriber(queue=repeated, ack_policy=AckPolicy.NACK_ON_ERROR)
            async def repeat(body: str) -> None:
                attempts.append(body)
                raise ValueError(body)

            await broker.start()
            await broker.publish("one", queue=rejected)
            await broker.publish("two", queue=repeated)
            await eventually("the dead letter", lambda: counts(rejected)["deadLetter"] == 1)
            await eventually("three attempts", lambda: counts(repeated)["deadLetter"] == 1)
        assert attempts == ["two"] * 3

    run(test)
