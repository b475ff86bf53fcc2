"""Runs each scenario twice: with the client that blocks and with the one of asyncio."""

import asyncio

import pytest

from support import Clients

TEST_SECONDS = 60  # a test that has not ended by then never will


def pytest_generate_tests(metafunc):
    if "clients" in metafunc.fixturenames:
        metafunc.parametrize("clients", ["sync", "aio"])


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """A scenario is a coroutine that gets the clients of one kind; they are closed behind it."""

    async def scenario():
        async with Clients(pyfuncitem.funcargs["clients"]) as clients:
            await asyncio.wait_for(pyfuncitem.obj(clients), TEST_SECONDS)

    asyncio.run(scenario())
    return True
