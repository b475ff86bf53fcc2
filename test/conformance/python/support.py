"""What the scenarios share: where the members are, clients that end with their scenario,
queues of their own for each, and waits with a deadline.

Without PEEKLOCK_MEMBER_1 to _3 and PEEKLOCK_ADMIN_1 to _3 the members are those of
`go run ./cmd/peeklock dev`, so that the suite can also be run by hand with `pytest`.
"""

import asyncio
import base64
import datetime
import hashlib
import hmac
import json
import os
import re
import time
import urllib.parse
import urllib.request
import uuid

import azure.servicebus
import azure.servicebus.aio
import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode, ServiceBusSubQueue

LATE = 1.5  # seconds that a message may be late on a machine that is busy with other tests


def connection_string(member):
    return os.environ.get(
        f"PEEKLOCK_MEMBER_{member}",
        f"Endpoint=sb://localhost:{5662 + 10 * member};SharedAccessKeyName=RootManageSharedAccessKey;"
        "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true",
    )


def part(name, member=1, of=None):
    """A part of a member's connection string, or of another one."""
    return re.search(rf"(?:^|;){name}=([^;]*)", of or connection_string(member)).group(1)


# A member that speaks TLS: a connection string as the service gives it, the address of its
# control API, and the file with the authority to trust.
SECURE = os.environ.get("PEEKLOCK_TLS", "Endpoint=sb://localhost:5671;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE")
SECURE_ADMIN = os.environ.get("PEEKLOCK_TLS_ADMIN", "http://127.0.0.1:5300")
AUTHORITY = os.environ.get("PEEKLOCK_CA", ".peeklock-dev/tls/ca.pem")


TRUSTED = os.environ.get("PEEKLOCK_TRUSTED", "localhost:5671")  # host and port of member 1, for TLS


def token_of(role, seconds):
    """A token of the identity provider."""
    address = f"{os.environ['PEEKLOCK_ISSUER']}/token?seconds={seconds}&role={urllib.parse.quote(role)}"
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(address, timeout=20) as answer:
        return answer.read().decode()


def _operator(what):
    request = urllib.request.Request(f"{os.environ['PEEKLOCK_OPERATOR']}/{what}", method="POST", data=b"")
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=150) as answer:
        return answer.read().decode()


async def doomed():
    """A member that is going to die: its connection string, which leads to another one then."""
    return await asyncio.to_thread(_operator, "doomed")


async def kill():
    """Kills the doomed member."""
    await asyncio.to_thread(_operator, "kill")


def with_key(key_name, key):
    """A connection string of member 1 with other credentials."""
    return f"Endpoint={part('Endpoint')};SharedAccessKeyName={key_name};SharedAccessKey={key};UseDevelopmentEmulator=true"


def signature(endpoint, path="", key=None, seconds=600):
    """A signature over a path below an endpoint."""
    resource = urllib.parse.quote_plus(endpoint + path)
    expiry = int(time.time()) + seconds
    digest = hmac.new((key or part("SharedAccessKey")).encode(), f"{resource}\n{expiry}".encode(), hashlib.sha256).digest()
    name = urllib.parse.quote_plus(part("SharedAccessKeyName"))
    return f"SharedAccessSignature sr={resource}&sig={urllib.parse.quote_plus(base64.b64encode(digest))}&se={expiry}&skn={name}"


def signed(path="", key=None, seconds=600):
    """A connection string of member 1 that holds only a signature over path, and no key."""
    endpoint = part("Endpoint").rstrip("/") + "/"
    return f"Endpoint={endpoint};SharedAccessSignature={signature(endpoint, path, key, seconds)};UseDevelopmentEmulator=true"


class Awaited:
    """Makes a client that blocks look like one of asyncio: each method runs in a thread."""

    def __init__(self, blocking):
        self.blocking = blocking

    def __getattr__(self, name):
        method = getattr(self.blocking, name)

        async def call(*args, **kwargs):
            return await asyncio.to_thread(method, *args, **kwargs)

        return call

    async def __aenter__(self):
        await asyncio.to_thread(self.blocking.__enter__)

    async def __aiter__(self):
        messages = iter(self.blocking)
        while (message := await asyncio.to_thread(next, messages, None)) is not None:
            yield message


class Clients:
    """Clients of one kind, "sync" or "aio", that are closed with the scenario. They do not
    try again: a retry would hide what went wrong."""

    def __init__(self, kind):
        self.kind = kind
        self.module = azure.servicebus if kind == "sync" else azure.servicebus.aio
        self.made = []

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        # Side by side, because the client takes half a second and more to close each.
        await asyncio.gather(*(made.close() for made in self.made))

    def client(self, member=1, connection=None):
        """What makes senders and receivers; each of them has a connection of its own, so
        there is nothing to close here."""
        return self.module.ServiceBusClient.from_connection_string(connection or connection_string(member), retry_total=0)

    def closing(self, made):
        """Closes something with the scenario, and returns it with methods to be awaited."""
        awaited = Awaited(made) if self.kind == "sync" else made
        self.made.append(awaited)
        return awaited

    def sender(self, queue, member=1, connection=None):
        return self.closing(self.client(member, connection).get_queue_sender(queue))

    def receiver(self, queue, member=1, connection=None, **options):
        """A receiver; options are those of the client library, like max_wait_time."""
        return self.closing(self.client(member, connection).get_queue_receiver(queue, **options))

    def deleting(self, queue, member=1, **options):
        return self.receiver(queue, member, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE, **options)

    def dead_letters(self, queue, member=1, **options):
        return self.receiver(queue, member, sub_queue=ServiceBusSubQueue.DEAD_LETTER, **options)

    def publisher(self, topic, member=1):
        return self.closing(self.client(member).get_topic_sender(topic))

    def subscriber(self, topic, subscription, member=1, **options):
        return self.closing(self.client(member).get_subscription_receiver(topic, subscription, **options))

    def session(self, receiver):
        """The session that an open receiver holds."""
        return Awaited(receiver.blocking.session) if self.kind == "sync" else receiver.session

    def session_id(self, session):
        return getattr(session, "blocking", session).session_id

    def locked_until(self, session):
        return getattr(session, "blocking", session).locked_until_utc

    def renewer(self, **options):
        """What renews locks by itself."""
        return self.closing(self.module.AutoLockRenewer(**options))

    async def filled(self, n, **settings):
        """A queue with n numbered messages."""
        name = await queue(**settings)
        await self.sender(name).send_messages(numbered(n))
        return name


def numbered(n):
    """n bodies in order, with message ids."""
    return [ServiceBusMessage(str(i), message_id=f"m-{i}") for i in range(n)]


def up_to(n):
    """The bodies of numbered."""
    return [str(i) for i in range(n)]


def bodies(messages):
    return [str(m) for m in messages]


async def opened(*links):
    """Opens senders and receivers now. Else their first use does, at the cost of its own
    time: the client sleeps 50 ms before each frame that it waits for, half a second in all."""
    await asyncio.gather(*(link.__aenter__() for link in links))
    return links[0] if len(links) == 1 else links


async def take(receiver, n, seconds=20):
    """Receives exactly n messages; the client is free to hand out fewer for each call."""
    deadline = time.monotonic() + seconds
    got = []
    while len(got) < n and time.monotonic() < deadline:
        got += await receiver.receive_messages(max_message_count=n - len(got), max_wait_time=5)
    assert len(got) == n, f"{len(got)} messages received in time, {n} were to be"
    return got


async def take_one(receiver):
    return (await take(receiver, 1))[0]


async def nothing(receiver, seconds=0.7):
    """Shows that a receiver gets nothing for a while."""
    await opened(receiver)
    assert bodies(await receiver.receive_messages(max_wait_time=seconds)) == []


async def refused(error, call):
    """Waits for the failure of a call, of the class that programs look at."""
    with pytest.raises(error) as caught:
        await call
    assert type(caught.value) is error, repr(caught.value)
    return caught.value


# The control API.


def _control(method, path, body, base):
    request = urllib.request.Request(
        base + path, method=method, data=None if body is None else json.dumps(body).encode(), headers={"Content-Type": "application/json"}
    )
    # Not over a proxy that the environment may name: the members are on this machine.
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as answer:
        return json.loads(answer.read() or "null")


async def control(method, path, body=None, member=1, at=None):
    """Asks the control API of a member, or that at an address."""
    at = at or os.environ.get(f"PEEKLOCK_ADMIN_{member}", f"http://127.0.0.1:{5290 + 10 * member}")
    return await asyncio.to_thread(_control, method, path, body, at)


async def create(name, **settings):
    await control("PUT", "/v1/queues/" + urllib.parse.quote(name, safe=""), settings)


async def queue(**settings):
    """Creates a queue for one scenario and returns its name."""
    name = f"python-{uuid.uuid4()}"
    await create(name, **settings)
    return name


async def secure_queue():
    """Creates a queue at the members that speak TLS and returns its name."""
    name = f"python-{uuid.uuid4()}"
    await control("PUT", f"/v1/queues/{name}", {}, at=SECURE_ADMIN)
    return name


async def topic(*subscriptions):
    """Creates a topic with subscriptions of given names, and returns its name."""
    name = f"python-{uuid.uuid4()}"
    await control("PUT", f"/v1/topics/{name}", {})
    for subscription in subscriptions:
        await control("PUT", f"/v1/subscriptions/{name}/Subscriptions/{subscription}", {})
    return name


async def rule(topic, subscription, name, **settings):
    """Makes a rule; this client can do that with the administration API only."""
    await control("PUT", f"/v1/rules/{topic}/Subscriptions/{subscription}?name={urllib.parse.quote(name)}", settings)


async def no_rule(topic, subscription, name):
    await control("DELETE", f"/v1/rules/{topic}/Subscriptions/{subscription}?name={urllib.parse.quote(name)}")


async def counts(name, member=1):
    """The counts of a queue, as a member sees them."""
    return (await control("GET", f"/v1/queues/{name}", member=member))["counts"]


async def counts_become(name, **want):
    """Waits until a queue has these counts; those not named are not looked at."""

    async def compare():
        have = await counts(name)
        assert {state: have[state] for state in want} == want, have

    await eventually(compare)


# Time.


async def eventually(attempt, seconds=10):
    """Tries until an attempt raises nothing, or raises what the last one did."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return await attempt()
        except AssertionError:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(0.05)


def now():
    return datetime.datetime.now(datetime.timezone.utc)


def after(seconds):
    return now() + datetime.timedelta(seconds=seconds)


async def until(moment):
    """Waits until a moment on the clock of this machine, which is that of the members too."""
    await asyncio.sleep(max(0, (moment - now()).total_seconds()))


async def after_lock(message):
    """Waits until the lock of a message has run out."""
    await until(message.locked_until_utc + datetime.timedelta(seconds=0.3))


def believe(message):
    """Makes the client think that it still holds the lock. It would refuse a late settlement
    by itself otherwise, and the broker's word could not be heard."""
    message._expiry = after(60)
