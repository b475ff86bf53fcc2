"""Taskiq: tasks run once, later, and while their lock is renewed."""

import asyncio
import time

from taskiq.api import run_receiver_task
from taskiq_service_bus import ServiceBusBroker

from support import CONNECTION, counts, eventually, queue


def test_tasks_run_once_and_later():
    async def test():
        name = queue(lockDuration="10s")
        worker, client = ServiceBusBroker(CONNECTION, name), ServiceBusBroker(CONNECTION, name)
        worker.is_worker_process = True
        done = []

        async def add(a: int, b: int, pause: float = 0) -> None:
            await asyncio.sleep(pause)
            done.append((a + b, time.monotonic()))

        worker.register_task(add, "add")
        task = client.register_task(add, "add")
        await worker.startup()
        await client.startup()
        receiver = asyncio.create_task(run_receiver_task(worker))
        try:
            began = time.monotonic()
            await task.kicker().with_labels(delay=4).kiq(100, 0)
            await task.kiq(200, 0, pause=15)  # longer than a lock: it is renewed
            for i in range(20):
                await task.kiq(i, 0)
            await eventually("all tasks", lambda: len(done) == 22)
            await eventually("the queue is empty", lambda: counts(name)["active"] == 0)
            assert sorted(result for result, _ in done) == [*range(20), 100, 200]
            assert next(at for result, at in done if result == 100) - began >= 4
        finally:
            receiver.cancel()
            await asyncio.gather(receiver, return_exceptions=True)
            await client.shutdown()
            await worker.shutdown()

    asyncio.run(asyncio.wait_for(test(), 120))
