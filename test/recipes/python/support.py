"""What the tests share: entities over the control API, and waiting."""

import asyncio
import itertools
import json
import os
import time
import urllib.request

CONNECTION = os.environ["CONNECTION_STRING"]

_names = itertools.count(1)


def _request(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(os.environ["ADMIN"] + path, data, method=method)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def queue(**settings):
    """Creates a queue and returns its name."""
    name = f"q{next(_names)}"
    _request("PUT", f"/v1/queues/{name}", settings)
    return name


def topic(*subscriptions):
    """Creates a topic with subscriptions and returns its name."""
    name = f"t{next(_names)}"
    _request("PUT", f"/v1/topics/{name}", {})
    for subscription in subscriptions:
        _request("PUT", f"/v1/subscriptions/{name}/Subscriptions/{subscription}", {})
    return name


def counts(name):
    return _request("GET", f"/v1/queues/{name}")["counts"]


async def eventually(what, attempt, seconds=60):
    deadline = time.monotonic() + seconds
    while not attempt():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        await asyncio.sleep(0.1)
